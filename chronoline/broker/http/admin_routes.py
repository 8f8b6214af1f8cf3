"""Routes of administration: health, metrics, status."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from chronoline.broker.backlog import Backlog
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import new_router, problems
from chronoline.broker.http.responses import (
    BrokerResponse,
    DegradationResponse,
    InfoResponse,
    StatusResponse,
    SubscriberResponse,
    moments,
)
from chronoline.runtime.metrics import CONTENT_TYPE

_METRICS_ANSWER = {"description": "In Prometheus' text format.", "content": {"text/plain": {}}}


class AdminRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, backlog: Backlog, *, roles: tuple[str, ...]) -> None:
        self._parts = parts
        self._backlog = backlog
        self._roles = roles
        self._rendering = asyncio.Lock()
        self.address = ""

    def router(self) -> APIRouter:
        router = new_router("administration")
        router.get("/info", responses=problems())(self.info)
        return router

    def root_router(self) -> APIRouter:
        """Routes that probes and Prometheus expect at the root."""
        router = new_router("administration", prefix="")
        router.get("/livez")(self.livez)
        router.get("/readyz", responses=problems())(self.readyz)
        router.get(
            "/metrics", response_class=Response, responses={**problems(), 200: _METRICS_ANSWER}
        )(self.metrics)
        return router

    async def livez(self) -> StatusResponse:
        """Say that the node runs."""
        return StatusResponse(status="ok")

    async def readyz(self) -> StatusResponse:
        """Say whether the node is ready; 503 with the reason while it is not."""
        await self._parts.degradation.check()
        return StatusResponse(status="ready")

    async def metrics(self) -> Response:
        """Show the metrics. Messages are counted at most every ten seconds."""
        await asyncio.gather(self._backlog.refresh(), self._parts.degradation.refresh())
        async with self._rendering:
            text = await asyncio.to_thread(self._parts.metrics.snapshot().text)
        return Response(text, media_type=CONTENT_TYPE)

    async def info(self) -> InfoResponse:
        """Show the broker, its degradations, and which consumers are subscribed to which topics."""
        parts = self._parts
        degraded = await parts.degradation.refresh()
        parts.metrics.add("broker_commands_count", ("info", ""))
        broker = BrokerResponse(
            id=parts.broker, version=parts.version, roles=list(self._roles), address=self.address
        )
        subscribers = [
            SubscriberResponse(
                consumer=each.name,
                topic=each.topic.name,
                start_bucket=each.share.start,
                stop_bucket=each.share.stop,
                busy=each.receiver.busy,
            )
            for each in parts.loaders.subscriptions
        ]
        return InfoResponse(
            brokers=[broker],
            subscribers=subscribers,
            degradations=[
                DegradationResponse(type=each.type.value, reason=each.reason) for each in degraded
            ],
            store_problem=parts.degradation.store_problem,
            clock_problem=parts.access.clock.problem,
            **moments(now=parts.clock.now_ms()),
        )
