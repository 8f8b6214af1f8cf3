"""Recurring schedules: their list, the next times of one, pausing, resuming and deleting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chronoline.broker.http.console_mount import CONSOLE
from chronoline.console.pages import Pages, act, allows, form_of, path_name, principal_of, segment
from chronoline.core.rights import RightKind

_PAGE = 50
_TIMES = 10


class SchedulePages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._routes = pages.context.edge.schedule_routes

    def routes(self) -> list[Route]:
        one = "/schedules/{schedule}"
        return [
            Route("/schedules", self._list),
            Route(one, self._show),
            Route(f"{one}/delete", self._delete_page),
            Route(f"{one}/pause", self.pause_schedule, methods=["POST"]),
            Route(f"{one}/resume", self.resume_schedule, methods=["POST"]),
            Route(f"{one}/delete", self.delete_schedule, methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        page = await self._routes.list_schedules(
            principal=principal_of(request),
            topic=None,
            limit=_PAGE,
            after=request.query_params.get("after", ""),
        )
        return self._pages.page(request, "schedules.html", schedules=page.schedules, next=page.next)

    async def _show(self, request: Request) -> Response:
        name = path_name(request, "schedule")
        principal = principal_of(request)
        schedule = await self._routes.get_schedule(principal=principal, schedule=name)
        if not schedule.paused and not schedule.problem:
            upcoming = await self._routes.next_times(
                principal=principal, schedule=name, count=_TIMES
            )
            schedule.times = upcoming.times
        may_change = allows(request, RightKind.ADMINISTER, schedule.topic) or allows(
            request, RightKind.PRODUCE, schedule.topic, schedule.producer_group
        )
        return self._pages.page(request, "schedule.html", schedule=schedule, may_change=may_change)

    async def _delete_page(self, request: Request) -> Response:
        name = path_name(request, "schedule")
        schedule = await self._routes.get_schedule(principal=principal_of(request), schedule=name)
        return self._pages.page(request, "schedule_delete.html", schedule=schedule)

    async def pause_schedule(self, request: Request) -> Response:
        name = path_name(request, "schedule")
        return await self._change(
            request,
            lambda: self._routes.pause_schedule(principal=principal_of(request), schedule=name),
            done=f"The schedule {name!r} is paused.",
            then=f"{CONSOLE}/schedules/{segment(name)}",
        )

    async def resume_schedule(self, request: Request) -> Response:
        name = path_name(request, "schedule")
        return await self._change(
            request,
            lambda: self._routes.resume_schedule(principal=principal_of(request), schedule=name),
            done=f"The schedule {name!r} goes on.",
            then=f"{CONSOLE}/schedules/{segment(name)}",
        )

    async def delete_schedule(self, request: Request) -> Response:
        name = path_name(request, "schedule")
        return await self._change(
            request,
            lambda: self._routes.delete_schedule(principal=principal_of(request), schedule=name),
            done=f"The schedule {name!r} was deleted.",
            then=f"{CONSOLE}/schedules",
        )

    async def _change(
        self, request: Request, work: Callable[[], Awaitable[object]], *, done: str, then: str
    ) -> Response:
        await form_of(request, RightKind.ADMINISTER, RightKind.PRODUCE)
        return await act(request, work, done=done, then=then)
