"""For those who look after a node: whether it runs, who is there, and its figures."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from chronoline.broker.backlog import Backlog
from chronoline.broker.context import Parts
from chronoline.broker.http.json_requests import JsonRoute
from chronoline.broker.http.responses import (
    BrokerTold,
    DegradationTold,
    InfoTold,
    StateTold,
    SubscriberTold,
    moments,
)
from chronoline.broker.http.router import new_router, problems
from chronoline.runtime.metrics import CONTENT_TYPE

_METRICS_ANSWER = {"description": "In Prometheus' text format.", "content": {"text/plain": {}}}


class Watching:
    """One method for each route."""

    def __init__(self, parts: Parts, backlog: Backlog, *, roles: tuple[str, ...]) -> None:
        self._parts = parts
        self._backlog = backlog
        self._roles = roles
        self._rendering = asyncio.Lock()
        self.address = ""

    def router(self) -> APIRouter:
        router = new_router("watching")
        router.get("/info", responses=problems())(self.info)
        return router

    def root_router(self) -> APIRouter:
        """What others expect at the root."""
        router = APIRouter(tags=["watching"], route_class=JsonRoute)
        router.get("/livez")(self.livez)
        router.get("/readyz", responses=problems())(self.readyz)
        router.get(
            "/metrics", response_class=Response, responses={**problems(), 200: _METRICS_ANSWER}
        )(self.metrics)
        return router

    async def livez(self) -> StateTold:
        """Say that the node runs."""
        return StateTold(status="ok")

    async def readyz(self) -> StateTold:
        """Say whether the node can do its work; 503 with the reason while it cannot."""
        await self._parts.degradation.check()
        return StateTold(status="ready")

    async def metrics(self) -> Response:
        """Tell the node's figures. Messages are counted at most every ten seconds."""
        await asyncio.gather(self._backlog.refresh(), self._parts.degradation.look())
        async with self._rendering:
            text = await asyncio.to_thread(self._parts.metrics.snapshot().text)
        return Response(text, media_type=CONTENT_TYPE)

    async def info(self) -> InfoTold:
        """Tell who is here: the broker, what is wrong with it, and who is subscribed to what."""
        parts = self._parts
        degraded = await parts.degradation.look()
        parts.metrics.add("broker_commands_count", ("info", ""))
        broker = BrokerTold(
            id=parts.broker, version=parts.version, roles=list(self._roles), address=self.address
        )
        subscribers = [
            SubscriberTold(
                consumer=each.name,
                topic=each.topic.name,
                start_bucket=each.share.start,
                stop_bucket=each.share.stop,
                busy=each.receiver.busy,
            )
            for each in parts.loaders.subscriptions
        ]
        return InfoTold(
            brokers=[broker],
            subscribers=subscribers,
            degradations=[
                DegradationTold(type=each.type.value, reason=each.reason) for each in degraded
            ],
            store_problem=parts.degradation.store_problem,
            clock_problem=parts.access.clock.problem,
            **moments(now=parts.clock.now_ms()),
        )
