"""A listening socket that keeps a bounded number of connections, and closes idle ones for new ones.

It counts a connection from its accept until it is closed, TLS handshakes included. At its bound it closes the
connection that has been idle longest, so that connections without requests keep no client out. If all of them
have a request under way, it still accepts a new one within a small margin, for the server above to refuse it
with an error; beyond the margin it closes it at once.
"""

from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from typing import Any

from chronoline.runtime.descriptors import SHORTAGES

_MARGIN = 16


class CappedListener(socket.socket):
    """A socket that servers pass to their event loop."""

    most = 1_000
    refused = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By descriptor; the first of the idle ones has been idle longest.
        self._idle: dict[int, _Accepted] = {}
        self._busy: dict[int, _Accepted] = {}
        self._leaving: dict[int, _Accepted] = {}
        self._spare = os.open(os.devnull, os.O_RDONLY)

    @property
    def connections(self) -> int:
        """The number of connections that are open, and are to stay open."""
        return len(self._idle) + len(self._busy)

    @property
    def is_over(self) -> bool:
        """Whether there are more connections than the bound: the server refuses the latest."""
        return self.connections > self.most

    def close(self) -> None:
        """Stops listening; connections stay open."""
        super().close()
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises `ConnectionAbortedError`, which event loops ignore, for a connection that it closes.

        While connections are being closed it raises `BlockingIOError`: event loops then try again.
        """
        if len(self._leaving) >= _MARGIN:
            raise BlockingIOError
        try:
            accepted, address = super().accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._drop()
                raise ConnectionAbortedError from None
            raise
        while self.connections >= self.most and self._idle:
            self._evict()
        if self.connections >= self.most + _MARGIN:
            self.refused += 1
            accepted.close()
            raise ConnectionAbortedError
        connection = _Accepted(fileno=accepted.detach())
        connection.listener = self
        self._idle[connection.fileno()] = connection
        return connection, address

    def _drop(self) -> None:
        """Accepts and closes a connection with a reserved descriptor, if the process has no other.

        If it stayed in the queue of the system, the event loop would try again without a pause.
        """
        self.refused += 1
        SHORTAGES.note("descriptors", "a client that connects")
        if self._idle:
            self._evict()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):  # unless another thread was faster; then at the next time
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _evict(self) -> None:
        descriptor = next(iter(self._idle))
        connection = self._leaving[descriptor] = self._idle.pop(descriptor)
        with suppress(OSError):  # the other side was faster
            connection.shutdown(socket.SHUT_RDWR)  # its owner sees the end, and closes it

    def begin(self, descriptor: int) -> None:
        """A request began on this connection."""
        if (connection := self._idle.pop(descriptor, None)) is not None:
            self._busy[descriptor] = connection

    def end(self, descriptor: int) -> None:
        """The last request of this connection was answered."""
        if (connection := self._busy.pop(descriptor, None)) is not None:
            self._idle[descriptor] = connection

    def forget(self, connection: _Accepted, descriptor: int) -> None:
        """The connection is closed. Another one may have its descriptor already."""
        for those in (self._idle, self._busy, self._leaving):
            if those.get(descriptor) is connection:
                del those[descriptor]


class _Accepted(socket.socket):
    listener: CappedListener | None = None

    def close(self) -> None:
        if self.listener is not None:
            self.listener.forget(self, self.fileno())
            self.listener = None
        super().close()


def host_port(host: str, port: int) -> str:
    """An address host:port, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int, *, most: int) -> CappedListener:
    """A listener at an address. Raises `OSError` and, for an invalid port, `OverflowError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is given: for other sockets asyncio leaves Nagle's algorithm on.
    listener = CappedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.most = most
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except BaseException:
        listener.close()
        raise
    return listener
