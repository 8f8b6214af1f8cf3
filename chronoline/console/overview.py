"""The first page: brokers, their problems, traffic and lateness as they happen; and the stream behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from chronoline.broker.cluster_info import BrokerInfo, cluster_info
from chronoline.broker.http.auth import ASK_AGAIN, NOBODY
from chronoline.broker.principals import Principal
from chronoline.console.pages import Pages, allows, principal_of
from chronoline.console.traffic import TrafficSample
from chronoline.core.errors import ChronolineError, TooMuch
from chronoline.core.rights import RightKind

_MOST_TOPICS = 10
_MOST_STREAMS = 100
"""Streams of events at a time. Each of them keeps a connection, and there are others who need one."""


class OverviewPages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context
        self._streams = 0

    def routes(self) -> list[Route]:
        return [Route("/", self._overview), Route("/live", self._live)]

    async def _overview(self, request: Request) -> Response:
        parts = self._context.parts
        info = await cluster_info(parts)
        may_observe = allows(request, RightKind.OBSERVE)
        busiest = sorted(
            (name for name in parts.metrics.topics if principal_of(request).rights.touches(name)),
            key=lambda name: -parts.metrics.lateness_of(name).total,
        )
        return self._pages.page(
            request,
            "overview.html",
            brokers=[_row(each) for each in info.brokers] if may_observe else [],
            consumers=len(info.subscribers),
            held=sum(len(each.outstanding) for each in parts.loaders.subscriptions),
            coordination_problem=info.coordination_problem,
            busiest=[(name, parts.metrics.lateness_of(name)) for name in busiest[:_MOST_TOPICS]],
            samples=[each.to_json() for each in self._context.traffic.samples],
        )

    async def _live(self, request: Request) -> Response:
        """Server-sent events: one sample of the traffic a second, and the problems of the node."""
        if self._streams >= _MOST_STREAMS:
            raise TooMuch(f"{self._streams} open pages follow this node already")
        return StreamingResponse(
            self._events(request.scope[ASK_AGAIN]), media_type="text/event-stream"
        )

    async def _events(self, ask: Callable[[], Principal]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield "retry: 2000\n\n"
            while (sample := await self._context.traffic.wait()) is not None:
                # The token may have been revoked or have expired, or the session have ended.
                if ask() is NOBODY:
                    yield "event: signed-out\ndata:\n\n"
                    break
                yield f"data: {json.dumps(self._event(sample))}\n\n"
        except ChronolineError:
            pass  # whether it may go on is not known: the browser asks again
        finally:
            self._streams -= 1

    def _event(self, sample: TrafficSample) -> dict[str, Any]:
        degradation = self._context.parts.degradation
        subscriptions = self._context.parts.loaders.subscriptions
        return {
            "sample": sample.to_json(),
            "held": sum(len(each.outstanding) for each in subscriptions),
            "consumers": len(subscriptions),
            "problems": [
                {"type": each.type.value, "reason": each.reason, "ready": ready}
                for ready, found in ((False, degradation.current), (True, degradation.notices))
                for each in found
            ],
        }


def _row(info: BrokerInfo) -> dict[str, Any]:
    record = info.record
    return {
        "name": record.name,
        "health": info.health.value,
        "problems": info.problems,
        "version": info.version,
        "address": record.address,
        "rack": record.rack,
        "roles": sorted(record.roles),
        "topics": record.load.topics,
        "consumers": record.load.consumers,
        "messages_per_s": record.load.messages_per_s,
        "core_percent": record.load.core_percent,
        "clock_ahead_ms": info.clock_ahead_ms,
    }
