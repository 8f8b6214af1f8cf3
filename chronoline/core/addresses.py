"""Addresses: loopback hosts, and where a token may travel without TLS."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from chronoline.core.errors import InvalidInput

INSECURE_VARIABLE = "CHRONOLINE_INSECURE"
"""In the environment of clients: 1 allows tokens to travel without TLS."""
_LOCAL_SCHEMES = ("unix:", "unix-abstract:")
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
