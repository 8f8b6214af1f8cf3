"""Connections: at most so many, and what is not HTTP is told so in the words of all other problems."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from chronoline.broker.http.problems import ProblemResponse, problem_of
from chronoline.core.errors import InvalidInput, TooMuch


def connections_of(most: int) -> type[H11Protocol]:
    """The protocol of a server that has at most so many connections at a time."""

    class Connection(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
            super().connection_made(transport)
            if len(self.connections) > most:
                self._turn_away(TooMuch(f"{most} connections are open already; try again later"))
                return
            # Who connects has to ask for something, as if it had asked before.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

        def send_400_response(self, msg: str) -> None:
            if getattr(self.cycle, "response_complete", True):  # there is none before the first
                self._turn_away(InvalidInput(msg))
            else:
                self.transport.close()  # an answer is on its way, and nothing can be put into it

        def _turn_away(self, error: Exception) -> None:
            self.transport.write(_raw(problem_of(error)))
            self.transport.close()

    return Connection


def _raw(response: ProblemResponse) -> bytes:
    """Written by hand: there is no request that it would answer."""
    headers: list[tuple[Any, Any]] = [*response.raw_headers, (b"connection", b"close")]
    lines = [f"HTTP/1.1 {response.status_code} ".encode(), *(b"%s: %s" % each for each in headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
