"""The HTTP server of a timer node: dispatch of requests, and answers for errors.

A dictionary finds the handler: there are few paths, and a router would cost more than the rest of a request.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum, auto
from http import HTTPStatus

from aiohttp import web
from aiohttp.http import HttpProcessingError

from chronoline.core.addresses import is_loopback
from chronoline.core.errors import InvalidInput, NodeBusy, StoreError
from chronoline.runtime import audit
from chronoline.runtime.admission import Admission, BodyClients, BodyRoom
from chronoline.runtime.listener import CappedListener, listen
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.request_form import form_problem
from chronoline.timers.http.admin import TIMER_PREFIX, AdminHandlers
from chronoline.timers.http.clients import ClientHandlers
from chronoline.timers.http.nodes import NodeHandlers
from chronoline.timers.http.responses import ROOM, TIMERS, Handlers, HttpRefusal, refuse
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import MOST_BYTES
from chronoline.timers.requests import MOST_BODY_BYTES
from chronoline.timers.resync import Resync

logger = logging.getLogger(__name__)

_PING = "/ping"
"""Answered without a token, for probes."""
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS")


_SUMMARY = LogSummary(logger)


class _MalformedRequests(logging.Filter):
    """Requests that are no HTTP share a line. Their bytes are left out: they can be a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = None if record.exc_info is None else record.exc_info[1]
        if isinstance(error, HttpProcessingError):
            words = record.getMessage()
            _SUMMARY.warning("malformed_request", "%s: %s", words, type(error).__name__)
            return False
        return True


REQUEST_LOGGER = logging.getLogger(f"{__name__}.requests")
"""Where the server logs requests that do not reach `TimersEdge.handle`."""
REQUEST_LOGGER.addFilter(_MalformedRequests())


class RequestArea(Enum):
    """The part of the interface to which a request belongs; each needs a right of its own."""

    TIMERS = auto()
    """Clients set and delete timers."""
    NODES = auto()
    """Nodes exchange their records."""
    VIEWS = auto()
    """Metrics, nodes, and timers by their tags."""
    ADMIN = auto()
    """The list of nodes is read again, a resync begins."""


class TimersEdge:
    """The handler of all requests to a node."""

    def __init__(
        self,
        node: TimerNode,
        resync: Resync,
        *,
        reload: Callable[[], Awaitable[None]],
        admits: Callable[[web.BaseRequest, RequestArea], str] = lambda *_: "",
        admission: Admission | None = None,
        most_timers: int = 5_000_000,
        most_body_bytes: int = MOST_BODY_BYTES,
    ) -> None:
        """`reload` reads the list of nodes again; `admits` returns the client of a request, empty if it
        need not prove who it is, and raises `HttpRefusal` for one without its token, or without its right.

        `admission` bounds the requests of all clients that are under way.
        """
        clients = ClientHandlers(node, most_timers=most_timers, most_body_bytes=most_body_bytes)
        nodes = NodeHandlers(node)
        admin = AdminHandlers(node, resync, reload=reload)
        all_timers = {**clients.of_all(), **nodes.of_all()}
        self._by_path = {
            TIMERS: all_timers,
            f"{TIMERS}/": all_timers,
            **nodes.by_path(),
            **admin.by_path(),
            _PING: {"GET": _answer_ping},
        }
        self._of_nodes = nodes.by_path()
        self._of_admin = admin.by_path()
        self._by_prefix = {f"{TIMERS}/": clients.of_one(), TIMER_PREFIX: admin.of_one()}
        self._metrics = node.metrics
        self._admits = admits
        self._admission = admission or Admission()
        self._most_body_bytes = most_body_bytes
        self._listeners: list[CappedListener] = []

    def listen(self, host: str, port: int, *, most: int) -> Iterator[CappedListener]:
        """Sockets at all addresses of a host, each with at most `most` connections."""
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            listener = listen(address, port, most=most)
            self._listeners.append(listener)
            yield listener

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. A defect is answered with 500 and logged, and the node goes on."""
        descriptor, transport = _descriptor_of(request), request.transport
        if transport is not None:
            for listener in self._listeners:
                listener.begin(descriptor, transport.abort)
        try:
            return await self._handle(request)
        finally:
            for listener in self._listeners:
                listener.end(descriptor)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == _PING and request.method in ("GET", "HEAD"):
            return await _answer_ping(request)
        with audit.AuditedRequest(_act_of(request), _address_of(request)):
            response = await self._answer_or_refuse(request)
        if self._is_of_client(request):
            self._metrics.asked(_known(request.method), response.status)
        return response

    async def _answer_or_refuse(self, request: web.BaseRequest) -> web.Response:
        try:
            return await self._answer(request)
        except HttpRefusal as error:
            response = refuse(error.status, str(error), error.headers)
        except InvalidInput as error:
            response = refuse(HTTPStatus.BAD_REQUEST, str(error))
        except StoreError as error:
            response = refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ConnectionError as error:
            error.__traceback__ = (
                None  # the body's reader keeps the error, whose frames have the body
            )
            response = refuse(HTTPStatus.BAD_REQUEST, "the client has closed the connection")
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            response = refuse(status, "the node failed; its log says how")
        audit.refused(HTTPStatus(response.status).phrase.lower().replace(" ", "_"))
        return response

    def routes(self) -> Iterator[tuple[str, str, RequestArea]]:
        """Every path, method and area; a path that ends in / goes on with the id of a timer."""
        for path, handlers in (*self._by_path.items(), *self._by_prefix.items()):
            for method in handlers:
                if path != _PING:
                    yield path, method, self._area(path, method)

    def _area_of(self, request: web.BaseRequest) -> RequestArea:
        return self._area(request.path, request.method)

    def _area(self, path: str, method: str) -> RequestArea:
        is_read = method in ("GET", "HEAD")
        if path in self._of_nodes or (is_read and path.rstrip("/") == TIMERS):
            return RequestArea.NODES
        if path in self._of_admin or path.startswith(TIMER_PREFIX):
            return RequestArea.VIEWS if is_read else RequestArea.ADMIN
        return RequestArea.TIMERS

    def _is_of_client(self, request: web.BaseRequest) -> bool:
        path = request.path
        return path.startswith(TIMERS) and path not in self._of_nodes and request.method != "GET"

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if any(each.is_over for each in self._listeners):
            self._metrics.refused("connections")
            raise HttpRefusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "as many connections as this node takes have a request under way; try again",
                {"Connection": "close"},
            )
        problem = form_problem(request.raw_headers)
        if problem is not None:
            raise HttpRefusal(HTTPStatus.BAD_REQUEST, problem, {"Connection": "close"})
        try:
            client = self._admits(request, self._area_of(request))
        except HttpRefusal:
            self._metrics.refused("not_admitted")
            raise
        if client:
            self._know(request)
        handlers = self._handlers(request.path)
        handler = handlers.get(request.method)
        if handler is None:
            allowed = ", ".join(handlers)
            raise HttpRefusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{_known(request.method)} is not for this address; there is {allowed}",
                {"Allow": allowed},
            )
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise HttpRefusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "the body must be plain: send it without Content-Encoding",
                {"Connection": "close"},
            )
        try:
            with BodyRoom(
                self._admission, _clients_of(request, client), self._size_bytes(request)
            ) as room:
                ROOM.set(room)
                await room.begin()
                answer = await handler(request)
        except NodeBusy as error:
            self._metrics.refused("node_busy")
            raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        if not client:  # where no token is needed, a complete request is the proof
            self._know(request)
        return answer

    def _know(self, request: web.BaseRequest) -> None:
        for listener in self._listeners:
            listener.know(_descriptor_of(request))

    def _size_bytes(self, request: web.BaseRequest) -> int:
        """The largest size that the body of a request, which is not read yet, can have; at least 1.

        So a request without a body counts among those that are under way.
        """
        most_bytes = MOST_BYTES if request.path in self._of_nodes else self._most_body_bytes
        if request.content_length is None:
            return most_bytes if request.can_read_body else 1
        return max(1, min(request.content_length, most_bytes))

    def _handlers(self, path: str) -> Handlers:
        if (handlers := self._by_path.get(path)) is not None:
            return handlers
        for prefix, of_one in self._by_prefix.items():
            if path.startswith(prefix):
                return of_one
        raise HttpRefusal(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:200]}")


def _descriptor_of(request: web.BaseRequest) -> int:
    found = None if request.transport is None else request.transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def authorization_of(request: web.BaseRequest) -> bytes:
    """The header as it came: aiohttp's text of other bytes than UTF-8 cannot be encoded."""
    return request.headers.get("Authorization", "").encode(errors="surrogateescape")


def _clients_of(request: web.BaseRequest, client: str) -> BodyClients:
    """The clients whose shares of the node a request takes."""
    address = _address_of(request)
    is_local = is_loopback(address.rpartition(":")[0])
    return BodyClients.of(client, address, is_local=is_local, is_proven=bool(client))


def _address_of(request: web.BaseRequest) -> str:
    host, port = ((request.transport and request.transport.get_extra_info("peername")) or ("", 0))[
        :2
    ]
    return f"{host}:{port}"


def _act_of(request: web.BaseRequest) -> str:
    """The name of an administrative act in the audit trail, such as timers_reload."""
    return f"timers_{request.path.rpartition('/')[2][:100]}"


async def _answer_ping(_: web.BaseRequest) -> web.Response:
    return web.Response(text="OK")


def _known(method: str) -> str:
    """The label of a method in the metrics, which must not have made-up ones."""
    return method if method in _METHODS else "other"
