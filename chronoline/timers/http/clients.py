"""Requests of clients: POST, PUT and DELETE of timers."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from aiohttp import web

from chronoline.core.errors import InvalidInput
from chronoline.runtime.traces import TRACEPARENT
from chronoline.timers.errors import Changed
from chronoline.timers.http.responses import (
    TIMERS,
    Handlers,
    HttpRefusal,
    check_started,
    name_in,
    read_body,
)
from chronoline.timers.ids import TimerName
from chronoline.timers.membership import matching
from chronoline.timers.node import TimerNode
from chronoline.timers.plan import TimerPlan, check_factor
from chronoline.timers.requests import DEFAULT_FACTOR, read_plan


class ClientHandlers:
    """Create, replace and delete timers."""

    def __init__(self, node: TimerNode, *, most_timers: int, most_body_bytes: int) -> None:
        self._node = node
        self._most_timers = most_timers
        self._most_body_bytes = most_body_bytes

    def of_all(self) -> Handlers:
        return {"POST": self._create}

    def of_one(self) -> Handlers:
        return {"PUT": self._put, "DELETE": self._delete}

    async def _create(self, request: web.BaseRequest) -> web.Response:
        body = await read_body(request, self._most_body_bytes)
        plan = read_plan(body, factor=None, traceparent=request.headers.get(TRACEPARENT))
        self._check_callback(plan)
        self._check_room()
        name = TimerName(secrets.randbits(64), factor=plan.factor)
        return _changed(await self._node.change(name, plan, factor=plan.factor))

    async def _put(self, request: web.BaseRequest) -> web.Response:
        name = name_in(request)
        body = await read_body(request, self._most_body_bytes)
        traceparent = request.headers.get(TRACEPARENT)
        plan = read_plan(body, factor=self._factor_of(name), traceparent=traceparent)
        self._check_callback(plan)
        self._check_room()
        return _changed(await self._node.change(name, plan, factor=plan.factor))

    def _check_callback(self, plan: TimerPlan) -> None:
        if refusal := self._node.callbacks.refusal(plan.uri):
            raise InvalidInput(f"callback.http.uri: {refusal}")

    async def _delete(self, request: web.BaseRequest) -> web.Response:
        """A body is ignored, as Metaswitch Chronos does."""
        name = name_in(request)
        factor = self._factor_of(name)
        factor = DEFAULT_FACTOR if factor is None else check_factor(factor)
        check_started(self._node)
        return web.Response(headers=_copies(await self._node.change(name, None, factor=factor)))

    def _factor_of(self, name: TimerName) -> int | None:
        """The replication factor, from the name, the timer, or the nodes of its filter; None if unknown."""
        if name.factor is not None:
            return name.factor
        timer = self._node.replica.get(name.id)
        if timer is not None and timer.plan is not None:
            return timer.plan.factor
        if name.replicas_filter is None:
            return None
        return len(matching(name.replicas_filter, self._node.replica.membership.everybody)) or None

    def _check_room(self) -> None:
        check_started(self._node)
        if self._node.replica.tally.waiting >= self._most_timers:
            raise HttpRefusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the node holds {self._most_timers:,} timers, and takes no more",
            )
        self._node.journal.check_room()


def _copies(changed: Changed) -> dict[str, str]:
    return {"X-Copies": f"{changed.copies}/{changed.wanted}"}


def _changed(changed: Changed) -> web.Response:
    return web.Response(headers={"Location": f"{TIMERS}/{changed.name}", **_copies(changed)})
