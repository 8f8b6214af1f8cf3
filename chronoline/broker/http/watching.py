"""For those who look after a node: whether it runs, who is there, and its figures."""

from __future__ import annotations

import asyncio
import logging
import time

from fastapi import APIRouter, Response

from chronoline.broker.counting import Backlog
from chronoline.broker.exposition import CONTENT_TYPE
from chronoline.broker.http.answering import new_router, problems
from chronoline.broker.http.reading import JsonRoute
from chronoline.broker.http.telling import (
    BrokerTold,
    InfoTold,
    StateTold,
    SubscriberTold,
    moments,
)
from chronoline.broker.parts import Parts
from chronoline.core.errors import BrokerUnavailable, ChronolineError, StoreUnavailable

logger = logging.getLogger(__name__)

_ASK_EVERY_S = 0.5
_PATIENCE_S = 2.0
_AWAY = "the store does not answer; the log and /v1/info say more"
_NO_CHANGES = "the store takes no changes: it is full, or others keep it busy; the log says more"
"""For everybody who asks: what the store's driver says may name hosts, and no token is needed here."""
_METRICS_ANSWER = {"description": "In Prometheus' text format.", "content": {"text/plain": {}}}


class Readiness:
    """Whether our clock is right and the store answers; that is asked at most twice a second."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._asked_s = -_ASK_EVERY_S
        self._problem = ""
        self.stopping = False

    async def check(self) -> None:
        """Raises `BrokerUnavailable` or `StoreUnavailable`, with as much of the reason as all may know."""
        if self.stopping:
            raise BrokerUnavailable("the broker is stopping")
        if time.monotonic() - self._asked_s >= _ASK_EVERY_S:
            self._asked_s = time.monotonic()
            problem = await self._ask()
            if problem and not self._problem:
                logger.warning("not ready: %s", problem, extra={"action": "not_ready"})
            self._problem = problem
        if self._problem:
            raise StoreUnavailable(_AWAY)
        if self._parts.access.refusal:
            raise StoreUnavailable(_NO_CHANGES)
        if problem := self._parts.access.clock.problem:
            raise BrokerUnavailable(problem)

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._parts.access.look("ready", lambda store: store.find_topic("-"))
        except TimeoutError:
            return f"the store did not answer within {_PATIENCE_S:g} s"
        except ChronolineError as error:
            return str(error)
        return ""


class Watching:
    """One method for each route."""

    def __init__(
        self, parts: Parts, readiness: Readiness, backlog: Backlog, *, roles: tuple[str, ...]
    ) -> None:
        self._parts = parts
        self._readiness = readiness
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
        await self._readiness.check()
        return StateTold(status="ready")

    async def metrics(self) -> Response:
        """Tell the node's figures. Messages are counted at most every ten seconds."""
        await self._backlog.refresh()
        async with self._rendering:
            text = await asyncio.to_thread(self._parts.metrics.snapshot().text)
        return Response(text, media_type=CONTENT_TYPE)

    async def info(self) -> InfoTold:
        """Tell who is here: the broker, and who is subscribed to what."""
        parts = self._parts
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
            store_problem=parts.access.problem,
            clock_problem=parts.access.clock.problem,
            **moments(now=parts.clock.now_ms()),
        )
