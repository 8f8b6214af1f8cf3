"""URLs of callbacks: their syntax. Whether an address may be called is checked when it is resolved."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

MAX_URL_CHARACTERS = 4_096
_BRACKETED = re.compile(r"\[[^\]]*\](:[0-9]*)?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")


def url_problem(what: str, value: object) -> str | None:
    """The problem of a callback URL, or None: it needs http or https, a host, and no user."""
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
