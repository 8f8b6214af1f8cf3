"""The connections at a gRPC port, of which those that prove nothing are closed.

gRPC bounds the number of connections, but it has no call that lists or closes them: a stranger who opens
HTTP/2 and asks for nothing would keep a place until gRPC's time for idle connections is over, and a thousand
of them would keep all places. So this looks for the sockets of its own process at the port. A connection is a
stranger's until a call on it has proved who sends it. A stranger's is closed after some seconds, and earlier,
the oldest first, while there are many.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from chronoline.runtime.listener import host_port

SILENCE_S = 10.0
"""The longest time until the first call that proves who sends it."""
_FOLDERS = (Path("/proc/self/fd"), Path("/dev/fd"))


class GrpcConnections:
    """The connections of this process at a port. Owned by the event loop."""

    def __init__(self, port: int, *, most_strangers: int) -> None:
        self._port = port
        self._most_strangers = most_strangers
        self._folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
        # By descriptor and inode: the address of the other side, empty for files and other sockets.
        self._addresses: dict[tuple[int, int], str] = {}
        self._known: set[str] = set()
        # By address, the time at which the connection was first seen, the oldest first.
        self._strangers: dict[str, float] = {}
        self.closed = 0

    @property
    def known(self) -> frozenset[str]:
        """The addresses of clients that have proved who they are."""
        return frozenset(self._known)

    def know(self, address: str) -> None:
        """A call on the connection from this address, host:port, proved who sends it."""
        host, _, port = address.rpartition(":")
        with suppress(ValueError):  # it is not of the network
            self._known.add(_comparable(host.strip("[]"), int(port)))

    def check(self, now_s: float) -> None:
        """Closes the connections of strangers that are too old, or too many."""
        try:
            descriptors = self._look()
        except OSError:  # short of descriptors: what cannot be seen is not judged
            return
        self._known &= descriptors.keys()
        self._strangers = {
            address: self._strangers.get(address, now_s)
            for address in (*self._strangers, *descriptors)
            if address in descriptors and address not in self._known
        }
        beyond = len(self._strangers) - self._most_strangers
        for number, (address, since_s) in enumerate(list(self._strangers.items())):
            if number >= beyond and now_s - since_s < SILENCE_S:
                break
            self._close(descriptors[address], address)

    def _look(self) -> dict[str, int]:
        """The descriptors of the connections, by the address of the other side."""
        if self._folder is None:
            return {}
        found: dict[tuple[int, int], str] = {}
        for name in os.listdir(self._folder):
            descriptor = int(name)
            try:
                status = os.stat(descriptor)
                if stat.S_ISSOCK(status.st_mode):
                    key = descriptor, status.st_ino
                    address = self._addresses.get(key)
                    found[key] = self._address_of(descriptor) if address is None else address
            except OSError as error:
                if error.errno != errno.EBADF:  # it is closed meanwhile
                    raise
        self._addresses = found
        return {address: descriptor for (descriptor, _), address in found.items() if address}

    def _address_of(self, descriptor: int) -> str:
        """The address of the other side, if it is a connection at the port, or empty."""
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            return self._address(connection)

    def _address(self, connection: socket.socket) -> str:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return ""
        try:
            here, there = connection.getsockname(), connection.getpeername()
        except OSError:  # it listens, or is closed already
            return ""
        if here[1] != self._port:
            return ""
        return _comparable(there[0], there[1])

    def _close(self, descriptor: int, address: str) -> None:
        """Ends a connection, for gRPC to see and to close it."""
        # By a descriptor of its own, which no other thread closes. If there is none, gRPC was faster.
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if self._address(connection) == address:
                connection.shutdown(socket.SHUT_RDWR)
                self.closed += 1


def _comparable(host: str, port: int) -> str:
    """An address in the form in which addresses are compared. Raises `ValueError`."""
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    return host_port(str(found), port)
