"""Routes of administration: health, metrics, status."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from chronoline.broker.backlog import Backlog
from chronoline.broker.cluster_info import BrokerInfo, SubscriberInfo, cluster_info
from chronoline.broker.context import BrokerContext
from chronoline.broker.http.app import new_router, problems
from chronoline.broker.http.requests import RequestPrincipal
from chronoline.broker.http.responses import (
    BrokerResponse,
    DegradationResponse,
    InfoResponse,
    StatusResponse,
    SubscriberResponse,
    moments,
)
from chronoline.core.ranges import BucketRange
from chronoline.core.rights import EVERY_TOPIC, RightKind
from chronoline.runtime.metrics import CONTENT_TYPE

_METRICS_ANSWER = {"description": "In Prometheus' text format.", "content": {"text/plain": {}}}


class AdminRoutes:
    """One method for each route."""

    def __init__(self, parts: BrokerContext, backlog: Backlog) -> None:
        self._parts = parts
        self._backlog = backlog
        self._rendering = asyncio.Lock()

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

    async def metrics(self, principal: RequestPrincipal) -> Response:
        """Show the metrics, which name all topics. Messages are counted at most every ten seconds."""
        principal.check(RightKind.OBSERVE, EVERY_TOPIC)
        await asyncio.gather(self._backlog.refresh(), self._parts.degradation.refresh())
        async with self._rendering:
            text = await asyncio.to_thread(self._parts.metrics.snapshot().text)
        return Response(text, media_type=CONTENT_TYPE)

    async def info(self, principal: RequestPrincipal) -> InfoResponse:
        """Show the brokers, why this one is not ready, and consumers with their topics and buckets."""
        principal.check(RightKind.OBSERVE)
        parts = self._parts
        info = await cluster_info(parts)
        parts.metrics.add("broker_commands_count", ("info", ""))
        return InfoResponse(
            brokers=[_broker(each) for each in info.brokers],
            subscribers=[
                _subscriber(each)
                for each in info.subscribers
                if principal.may(RightKind.OBSERVE, each.topic)
            ],
            degradations=[
                DegradationResponse(type=each.type.value, reason=each.reason)
                for each in info.degradations
            ],
            answered_by=parts.broker,
            store_problem=parts.degradation.store_problem,
            clock_problem=parts.access.clock.problem,
            coordination_problem=info.coordination_problem,
            **moments(now=parts.clock.now_ms()),
        )


def _broker(info: BrokerInfo) -> BrokerResponse:
    record = info.record
    return BrokerResponse(
        id=record.name,
        version=record.version,
        roles=list(record.roles),
        address=record.address,
        rack=record.rack,
        health=info.health.value,
        problems=list(info.problems),
        notices=list(info.notices),
        topics=record.load.topics,
        consumers=record.load.consumers,
        messages_per_s=record.load.messages_per_s,
        load_percent=record.load.core_percent,
        clock_ahead_ms=info.clock_ahead_ms,
    )


def _subscriber(info: SubscriberInfo) -> SubscriberResponse:
    first = next(iter(info.share.own), BucketRange(0, 0))
    return SubscriberResponse(
        consumer=info.consumer,
        topic=info.topic,
        start_bucket=first.start,
        stop_bucket=first.stop,
        busy=info.busy,
        broker=info.broker,
        rack=info.rack,
        own=[(each.start, each.stop) for each in info.share.own],
        backups=[(each.start, each.stop) for each in info.share.backups],
    )
