"""Addresses: loopback hosts, where a token may travel without TLS, and the syntax of callback URLs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from chronoline.core.errors import InvalidInput

INSECURE_VARIABLE = "CHRONOLINE_INSECURE"
"""In the environment of clients: 1 allows tokens to travel without TLS."""
_LOCAL_SCHEMES = ("unix:", "unix-abstract:")
MAX_URL_CHARACTERS = 4_096
_BRACKETED = re.compile(r"\[[^\]]*\](:[0-9]*)?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_LAST_PORT = 65_535
_MOST_SHOWN = 40


def check_address(text: str, *, example: str, least_port: int = 1) -> str:
    """Raises `ValueError` unless it is host:port; IPv6 in brackets."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not least_port <= int(match[2]) <= _LAST_PORT:
        shown = repr(text)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
        raise ValueError(f"{shown} is no address; write host:port, such as {example}")
    return text


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_insecure_allowed(environ: Mapping[str, str]) -> bool:
    """Whether an environment allows tokens to travel without TLS."""
    return environ.get(INSECURE_VARIABLE, "").lower() in ("1", "true", "yes")


def check_token_in_clear(address: str, *, allow: str) -> None:
    """Raises `InvalidInput` for an address that a token would reach over a network without TLS.

    `allow` names the option that permits it nevertheless.
    """
    host = address.rpartition(":")[0]
    if address.startswith(_LOCAL_SCHEMES) or is_loopback(host):
        return
    raise InvalidInput(
        f"without TLS everybody on the way to {address} can read the token; it was not sent. Use TLS, or, on "
        f"a network that you trust, {allow}"
    )


def url_problem(what: str, value: object) -> str | None:
    """The problem of a URL that is to be called, or None: it needs http or https and a host, and no user.

    Whether it may be called depends on the node: see `callbacks.address_guard`.
    """
    if not isinstance(value, str):
        return f"{what} must be text, not {type(value).__name__}"
    if len(value) > MAX_URL_CHARACTERS:
        return f"{what} must be of at most {MAX_URL_CHARACTERS} characters, not {len(value)}"
    if not value.isascii() or not value.isprintable() or " " in value:
        return f"{what} must be of printable ASCII characters, others escaped"
    try:
        parts = urlsplit(value)
        if "@" in parts.netloc:
            return f"{what} must hold no user and no password"
        has_place = parts.scheme in ("http", "https") and _has_host(parts) and parts.port != 0
    except ValueError:
        has_place = False
    return None if has_place else f"{what} must be http://host/… or https://host/…"


def _has_host(parts: SplitResult) -> bool:
    """Raises `ValueError` for an address that is none."""
    host = parts.hostname or ""
    if _BRACKETED.fullmatch(parts.netloc):
        return ipaddress.IPv6Address(host).scope_id is None  # a zone holds on one machine only
    return "[" not in parts.netloc and _HOST.fullmatch(host) is not None
