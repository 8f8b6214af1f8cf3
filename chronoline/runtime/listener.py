"""A listening socket that keeps a bounded number of connections, and closes those of strangers for new ones.

It counts a connection from its accept until it is closed, TLS handshakes included. A connection is a
stranger's until a request of it has proved who sends it (`know`). Strangers have three quarters of the bound
at most, the rest is for clients that are known. Room for a new connection comes from the stranger that has
done nothing for longest, and then from the known client that has been idle longest. So connections without
proof keep no client out, and close no client's connection. A stranger that begins no request within some
seconds is disconnected: also within a TLS handshake, or within a header.

If all connections have a request of a known client under way, it still accepts a new one within a small
margin, for the server above to refuse it with an error; beyond the margin it closes it at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from asyncio import sslproto
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chronoline.runtime.descriptors import SHORTAGES

_MARGIN = 16
SILENCE_S = 15.0
"""The longest time of a stranger without a request. The servers above answer a slow header earlier."""
SWEEP_EVERY_S = 1.0
_TLS_BUFFER_BYTES = 32 * 1024
"""asyncio gives each connection a buffer before its handshake, by default of 256 KiB."""


class _TlsProtocol(sslproto.SSLProtocol):
    """Leaves nothing behind when a handshake fails.

    In asyncio the error is in a future, its traceback has the frame that awaited the future, and the frame
    has the state of TLS: 50 KB, until the garbage collector finds the ring. Here it is started seldom.
    """

    max_size = _TLS_BUFFER_BYTES

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        super()._on_handshake_complete(handshake_exc)
        if isinstance(handshake_exc, BaseException):  # asyncio passes a class, too
            handshake_exc.__traceback__ = None

    def _wakeup_waiter(self, exc: BaseException | None = None) -> None:
        if exc is not None and self._server_side and self._waiter is not None:
            self._waiter.cancel()  # asyncio ends the connection for this as for any error
        super()._wakeup_waiter(exc)


# Event loops make their protocol by this name and take no other, so it holds for the whole process.
sslproto.SSLProtocol = _TlsProtocol  # type: ignore[misc]


class CappedListener(socket.socket):
    """A socket that servers pass to their event loop."""

    most = 1_000
    refused = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # By descriptor; the first one has done nothing for longest.
        self._strangers: dict[int, _Accepted] = {}
        # Of these, those with a request under way.
        self._asking: dict[int, _Accepted] = {}
        self._idle: dict[int, _Accepted] = {}
        self._busy: dict[int, _Accepted] = {}
        self._leaving: dict[int, _Accepted] = {}
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """The number of connections that are open, and are to stay open."""
        return len(self._strangers) + len(self._idle) + len(self._busy)

    @property
    def strangers(self) -> int:
        """The number of connections that have not proved whose they are."""
        return len(self._strangers)

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
        while len(self._strangers) >= self.most - self.most // 4:
            self._evict(self._strangers, self._next_stranger())
        while self.connections >= self.most and (group := self._yielding()):
            self._evict(group, self._next_stranger() if group is self._strangers else None)
        if self.connections >= self.most + _MARGIN:
            self.refused += 1
            accepted.close()
            raise ConnectionAbortedError
        connection = _Accepted(fileno=accepted.detach())
        connection.listener = self
        self._strangers[connection.fileno()] = connection
        self._sweep_later()
        return connection, address

    def _yielding(self) -> dict[int, _Accepted]:
        """The connections of which one gives way; empty if all have a request of a known client under way.

        While strangers are few, idle clients give way too: a new client is a stranger, and needs the time for
        its first request.
        """
        if len(self._strangers) > self.most // 8:
            return self._strangers
        return self._idle or self._strangers

    def _next_stranger(self) -> int:
        """Of the strangers with a request under way, or of the others, whichever are more: the oldest.

        So a flood of large bodies leaves a new client the time to ask, and a flood of silence that for its
        answer.
        """
        if 2 * len(self._asking) > len(self._strangers):
            return next(iter(self._asking))
        return next(descriptor for descriptor in self._strangers if descriptor not in self._asking)

    def _drop(self) -> None:
        """Accepts and closes a connection with a reserved descriptor, if the process has no other.

        If it stayed in the queue of the system, the event loop would try again without a pause.
        """
        self.refused += 1
        SHORTAGES.note("descriptors", "a client that connects")
        if group := self._strangers or self._idle:
            self._evict(group)
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        with suppress(OSError):
            super().accept()[0].close()
        with suppress(OSError):  # unless another thread was faster; then at the next time
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _evict(self, group: dict[int, _Accepted], descriptor: int | None = None) -> None:
        """Closes one connection of a group, by default the one that has done nothing for longest."""
        if descriptor is None:
            descriptor = next(iter(group))
        connection = self._leaving[descriptor] = group.pop(descriptor)
        self._asking.pop(descriptor, None)
        if connection.abort is not None:
            connection.abort()
            return
        with suppress(OSError):  # the other side was faster
            connection.shutdown(socket.SHUT_RDWR)  # its owner sees the end, and closes it

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(SWEEP_EVERY_S, self._sweep)

    def _sweep(self) -> None:
        """Closes the connections of strangers that have sent no request in time."""
        self._sweeping = None
        latest_s = time.monotonic() - SILENCE_S
        for descriptor, stranger in list(self._strangers.items()):
            if stranger.since_s > latest_s:
                break
            if not stranger.is_busy:
                self._evict(self._strangers, descriptor)
        if self._strangers:
            self._sweep_later()

    def begin(self, descriptor: int, abort: Callable[[], None]) -> None:
        """A request began on this connection.

        `abort` closes it at once: a server that waits for room for a body reads nothing, and sees no end.
        """
        if descriptor in self._strangers:
            self._touch(descriptor, abort)
        elif (connection := self._idle.pop(descriptor, None)) is not None:
            self._busy[descriptor] = connection

    def know(self, descriptor: int) -> None:
        """A request on this connection proved who sends it."""
        if (connection := self._strangers.pop(descriptor, None)) is not None:
            self._asking.pop(descriptor, None)
            group = self._busy if connection.is_busy else self._idle
            group[descriptor] = connection
            connection.abort = None

    def end(self, descriptor: int) -> None:
        """The last request of this connection was answered."""
        if descriptor in self._strangers:
            self._touch(descriptor, None)
        elif (connection := self._busy.pop(descriptor, None)) is not None:
            self._idle[descriptor] = connection

    def _touch(self, descriptor: int, abort: Callable[[], None] | None) -> None:
        """A stranger does something: it becomes the last one to give way."""
        connection = self._strangers[descriptor] = self._strangers.pop(descriptor)
        connection.abort = abort
        self._asking.pop(descriptor, None)
        if abort is not None:
            self._asking[descriptor] = connection
        connection.since_s = time.monotonic()

    def forget(self, connection: _Accepted, descriptor: int) -> None:
        """The connection is closed. Another one may have its descriptor already."""
        for group in (self._strangers, self._asking, self._idle, self._busy, self._leaving):
            if group.get(descriptor) is connection:
                del group[descriptor]


class _Accepted(socket.socket):
    listener: CappedListener | None = None
    abort: Callable[[], None] | None = None
    """Closes a stranger's connection with a request under way."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since_s = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Whether a stranger has a request under way, which has time-outs of its own."""
        return self.abort is not None

    def close(self) -> None:
        self.abort = None
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
