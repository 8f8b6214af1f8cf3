"""Topics: their list, and the page of one with its forecast, lateness, consumers and settings."""

from __future__ import annotations

import time
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chronoline.broker.client_clocks import ClientClock
from chronoline.broker.cluster_info import SubscriberInfo, cluster_info
from chronoline.broker.http.console_mount import CONSOLE
from chronoline.broker.http.topic_routes import CreateTopicRequest, PauseRequest
from chronoline.broker.principals import visible_topic
from chronoline.broker.subscription import Subscription
from chronoline.console.forecasts import Forecasts
from chronoline.console.pages import (
    Pages,
    act,
    allows,
    form_of,
    principal_of,
    segment,
    whole_parameter,
)
from chronoline.core.lateness import LATENESS_BOUNDS_MS, show_bound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.rights import RightKind

_PAGE = 50
_MOST_STEPS = 400


class TopicPages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context
        self._forecasts = Forecasts(self._context.parts.carrier, self._context.parts.clock)

    def routes(self) -> list[Route]:
        one = "/topics/{topic}"
        return [
            Route("/topics", self._list),
            Route("/topics", self.create_topic, methods=["POST"]),
            Route(one, self._show),
            Route(f"{one}/counts.json", self._counts_now),
            Route(f"{one}/forecast.json", self._forecast),
            Route(f"{one}/pause", self._pause_page),
            Route(f"{one}/pause", self.pause_topic, methods=["POST"]),
            Route(f"{one}/resume", self.resume_topic, methods=["POST"]),
        ]

    def stop(self) -> None:
        self._forecasts.stop()

    # The list

    async def _list(self, request: Request) -> Response:
        wanted = request.query_params.get("q", "")
        page = whole_parameter(request, "page", 1)
        rights = principal_of(request).rights
        topics = [
            each
            for each in await self._context.parts.topics.list()
            if rights.touches(each.name) and wanted.lower() in each.name.lower()
        ]
        shown = topics[(page - 1) * _PAGE : page * _PAGE]
        consumers: dict[int, int] = {}
        for each in (await cluster_info(self._context.parts)).subscribers:
            consumers[each.topic_uid] = consumers.get(each.topic_uid, 0) + 1
        return self._pages.page(
            request,
            "topics.html",
            topics=shown,
            consumers=consumers,
            lateness={
                each.name: self._context.parts.metrics.lateness_of(each.name) for each in shown
            },
            total=len(topics),
            page=page,
            pages=max(1, -(-len(topics) // _PAGE)),
            q=wanted,
            may_create=allows(request, RightKind.ADMINISTER),
        )

    async def create_topic(self, request: Request) -> Response:
        form = await form_of(request, RightKind.ADMINISTER)
        name = form.get("name", "")

        async def create() -> None:
            await self._context.edge.topic_routes.create_topic(
                principal_of(request), CreateTopicRequest(name=name), Response()
            )

        return await act(
            request,
            create,
            done=f"The topic {name!r} was created.",
            then=f"{CONSOLE}/topics/{segment(name)}",
            if_not=f"{CONSOLE}/topics",
        )

    # One topic

    async def _show(self, request: Request) -> Response:
        topic = visible_topic(principal_of(request), await self._pages.topic(request))
        metrics = self._context.parts.metrics
        may_observe = allows(request, RightKind.OBSERVE, topic.name)
        counts = None
        if may_observe:
            counts = await self._forecasts.year(topic)
        subscribers = [
            each
            for each in (await cluster_info(self._context.parts)).subscribers
            if each.topic_uid == topic.uid
        ]
        lateness = metrics.lateness_of(topic.name)
        control = self._context.traffic.control
        return self._pages.page(
            request,
            "topic.html",
            topic=topic,
            settings=asdict(topic.settings),
            counts=counts,
            counted_ago_ms=None if counts is None else counts.age_s(time.monotonic()) * 1000,
            consumers=[self._consumer(each) for each in subscribers] if may_observe else [],
            lateness=lateness,
            histogram=_histogram(lateness.counts, control.counts),
            may_observe=may_observe,
            may_send=allows(request, RightKind.PRODUCE, topic.name),
            may_administer=allows(request, RightKind.ADMINISTER, topic.name),
        )

    async def _counts_now(self, request: Request) -> Response:
        """The tiles of a page that was shown before its messages were counted."""
        topic = await self._pages.topic(request)
        principal_of(request).check(RightKind.OBSERVE, topic.name)
        year = await self._forecasts.year(topic)
        counts = {} if year is None else asdict(year.value.total)
        return JSONResponse({"counting": year is None, **counts})

    def _consumer(self, info: SubscriberInfo) -> dict[str, Any]:
        local = self._local(info)
        receiver = None if local is None else local.receiver
        # Requests that poll have no pings to measure by.
        measured: ClientClock | None = getattr(receiver, "measured", None)
        return {
            "name": info.consumer,
            "broker": info.broker,
            "rack": info.rack,
            "busy": info.busy,
            "own": [(each.start, each.stop) for each in info.share.own],
            "backups": [(each.start, each.stop) for each in info.share.backups],
            "credit": None if local is None else local.credit,
            "held": None if local is None else len(local.outstanding),
            "latency_ms": None if measured is None else measured.latency_us / 1000,
            "drift_ms": None if measured is None else measured.drift_us / 1000,
        }

    def _local(self, info: SubscriberInfo) -> Subscription | None:
        if info.broker != self._context.parts.broker:
            return None
        return next(
            (
                each
                for each in self._context.parts.loaders.subscriptions
                if each.topic.uid == info.topic_uid and each.name == info.consumer
            ),
            None,
        )

    # Pausing

    async def _pause_page(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        return self._pages.page(request, "pause.html", topic=topic)

    async def pause_topic(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        form = await form_of(request, RightKind.ADMINISTER, topic=topic.name)

        async def pause() -> None:
            await self._context.edge.topic_routes.pause_topic(
                principal=principal_of(request),
                topic=topic.name,
                request=PauseRequest(reason=form.get("reason", "")),
            )

        path = f"{CONSOLE}/topics/{segment(topic.name)}"
        return await act(request, pause, done=f"The topic {topic.name!r} is paused.", then=path)

    async def resume_topic(self, request: Request) -> Response:
        topic = await self._pages.topic(request)
        await form_of(request, RightKind.ADMINISTER, topic=topic.name)

        async def resume() -> None:
            await self._context.edge.topic_routes.resume_topic(
                principal=principal_of(request), topic=topic.name
            )

        path = f"{CONSOLE}/topics/{segment(topic.name)}"
        return await act(request, resume, done=f"The topic {topic.name!r} goes on.", then=path)

    # The forecast

    async def _forecast(self, request: Request) -> Response:
        """The counts of a range, at most 400 steps; while they are being made, the last or the first ones."""
        topic = await self._pages.topic(request)
        principal_of(request).check(RightKind.OBSERVE, topic.name)
        start = whole_parameter(request, "from", self._context.parts.clock.now_ms(), least=0)
        end = whole_parameter(request, "to", start + 3_600_000)
        steps = min(whole_parameter(request, "steps", 120), _MOST_STEPS)
        if not 0 <= start < end <= MAX_TIME_MS:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, "from must lie before to, from 1970 to 9999"
            )
        rollup = await self._forecasts.bars(topic, start, end, steps)
        is_whole = rollup is not None and rollup.value.end >= end
        answer: dict[str, Any] = {"from": start, "to": end, "counting": not is_whole}
        if rollup is not None:
            bars = rollup.value
            answer |= {
                "age_ms": round(rollup.age_s(time.monotonic()) * 1000),
                "step": bars.step_ms,
                "starts": bars.starts,
                **{status: list(counts) for status, counts in bars.counts.items()},
            }
        return JSONResponse(answer)


def _histogram(late: list[int], control: list[int]) -> list[dict[str, Any]]:
    bounds = [*map(show_bound, LATENESS_BOUNDS_MS), "more"]
    totals = max(1, sum(late)), max(1, sum(control))
    return [
        {
            "bound": bound,
            "count": ours,
            "part": ours / totals[0],
            "control": theirs,
            "control_part": theirs / totals[1],
        }
        for bound, ours, theirs in zip(bounds, late, control, strict=True)
    ]
