"""URLs that are called: one parser accepts a URL, and says what is connected to and asked.

A second parser would differ somewhere: a URL that one accepts and the other cannot call stops its caller.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from chronoline.core.errors import InvalidInput

MAX_URL_CHARACTERS = 4_096
_MOST_PARSED = 1_000
"""Thousands of timers call the same URL."""
_NO_PLACE = "must be http://host/… or https://host/…"
_PORTS = {"http": 80, "https": 443}
_USER = re.compile(r"//[^/]*@")
_BRACKETED = re.compile(r"\[[^\]]*\](:[0-9]*)?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")


class CallbackUrl(NamedTuple):
    """The parts of a URL as a call needs them."""

    scheme: str
    host: str
    """In lower case as it is written: a name is not decoded, and an IPv6 address has no brackets."""
    port: int
    authority: str
    """The header `Host`."""
    path: str
    """It begins with a slash."""
    query: str


def parse_callback_url(value: object) -> CallbackUrl:
    """The parts of a URL: it needs http or https and a host, and no user.

    Raises `InvalidInput` with words that follow the name of the value. Whether the URL may be called depends
    on the node: see `callbacks.address_guard`.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"must be text, not {type(value).__name__}")
    if len(value) > MAX_URL_CHARACTERS:
        raise InvalidInput(f"must be of at most {MAX_URL_CHARACTERS} characters, not {len(value)}")
    return _parse(value)


def url_problem(what: str, value: object) -> str | None:
    """The problem of a URL that is to be called, or None."""
    try:
        parse_callback_url(value)
    except InvalidInput as error:
        return f"{what} {error}"
    return None


def shown_url(url: str) -> str:
    """A URL for logs and for readers without its secrets: without user, query and fragment."""
    place, mark, _ = url.partition("#")[0].partition("?")
    return _USER.sub("//", place, count=1) + ("?..." if mark else "")


@lru_cache(_MOST_PARSED)
def _parse(url: str) -> CallbackUrl:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput("must be of printable ASCII characters, others escaped")
    try:
        parts = urlsplit(url)
        host, port = _host(parts), parts.port
    except ValueError:
        raise InvalidInput(_NO_PLACE) from None
    if "@" in parts.netloc:
        raise InvalidInput("must hold no user and no password")
    if host is None or port == 0 or parts.scheme not in _PORTS:
        raise InvalidInput(_NO_PLACE)
    written = f"[{host}]" if ":" in host else host
    return CallbackUrl(
        parts.scheme,
        host,
        _PORTS[parts.scheme] if port is None else port,
        written if port is None else f"{written}:{port}",
        parts.path or "/",
        parts.query,
    )


def _host(parts: SplitResult) -> str | None:
    """The host; None if it has none. Raises `ValueError` for an address that is none."""
    host = parts.hostname or ""
    if _BRACKETED.fullmatch(parts.netloc):
        # A zone holds on one machine only.
        return host if ipaddress.IPv6Address(host).scope_id is None else None
    return host if "[" not in parts.netloc and _HOST.fullmatch(host) else None
