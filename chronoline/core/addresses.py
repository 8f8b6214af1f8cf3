"""Addresses: loopback hosts, and where a token may travel without TLS."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

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


class AllowedHosts:
    """The host names by which a listener can be asked that needs no proof of its clients.

    A web page can let a name of its own resolve to the address of the listener; its requests are then of one
    site for the browser (DNS rebinding), and only their header `Host` has the name of the page. So a request
    must name this machine, the address at which it arrived, or a name that was set.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(map(_comparable, names))

    def problem(self, host: str, here: str, *, setting: str = "allowed_hosts") -> str | None:
        """The reason why a request with this header `Host` is refused; None if it is allowed.

        `here` is the address at which its connection arrived.
        """
        before, _, port = host.rpartition(":")
        name = before if before and port.isdecimal() else host
        compared = _comparable(name)
        if not name or is_loopback(compared) or compared in {*self._names, _comparable(here)}:
            return None
        return (
            f"the host {name[:100]!r} is not allowed without a token: use the address of the node, such as "
            f"127.0.0.1, or add the name to {setting}"
        )


def _comparable(host: str) -> str:
    """A host in the form in which hosts are compared."""
    name = host.lower().removesuffix(".").strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


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
