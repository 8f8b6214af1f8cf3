"""Pipes of the store: what waits, what was fired and how late, their processes and partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.console.pages import Pages, allows
from chronoline.console.rollups import Rollup, Rollups
from chronoline.core.rights import RightKind
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from chronoline.stores.members import pipe_groups

if TYPE_CHECKING:
    from chronoline.pipe.status import PipeStatus

_MOST = 100


class PipePages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context
        self._found: Rollups[list[Topic]] = Rollups()
        self._read: Rollups[PipeStatus] = Rollups()

    def routes(self) -> list[Route]:
        return [Route("/pipes", self._list)]

    def stop(self) -> None:
        self._found.stop()
        self._read.stop()

    async def _list(self, request: Request) -> Response:
        found = await self._found.get("pipes", self._find)
        topics = [] if found is None else found.value
        shown = [each for each in topics if allows(request, RightKind.OBSERVE, each.name)][:_MOST]
        pipes: list[tuple[Topic, Rollup[PipeStatus] | None]] = [
            (each, await self._read.get(each.uid, lambda each=each: self._status(each)))  # type: ignore[misc]  # of this turn
            for each in shown
        ]
        return self._pages.page(
            request, "pipes.html", pipes=pipes, is_counting=found is None, now_s=time.monotonic()
        )

    async def _find(self) -> list[Topic]:
        """The topics with a pipe that is alive, or died less than an hour ago."""
        topics = await self._context.parts.topics.list()

        def find(store: Store) -> list[Topic]:
            known = store.live_groups(now_ms=0)  # of members that are not deleted yet
            return [each for each in topics if not known.isdisjoint(pipe_groups(each))]

        return await self._context.parts.access.call("members", find)

    async def _status(self, topic: Topic) -> PipeStatus:
        # A node that nobody asks for its pipes does not load their modules.
        from chronoline.pipe.status import status_in_store  # noqa: PLC0415

        now_ms = self._context.parts.clock.now_ms()
        return await self._context.parts.access.call(
            "members", lambda store: status_in_store(store, topic, now_ms), topic=topic.name
        )
