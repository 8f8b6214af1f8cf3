"""Every request comes in here, and every error goes out here.

Requests are told apart by hand: there are few, and a router would cost more than the rest of a request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.timers.http.answering import TIMERS, Handlers, Refusal, refuse
from chronoline.timers.http.clients import ForClients
from chronoline.timers.http.lookers import ONE, ForLookers
from chronoline.timers.http.nodes import ForNodes
from chronoline.timers.node import TimerNode
from chronoline.timers.resyncing import Resync

logger = logging.getLogger(__name__)

_PING = "/ping"
"""Answered to everybody: whoever watches over nodes needs no token."""
_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS")


class TimersEdge:
    """What a node answers."""

    def __init__(
        self,
        node: TimerNode,
        resync: Resync,
        *,
        reload: Callable[[], Awaitable[None]],
        admits: Callable[[web.BaseRequest], None] = lambda _: None,
        most_requests: int = 2_000,
        most_timers: int = 5_000_000,
        most_body_bytes: int = 1024 * 1024,
    ) -> None:
        """`reload` reads the list of nodes again; `admits` raises `Refusal` for whoever may not come in."""
        clients = ForClients(node, most_timers=most_timers, most_body_bytes=most_body_bytes)
        nodes = ForNodes(node)
        lookers = ForLookers(node, resync, reload=reload)
        all_timers = {**clients.of_all(), **nodes.of_all()}
        self._by_path = {
            TIMERS: all_timers,
            f"{TIMERS}/": all_timers,
            **nodes.by_path(),
            **lookers.by_path(),
            _PING: {"GET": _answer_ping},
        }
        self._of_nodes = nodes.by_path()
        self._by_prefix = {f"{TIMERS}/": clients.of_one(), ONE: lookers.of_one()}
        self._metrics = node.metrics
        self._admits = admits
        self._most_requests = most_requests
        self._under_way = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers every request; an error of ours is told as such and ends nothing."""
        if request.path == _PING and request.method in ("GET", "HEAD"):
            return await _answer_ping(request)
        self._under_way += 1
        try:
            response = await self._answer(request)
        except Refusal as error:
            response = refuse(error.status, str(error), error.headers)
        except InvalidInput as error:
            response = refuse(HTTPStatus.BAD_REQUEST, str(error))
        except StoreError as error:
            response = refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except ConnectionError:
            response = refuse(HTTPStatus.BAD_REQUEST, "whoever asked is gone")
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            response = refuse(status, "the node failed; its log says how")
        finally:
            self._under_way -= 1
        if self._is_of_client(request):
            self._metrics.asked(_known(request.method), response.status)
        return response

    def _is_of_client(self, request: web.BaseRequest) -> bool:
        path = request.path
        return path.startswith(TIMERS) and path not in self._of_nodes and request.method != "GET"

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if self._under_way > self._most_requests:
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are under way; try again"
            )
        self._admits(request)
        handlers = self._handlers(request.path)
        handler = handlers.get(request.method)
        if handler is None:
            allowed = ", ".join(handlers)
            raise Refusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{_known(request.method)} is not for this address; there is {allowed}",
                {"Allow": allowed},
            )
        return await handler(request)

    def _handlers(self, path: str) -> Handlers:
        if (handlers := self._by_path.get(path)) is not None:
            return handlers
        for prefix, of_one in self._by_prefix.items():
            if path.startswith(prefix):
                return of_one
        raise Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at {path[:200]}")


async def _answer_ping(_: web.BaseRequest) -> web.Response:
    return web.Response(text="OK")


def _known(method: str) -> str:
    """For metrics, which must not have as many labels as somebody makes up."""
    return method if method in _METHODS else "other"
