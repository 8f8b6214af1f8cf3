"""Administrative requests: metrics, nodes, timers, reload, resync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from chronoline.timers.http.responses import (
    Handlers,
    HttpRefusal,
    answer_json,
    check_started,
    cursor_in,
    name_in,
)
from chronoline.timers.node import TimerNode
from chronoline.timers.resync import Resync
from chronoline.timers.views import describe_nodes, describe_timer, page_of_timers

TIMER_PREFIX = "/v1/timers/"


class AdminHandlers:
    """The commands of `chronoline timers` call these."""

    def __init__(
        self, node: TimerNode, resync: Resync, *, reload: Callable[[], Awaitable[None]]
    ) -> None:
        self._node = node
        self._resync = resync
        self._reload = reload

    def by_path(self) -> dict[str, Handlers]:
        return {
            "/metrics": {"GET": self._metrics},
            "/v1/nodes": {"GET": self._nodes},
            "/v1/timers": {"GET": self._list},
            "/v1/reload": {"POST": self._reload_list},
            "/v1/resync": {"POST": self._start_resync, "GET": self._progress},
        }

    def of_one(self) -> Handlers:
        return {"GET": self._show}

    async def _metrics(self, _: web.BaseRequest) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        text = await asyncio.to_thread(self._node.metrics.snapshot())  # clients can have many tags
        return web.Response(body=text, headers=headers)

    async def _nodes(self, _: web.BaseRequest) -> web.Response:
        return answer_json(describe_nodes(self._node))

    async def _list(self, request: web.BaseRequest) -> web.Response:
        return answer_json(page_of_timers(self._node, cursor_in(request)))

    async def _show(self, request: web.BaseRequest) -> web.Response:
        timer = self._node.replica.get(name_in(request, TIMER_PREFIX).id)
        if timer is None:
            raise HttpRefusal(
                HTTPStatus.NOT_FOUND, "this node does not know the timer; the others may"
            )
        return answer_json(describe_timer(self._node, timer))

    async def _reload_list(self, _: web.BaseRequest) -> web.Response:
        await self._reload()
        return answer_json(describe_nodes(self._node))

    async def _start_resync(self, request: web.BaseRequest) -> web.Response:
        check_started(self._node)
        self._node.start_work(self._run())
        await asyncio.sleep(0)  # so that the answer shows it as running
        return await self._progress(request)

    async def _run(self) -> None:
        await self._resync.run()

    async def _progress(self, _: web.BaseRequest) -> web.Response:
        progress = self._resync.progress
        return answer_json(
            {
                "running": progress.is_running,
                "nodes_asked": progress.asked,
                "nodes": progress.of,
                "timers": progress.offered,
                "problems": progress.problems,
            }
        )
