"""The HTTP server of a node, in the node's own event loop, and its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from chronoline.broker.auth import Door
from chronoline.broker.backlog import Backlog
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.admin_routes import AdminRoutes
from chronoline.broker.http.app import new_app
from chronoline.broker.http.auth import CERTIFICATE, KNOW, RequestGuard
from chronoline.broker.http.console_mount import CONSOLE, ConsoleApp, ConsoleFactory, Edge
from chronoline.broker.http.consumer_routes import CONSUMER_PATHS, ConsumerRoutes
from chronoline.broker.http.dead_letter_routes import DeadLetterRoutes
from chronoline.broker.http.message_routes import MessageRoutes
from chronoline.broker.http.operator_routes import OperatorRoutes
from chronoline.broker.http.poller import Pollers
from chronoline.broker.http.problems import ProblemResponse, problem_of
from chronoline.broker.http.schedule_routes import ScheduleRoutes
from chronoline.broker.http.topic_routes import TopicRoutes
from chronoline.broker.http.transfer_routes import TransferRoutes
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.topics import TopicsByName
from chronoline.core.errors import InvalidInput, TooMuch
from chronoline.runtime.certificates import PeerCertificate
from chronoline.runtime.listener import CappedListener, listen
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.service import AsyncService

_SUMMARY = LogSummary(logging.getLogger(__name__))
_KEEP_ALIVE_S = 75
"""A connection without a request is closed after this time."""
_GRACE_S = 2
_PATIENCE_S = 10.0
"""The longest time for a header, from its first byte on (the first header: from the connection on), and for a
client that reads nothing of its answer."""
_SEND_BUFFER_BYTES = 256 * 1024
"""The system's own buffer of an answer. With a larger one a slow reader looks like one that does not read."""


class HttpEdge(AsyncService):
    """Listens from `start` to `stop`; then it does not start again."""

    def __init__(
        self,
        parts: BrokerContext,
        door: Door,
        *,
        host: str,
        port: int,
        console: ConsoleFactory | None = None,
    ) -> None:
        """Port 0 picks a free port."""
        self._new_console = console
        self._console: ConsoleApp | None = None
        self._parts = parts
        self._door = door
        self._host = host.strip("[]")
        self._backlog = Backlog(parts.access, parts.topics, parts.clock, parts.metrics)
        self._pollers = Pollers(parts)
        self._admin = AdminRoutes(parts, self._backlog)
        self._guard: RequestGuard | None = None
        self._server: _UvicornServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self.port = port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    @property
    def throttled_producers(self) -> list[str]:
        """The addresses of connections most of whose requests are invalid."""
        return [] if self._guard is None else self._guard.throttle.throttled()

    async def _start(self) -> None:
        """Raises `InvalidInput` if it cannot listen at the address."""
        host = self._host
        try:
            listener = listen(host, self.port, most=self._parts.limits.connections)
        except (OSError, OverflowError) as error:
            raise InvalidInput(
                f"HTTP cannot listen at {host}:{self.port}: is it taken by another process? {error}"
            ) from None
        try:
            self._server = _UvicornServer(self._config(listener))
        except BaseException:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        await self._pollers.start()
        if self._console is not None:
            await self._console.start()
        self._serving = asyncio.create_task(self._server.serve([listener]), name="http")
        up = asyncio.create_task(self._server.is_up.wait())
        await asyncio.wait([up, self._serving], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            up.cancel()
            failed, self._serving = self._serving, None
            await failed  # raises the reason

    async def _stop(self) -> None:
        """Answers the waiting polls, and returns when all requests are answered."""
        self._pollers.end_polls()
        if self._console is not None:
            self._console.end_streams()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            serving, self._serving = self._serving, None
            await serving
        await self._pollers.stop()
        if self._console is not None:
            await self._console.stop()
        self._backlog.stop()

    def _config(self, listener: CappedListener) -> uvicorn.Config:
        parts, context = self._parts, self._door.ssl_context()
        topics = TopicsByName(parts.topics)
        edge = Edge(
            parts=parts,
            door=self._door,
            topics=topics,
            topic_routes=TopicRoutes(parts, topics),
            message_routes=MessageRoutes(parts, topics),
            dead_letter_routes=DeadLetterRoutes(parts, topics),
            schedule_routes=ScheduleRoutes(parts, topics),
            operator_routes=OperatorRoutes(parts, topics),
            backlog=self._backlog,
        )
        app = new_app(
            parts.version,
            [
                edge.topic_routes.router(),
                edge.operator_routes.router(),
                TransferRoutes(parts, topics).router(),
                edge.message_routes.router(),
                ConsumerRoutes(parts, topics, self._pollers).router(),
                edge.dead_letter_routes.router(),
                edge.schedule_routes.router(),
                self._admin.router(),
                self._admin.root_router(),
            ],
            parts.member.check_role,
        )
        if self._new_console is not None:
            self._console = self._new_console(edge)
            app.mount(CONSOLE, self._console.app)
            app.add_route("/", _to_console, include_in_schema=False)
        self._guard = RequestGuard(
            app,
            parts,
            self._door,
            consumer_paths=CONSUMER_PATHS,
            console=self._console,
        )
        return uvicorn.Config(
            self._guard,
            http=_connection_type(listener, parts.metrics),
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


async def _to_console(_: Request) -> Response:
    return RedirectResponse(f"{CONSOLE}/")


class _UvicornServer(uvicorn.Server):
    """A server that signals when it is up, and leaves signals to the node's owner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _connection_type(listener: CappedListener, metrics: BrokerMetrics) -> type[H11Protocol]:
    """The protocol of the connections at a listener, for uvicorn's public parameter `http`.

    A client has to send a request, and to read its answer: a connection without progress is closed.

    For the guard, the state of its requests (`app_state`) has the client's certificate, and a function that
    tells the listener that the client is known.

    Public means cover the time-out of idle connections (`timeout_keep_alive`), the size of a header
    (`h11_max_incomplete_event_size`) and the calls of asyncio (`connection_made`, `data_received`,
    `pause_writing`, …). Three things have none, which is why this is a subclass of `H11Protocol`:

    - The time for a header. uvicorn has no setting, and only `cycle` knows whether a request is complete.
    - Which connection is idle (`cycle`, `on_response_complete`). The listener needs it to make room for a new
      one. `limit_concurrency` counts connections after their TLS handshake, closes no idle one, and answers
      in plain text.
    - The answer to bytes that are no HTTP (`send_400_response`), which has to be a problem like all others.
    """

    class HttpConnection(H11Protocol):
        header_timer: asyncio.TimerHandle | None = None
        """Runs until a request is complete enough to be answered."""
        read_timer: asyncio.TimerHandle | None = None
        """Runs while a part of an answer waits to be written."""
        descriptor = -1

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
            super().connection_made(transport)
            shown = PeerCertificate.of_tls(transport.get_extra_info("peercert"))
            peer: socket.socket = transport.get_extra_info("socket")
            self.descriptor = peer.fileno()
            know = partial(listener.know, self.descriptor)
            self.app_state = {**self.app_state, CERTIFICATE: shown, KNOW: know}
            if listener.is_over:
                metrics.refused("http", "connections")
                words = f"{listener.most} connections have a request under way; try again later"
                self._turn_away(TooMuch(words))
                return
            transport.set_write_buffer_limits(high=1, low=0)  # any waiting byte pauses writing
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            self._watch_header()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            _cancel(self.header_timer)
            _cancel(self.read_timer)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch_header()

        def _watch_header(self) -> None:
            """Another byte of a header gives it no more time."""
            if self._is_answering():
                listener.begin(self.descriptor, self.transport.abort)
                _cancel(self.header_timer)
                self.header_timer = None
            elif self.header_timer is None:
                self.header_timer = self.loop.call_later(_PATIENCE_S, self._header_too_slow)

        def on_response_complete(self) -> None:
            super().on_response_complete()  # may begin the next request
            if not self._is_answering():
                listener.end(self.descriptor)

        def _is_answering(self) -> bool:
            return not getattr(self.cycle, "response_complete", True)  # None before the first

        def _header_too_slow(self) -> None:
            self._turn_away(
                HTTPException(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"no complete header arrived within {_PATIENCE_S:g} s",
                )
            )

        def pause_writing(self) -> None:
            super().pause_writing()
            self._watch_reader(None)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self.read_timer)

        def _watch_reader(self, before_bytes: int | None) -> None:
            left_bytes = self.transport.get_write_buffer_size()
            if left_bytes == before_bytes:
                self.transport.abort()  # `close` would wait for the client too
            else:
                self.read_timer = self.loop.call_later(_PATIENCE_S, self._watch_reader, left_bytes)

        def send_400_response(self, msg: str) -> None:
            host = (self.client or ("an unknown host",))[0]
            _SUMMARY.warning("malformed_request", "a request from %s is no HTTP", host)
            if self._is_answering():
                self.transport.close()  # an answer is on its way, and another cannot go into it
            else:
                self._turn_away(InvalidInput(msg))

        def _turn_away(self, error: Exception) -> None:
            self.transport.write(_raw(problem_of(error)))
            self.transport.close()

    return HttpConnection


class _UvicornWarnings(logging.Filter):
    """uvicorn warns of each odd request by a line of its own; these share lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or record.exc_info is not None:
            return True
        if record.msg != "Invalid HTTP request received.":  # which has a line with its sender
            _SUMMARY.warning("odd_request", "%s", record.getMessage())
        return False


logging.getLogger("uvicorn.error").addFilter(_UvicornWarnings())


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _raw(response: ProblemResponse) -> bytes:
    """The bytes of an answer to no request, which uvicorn cannot write."""
    headers: list[tuple[Any, Any]] = [*response.raw_headers, (b"connection", b"close")]
    lines = [f"HTTP/1.1 {response.status_code} ".encode(), *(b"%s: %s" % each for each in headers)]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
