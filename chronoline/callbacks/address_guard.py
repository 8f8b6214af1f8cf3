"""The guard of addresses: calls may go to the public internet, and to networks that the settings allow."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from functools import lru_cache

from chronoline.core.callback_url import parse_callback_url
from chronoline.core.errors import InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1/128")
_LOCALHOST = ("127.0.0.1", "::1")
_MOST_REMEMBERED = 1_000
_SPECIAL = [
    ipaddress.ip_network(each)
    # Protocol assignments, 6to4 relays, site-local addresses, documentation.
    for each in ("192.0.0.0/24", "192.88.99.0/24", "fec0::/10", "3fff::/20")
]
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")


class AddressGuard:
    """Refuses private, loopback, link-local and other special addresses, except the networks it is given."""

    def __init__(
        self, allowed: Iterable[str] = (), *, loopback: Callable[[], bool] = lambda: False
    ) -> None:
        """While `loopback` is true, this machine may be called too.

        Raises `ValueError` for text that is not a network.
        """
        networks = [*allowed]
        self._without = _Networks(networks)
        self._with = _Networks([*networks, *LOOPBACK])
        self._loopback = loopback

    def allows(self, text: str) -> bool:
        """Whether a connection to an address is allowed. IPv6 addresses can contain IPv4, in several ways."""
        return self._now.allows(text)

    def refusal(self, uri: str) -> str | None:
        """The reason why a URI is never called: its host is a forbidden address, or localhost.

        No name is looked up: others are judged when they are called.
        """
        try:
            host = parse_callback_url(uri).host
        except InvalidInput as error:
            return str(error)
        return not_allowed(host) if self._now.refuses(host) else None

    @property
    def _now(self) -> _Networks:
        return self._with if self._loopback() else self._without


class _Networks:
    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed: list[Network] = [ipaddress.ip_network(each) for each in allowed]
        # The answer for an address is always the same, and a receiver is called thousands of times.
        self.allows = lru_cache(_MOST_REMEMBERED)(self._lets_out)
        self.refuses = lru_cache(_MOST_REMEMBERED)(self._is_refused)

    def _is_refused(self, host: str) -> bool:
        addresses = _LOCALHOST if host == "localhost" else _literal(host)
        return bool(addresses) and not any(map(self.allows, addresses))

    def _lets_out(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        return all(self._is_fine(each) for each in _meant(address))

    def _is_fine(self, address: Address) -> bool:
        if any(address.version == net.version and address in net for net in self._allowed):
            return True
        if any(address.version == net.version and address in net for net in _SPECIAL):
            return False
        return address.is_global and not address.is_multicast and not address.is_reserved


def not_allowed(host: str) -> str:
    """The words for a host that is refused."""
    return f"{host} may not be called: allow its network in the settings (callbacks.allow)"


def _literal(host: str) -> tuple[str, ...]:
    """The address that a host is itself, in the forms that the system reads; none for a name."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    try:
        return (socket.inet_ntoa(socket.inet_aton(host)),)  # such as 10.1 or 0x7f000001
    except (OSError, UnicodeError):
        return ()


def _meant(address: Address) -> list[Address]:
    """The addresses at which a packet can arrive."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _TRANSLATED:
        return [ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    return [address]
