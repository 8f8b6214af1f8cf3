"""Timers of this node: the nodes of their cluster, timers by tag, and a resync as it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.console.pages import Pages, principal_of, whole_parameter
from chronoline.core.rights import EVERY_TOPIC, RightKind

if TYPE_CHECKING:
    from chronoline.timers.node import TimerNode
    from chronoline.timers.resync import Resync


class TimerPages:
    """One method for each route."""

    def __init__(self, pages: Pages, node: TimerNode | None, resync: Resync | None) -> None:
        """A node without the role has neither."""
        self._pages = pages
        self._node = node
        self._resync = resync

    def routes(self) -> list[Route]:
        return [Route("/timers", self._show)]

    async def _show(self, request: Request) -> Response:
        principal_of(request).check(RightKind.OBSERVE, EVERY_TOPIC)
        if self._node is None or self._resync is None:
            return self._pages.page(request, "timers.html", described=None)
        from chronoline.timers.views import describe_nodes, page_of_timers  # noqa: PLC0415 - of this role

        page = page_of_timers(self._node, whole_parameter(request, "before", 0, least=0))
        return self._pages.page(
            request,
            "timers.html",
            described=describe_nodes(self._node),
            progress=self._resync.progress,
            timers=page["timers"],
            cursor=page["cursor"],
        )
