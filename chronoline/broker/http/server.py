"""The HTTP server of a node, in the node's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from chronoline.broker.auth import Door
from chronoline.broker.backlog import Backlog
from chronoline.broker.context import Parts
from chronoline.broker.http.admin_routes import Watching
from chronoline.broker.http.app import new_app
from chronoline.broker.http.auth import Guard
from chronoline.broker.http.connections import connections_of
from chronoline.broker.http.consumer_routes import Consuming
from chronoline.broker.http.dead_letter_routes import DeadLetters
from chronoline.broker.http.message_routes import Looking
from chronoline.broker.http.poller import Pollers
from chronoline.broker.http.producer_routes import Producing
from chronoline.broker.http.topic_finder import Finder
from chronoline.broker.http.topic_routes import TopicRoutes
from chronoline.core.errors import InvalidInput
from chronoline.runtime.listener import CappedListener, listen

_KEEP_ALIVE_S = 75
"""For so long a connection that asks for nothing stays open."""
_GRACE_S = 2


class HttpEdge:
    """Listens from `start` to `stop`."""

    def __init__(self, parts: Parts, door: Door, *, roles: tuple[str, ...]) -> None:
        self._parts = parts
        self._door = door
        self._backlog = Backlog(parts.access, parts.topics, parts.clock, parts.metrics)
        self._pollers = Pollers(parts)
        self._watching = Watching(parts, self._backlog, roles=roles)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def connections(self) -> int:
        """How many are open."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    async def start(self, host: str, port: int) -> None:
        """Raises `InvalidInput` if the address cannot be had."""
        host = host.strip("[]")
        try:
            listener = listen(host, port, most=self._parts.limits.connections)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"HTTP cannot listen at {host}:{port}: is it taken by another process? {error}"
            ) from None
        try:
            self._server = _Server(self._config(host, listener))
        except BaseException:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self._watching.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._pollers.start()
        self._serving = asyncio.create_task(self._server.serve([listener]), name="http")
        up = asyncio.create_task(self._server.is_up.wait())
        await asyncio.wait([up, self._serving], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            up.cancel()
            await self._serving  # which says why

    async def stop(self) -> None:
        """Answers who waits, and ends when that is done. May be called twice."""
        self._pollers.end_polls()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            serving, self._serving = self._serving, None
            await serving
        await self._pollers.stop()
        self._backlog.stop()

    def _config(self, host: str, listener: CappedListener) -> uvicorn.Config:
        parts, context = self._parts, self._door.ssl_context()
        finder = Finder(parts.topics)
        app = new_app(
            parts.version,
            [
                TopicRoutes(parts, finder).router(),
                Producing(parts, finder).router(),
                Consuming(parts, finder, self._pollers).router(),
                Looking(parts, finder).router(),
                DeadLetters(parts, finder).router(),
                self._watching.router(),
                self._watching.root_router(),
            ],
        )
        return uvicorn.Config(
            Guard(app, parts, self._door, host=host),
            http=connections_of(listener, parts.metrics),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_context_factory=None if context is None else lambda *_: context,
        )


class _Server(uvicorn.Server):
    """Tells when it is up, and leaves signals to the node's owner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
