"""Connections: idle ones give way to new ones, and nonsense is answered in the words of other problems.

Who connects has to ask for something, and to read what it is answered: a connection on which neither goes on
is somebody else's.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from chronoline.broker.http.problems import ProblemResponse, problem_of
from chronoline.broker.metrics import BrokerMetrics
from chronoline.core.errors import InvalidInput, TooMuch
from chronoline.runtime.listener import CappedListener

_PATIENCE_S = 10.0
"""So long a header may take from its first byte on, the first one from the connection on. And so long a
client may read nothing of an answer."""
_SENT_BYTES = 256 * 1024
"""So much the system takes, whether it is read or not: more, and who reads slowly looks as if it did not."""


def connections_of(listener: CappedListener, metrics: BrokerMetrics) -> type[H11Protocol]:
    """The protocol of a server at this listener, which bounds its connections."""

    class Connection(H11Protocol):
        asking: asyncio.TimerHandle | None = None
        """Until a request is there that can be answered."""
        descriptor = -1
        reading: asyncio.TimerHandle | None = None
        """While something waits to be written."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
            super().connection_made(transport)
            peer: socket.socket = transport.get_extra_info("socket")
            self.descriptor = peer.fileno()
            if listener.is_over:
                metrics.refused("http", "connections")
                words = f"{listener.most} connections have a request under way; try again later"
                self._turn_away(TooMuch(words))
                return
            transport.set_write_buffer_limits(high=1, low=0)  # whatever waits is told of
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
            self._watch_asking()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget(self.asking)
            self._forget(self.reading)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_asking()

        def _watch_asking(self) -> None:
            """A byte more gives it no more time."""
            if self._is_answering():
                listener.begin(self.descriptor)
                self._forget(self.asking)
                self.asking = None
            elif self.asking is None:
                self.asking = self.loop.call_later(_PATIENCE_S, self._took_too_long)

        def on_response_complete(self) -> None:
            super().on_response_complete()  # which may begin with the next request
            if not self._is_answering():
                listener.end(self.descriptor)

        def _is_answering(self) -> bool:
            return not getattr(
                self.cycle, "response_complete", True
            )  # there is none before the first

        def _took_too_long(self) -> None:
            self._turn_away(
                HTTPException(
                    HTTPStatus.REQUEST_TIMEOUT, f"no whole header came within {_PATIENCE_S:g} s"
                )
            )

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_reader(None)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._forget(self.reading)

        def _watch_reader(self, before_bytes: int | None) -> None:
            left_bytes = self.transport.get_write_buffer_size()
            if left_bytes == before_bytes:
                self.transport.abort()  # closing would wait for it too
            else:
                self.reading = self.loop.call_later(_PATIENCE_S, self._watch_reader, left_bytes)

        @staticmethod
        def _forget(timer: asyncio.TimerHandle | None) -> None:
            if timer is not None:
                timer.cancel()

        def send_400_response(self, msg: str) -> None:
            if self._is_answering():
                self.transport.close()  # an answer is on its way, and nothing can be put into it
            else:
                self._turn_away(InvalidInput(msg))

        def _turn_away(self, error: Exception) -> None:
            self.transport.write(_raw(problem_of(error)))
            self.transport.close()

    return Connection


def _raw(response: ProblemResponse) -> bytes:
    """Written by hand: there is no request that it would answer."""
    headers: list[tuple[Any, Any]] = [*response.raw_headers, (b"connection", b"close")]
    lines = [f"HTTP/1.1 {response.status_code} ".encode(), *(b"%s: %s" % each for each in headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
