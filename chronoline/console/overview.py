"""The first page: brokers, their problems, traffic and lateness as they happen; and the stream behind it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chronoline.broker.cluster_info import BrokerInfo, cluster_info
from chronoline.broker.http.auth import ASK_AGAIN, NOBODY
from chronoline.broker.principals import Principal
from chronoline.console.pages import Pages, allows, principal_of
from chronoline.console.rollups import Rollups
from chronoline.console.traffic import TrafficSample
from chronoline.core.errors import ChronolineError, TooMuch
from chronoline.core.rights import EVERY_TOPIC, RightKind, Rights
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store

_MOST_TOPICS = 10
_MOST_DEAD_LETTERS = 1_000
"""The most dead letters of a topic that are counted."""
_DEAD_LETTERS_EVERY_S = 10.0
_DEAD_LETTERS_PATIENCE_S = 0.1
"""The stream of events brings a count that takes longer."""
_TOPICS_AT_ONCE = 100
"""The topics whose dead letters one read of the store counts."""
_MOST_STREAMS = 100
"""Streams of events at a time. Each of them keeps a connection, and there are others who need one."""
_MOST_OF_ONE = 20
"""The most of them for one token, in all its sessions."""


class OverviewPages:
    """One method for each route."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._context = pages.context
        self._streams = Counter[str]()
        self._dead: Rollups[dict[str, int]] = Rollups(
            least_age_s=_DEAD_LETTERS_EVERY_S, patience_s=_DEAD_LETTERS_PATIENCE_S
        )

    def routes(self) -> list[Route]:
        return [Route("/", self._overview), Route("/live", self._live)]

    def stop(self) -> None:
        self._dead.stop()

    async def _overview(self, request: Request) -> Response:
        parts = self._context.parts
        principal_of(request).check_touches_any()
        info = await cluster_info(parts)
        may_observe = allows(request, RightKind.OBSERVE)
        rights = principal_of(request).rights
        delivered = [
            (name, late)
            for name in parts.metrics.topics
            if rights.touches(name) and (late := parts.metrics.lateness_of(name)).total
        ]
        delivered.sort(key=lambda each: -each[1].total)
        dead = await self._dead_letters(principal_of(request))
        return self._pages.page(
            request,
            "overview.html",
            brokers=[_row(each) for each in info.brokers] if may_observe else [],
            consumers=sum(rights.touches(subscriber.topic) for subscriber in info.subscribers),
            held=self._held(rights),
            dead=dead,
            observes_all=allows(request, RightKind.OBSERVE, EVERY_TOPIC),
            most_dead=_MOST_DEAD_LETTERS,
            most_topics=_MOST_TOPICS,
            coordination_problem=info.coordination_problem,
            busiest=delivered[:_MOST_TOPICS],
            samples=[each.to_json() for each in self._context.traffic.samples],
        )

    async def _live(self, request: Request) -> Response:
        """Server-sent events: one sample of the traffic a second, and the problems of the node."""
        principal = principal_of(request)
        principal.check_touches_any()
        who, streams = principal.who, self._streams.total()
        if streams >= _MOST_STREAMS:
            raise TooMuch(f"{streams} open pages follow this node already")
        if self._streams[who] >= _MOST_OF_ONE and principal.name:
            raise TooMuch(f"{self._streams[who]} open pages of this token follow this node already")
        self._streams[who] += 1
        return _EventStream(self._events(request.scope[ASK_AGAIN]), partial(self._ended, who))

    def _ended(self, who: str) -> None:
        self._streams[who] -= 1
        if not self._streams[who]:
            del self._streams[who]

    async def _events(self, ask: Callable[[], Principal]) -> AsyncIterator[str]:
        try:
            yield "retry: 2000\n\n"
            while (sample := await self._context.traffic.wait()) is not None:
                # The token may have been revoked or have expired, or the session have ended.
                principal = ask()
                if principal is NOBODY or not principal.rights.touches():
                    yield "event: signed-out\ndata:\n\n"
                    break
                dead = await self._dead_letters(principal)
                event = self._event(sample, dead, self._held(principal.rights))
                yield f"data: {json.dumps(event)}\n\n"
        except ChronolineError:
            pass  # whether it may go on is not known: the browser asks again

    async def _dead_letters(self, principal: Principal) -> dict[str, int] | None:
        """The topics with dead letters, most of them first; None while they are not known."""
        try:
            rollup = await self._dead.get("dead", self._count_dead_letters)
        except ChronolineError:  # the page says by itself that the store does not answer
            return None
        if rollup is None:
            return None
        allows = principal.rights.allows
        return {name: n for name, n in rollup.value.items() if allows(RightKind.OBSERVE, name)}

    async def _count_dead_letters(self) -> dict[str, int]:
        parts, counted = self._context.parts, dict[str, int]()
        topics = await parts.topics.list()
        for place in range(0, len(topics), _TOPICS_AT_ONCE):
            some = topics[place : place + _TOPICS_AT_ONCE]
            counted |= await parts.access.call("dead_letters", partial(_dead_letters_of, some))
        return dict(sorted(counted.items(), key=lambda each: -each[1]))

    def _held(self, rights: Rights) -> int:
        """The leases that consumers of this node hold, of topics to which there is a right."""
        subscriptions = self._context.parts.loaders.subscriptions
        return sum(
            len(subscription.outstanding)
            for subscription in subscriptions
            if rights.touches(subscription.topic.name)
        )

    def _event(
        self, sample: TrafficSample, dead: Mapping[str, int] | None, held: int
    ) -> dict[str, Any]:
        degradation = self._context.parts.degradation
        return {
            "sample": sample.to_json(),
            "held": held,
            "dead": None if dead is None else sum(dead.values()),
            "problems": [
                {"type": each.type.value, "reason": each.reason, "ready": ready}
                for ready, found in ((False, degradation.current), (True, degradation.notices))
                for each in found
            ],
        }


class _EventStream(StreamingResponse):
    """Server-sent events that say when they end, also if the browser is gone before the first one."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _dead_letters_of(topics: Sequence[Topic], store: Store) -> dict[str, int]:
    counts = {
        each.name: len(store.dead_letters(each.uid, limit=_MOST_DEAD_LETTERS)) for each in topics
    }
    return {name: count for name, count in counts.items() if count}


def _row(info: BrokerInfo) -> dict[str, Any]:
    record = info.record
    return {
        "name": record.name,
        "health": info.health.value,
        "problems": info.problems,
        "notices": info.notices,
        "version": record.version,
        "address": record.address,
        "rack": record.rack,
        "roles": sorted(record.roles),
        "topics": record.load.topics,
        "consumers": record.load.consumers,
        "messages_per_s": record.load.messages_per_s,
        "core_percent": record.load.core_percent,
        "clock_ahead_ms": info.clock_ahead_ms,
    }
