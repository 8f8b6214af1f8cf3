"""Routes of consumers: receive messages, and settle their leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from starlette.types import Receive, Scope, Send

from chronoline.broker.carrier import Move
from chronoline.broker.context import Parts
from chronoline.broker.http.app import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    new_router,
    problems,
)
from chronoline.broker.http.poller import Pollers
from chronoline.broker.http.requests import (
    AckRequest,
    BuryRequest,
    ExtendRequest,
    GiveBackRequest,
    LeaseBurial,
    LeaseExtension,
    LeaseRef,
    LeaseReturn,
    ReceiveRequest,
    Schema,
    TopicName,
    checked,
    in_slices,
)
from chronoline.broker.http.responses import (
    DeliveryResponse,
    OutcomesResponse,
    ReceiveResponse,
    moments,
    outcomes_response,
)
from chronoline.broker.limits import check_batch
from chronoline.broker.topics import TopicsByName
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MIN_LEASE_MS
from chronoline.core.message import After, Lease, LeasedMessage
from chronoline.core.topic import Topic

_DEFAULT_WAIT_MS = 20_000
_MOST_WAIT_MS = 60_000
_TURNS = 4
"""Turns of the event loop after which a client that has gone away is known to be gone."""


class ConsumerRoutes:
    """One method for each route."""

    def __init__(self, parts: Parts, topics: TopicsByName, pollers: Pollers) -> None:
        self._parts = parts
        self._topics = topics
        self._pollers = pollers

    def router(self) -> APIRouter:
        router = new_router("consumers")
        settling = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        router.post(
            "/topics/{topic}/receive",
            response_model=ReceiveResponse,
            responses={**settling, **problems([HTTPStatus.CONFLICT])},
        )(self.receive)
        for name in ("ack", "extend", "release", "retry", "bury"):
            router.post(f"/topics/{{topic}}/{name}", responses=settling)(getattr(self, name))
        return router

    async def receive(self, topic: TopicName, request: ReceiveRequest) -> Response:
        """Wait for messages that are due, and lease them.

        It is answered as soon as there is one, with what is due at that moment; with an empty list if nothing
        was until `wait` is over. Nothing is handed over before its due, by the broker's clock.
        """
        most = self._parts.limits.credit
        if request.count > most:
            raise InvalidInput(
                f"a count of {request.count}; at most {most} are handed over at once"
            )
        wait_ms = _DEFAULT_WAIT_MS if request.wait is None else request.wait
        if wait_ms > _MOST_WAIT_MS:
            raise InvalidInput(f"a wait of {wait_ms} ms; at most {_MOST_WAIT_MS} ms: poll again")
        if request.lease is not None and request.lease < MIN_LEASE_MS:
            raise InvalidInput(f"a lease of {request.lease} ms; at least {MIN_LEASE_MS} are needed")
        return _LongPoll(
            self._parts,
            self._topics,
            self._pollers,
            topic=topic,
            request=request,
            wait_s=wait_ms / 1000,
        )

    async def ack(self, topic: TopicName, request: AckRequest) -> OutcomesResponse:
        """Delete messages that are done."""
        items = await self._checked(LeaseRef, request.leases)
        leases = _leases(request.consumer, items)
        return await outcomes_response(
            await self._topics.on(
                topic,
                lambda found: self._parts.carrier.ack(found.uid, leases, again=request.again),
            )
        )

    async def extend(self, topic: TopicName, request: ExtendRequest) -> OutcomesResponse:
        """Move the ends of leases. From then on only the new versions count."""
        items = await self._checked(LeaseExtension, request.leases)
        leases = _leases(request.consumer, items)

        async def move(found: Topic) -> OutcomesResponse:
            usual = After(found.settings.default_lease_ms)
            ends = [usual if each.time is None else each.time for each in items]
            moves = list(zip(leases, ends, strict=True))
            outcomes = await self._parts.carrier.move(
                "extend", found.uid, moves, again=request.again
            )
            return await outcomes_response(outcomes, "until")

        return await self._topics.on(topic, move)

    async def release(self, topic: TopicName, request: GiveBackRequest) -> OutcomesResponse:
        """Give messages back, "not now"; it is no failed attempt."""
        return await self._give_back("release", topic, request)

    async def retry(self, topic: TopicName, request: GiveBackRequest) -> OutcomesResponse:
        """Give messages back after a failed attempt."""
        return await self._give_back("retry", topic, request)

    async def _give_back(
        self, move: Move, topic: str, request: GiveBackRequest
    ) -> OutcomesResponse:
        items = await self._checked(LeaseReturn, request.leases)
        dues = [each.time or 0 for each in items]
        moves = list(zip(_leases(request.consumer, items), dues, strict=True))
        outcomes = await self._topics.on(
            topic,
            lambda found: self._parts.carrier.move(move, found.uid, moves, again=request.again),
        )
        return await outcomes_response(outcomes, "due")

    async def bury(self, topic: TopicName, request: BuryRequest) -> OutcomesResponse:
        """Give messages up: they become dead letters."""
        items = await self._checked(LeaseBurial, request.leases)
        reasons = [each.reason for each in items]
        buried = list(zip(_leases(request.consumer, items), reasons, strict=True))
        return await outcomes_response(
            await self._topics.on(
                topic,
                lambda found: self._parts.carrier.bury(found.uid, buried, again=request.again),
            )
        )

    async def _checked(self, schema: type[Schema], leases: Sequence[Any]) -> list[Schema]:
        check_batch(len(leases), self._parts.limits)
        return await checked(schema, leases, "leases")


def _leases(consumer: str, refs: Sequence[LeaseRef]) -> list[Lease]:
    """The leases that these refs name. The store knows when they end."""
    return [Lease(id=each.id, consumer=consumer, version=each.version, until=0) for each in refs]


class _LongPoll(Response):
    """A response that waits for messages, and knows whether it was sent."""

    def __init__(
        self,
        parts: Parts,
        topics: TopicsByName,
        pollers: Pollers,
        *,
        topic: str,
        request: ReceiveRequest,
        wait_s: float,
    ) -> None:
        super().__init__(media_type="application/json")
        self._parts = parts
        self._topics = topics
        self._pollers = pollers
        self._topic = topic
        self._request = request
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = self._request
        with self._parts.metrics.command("receive", ""):
            poll = await self._topics.on(
                self._topic,
                lambda found: self._pollers.begin(
                    found,
                    request.consumer,
                    count=request.count,
                    lease_ms=request.lease or found.settings.default_lease_ms,
                    resume=request.resume,
                ),
            )
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: poll.wake())
        handed = False
        try:
            came = await self._pollers.wait(poll, self._wait_s)
            content = await self._content(poll.poller.name, came)
            for _ in range(_TURNS):
                await asyncio.sleep(0)  # a client that has left is noticed now, before the answer
            if not gone.done():
                await Response(content, media_type=self.media_type)(scope, receive, send)
                handed = True
        finally:
            gone.cancel()
            self._pollers.end(poll, handed=handed)

    async def _content(self, consumer: str, came: Sequence[LeasedMessage]) -> str:
        now_ms = self._parts.clock.now_ms()
        received = ReceiveResponse(
            consumer=consumer,
            messages=await in_slices(came, lambda each: DeliveryResponse.of(each, now_ms)),
            **moments(now=now_ms),
        )
        return received.model_dump_json(exclude_none=True)


async def _until_gone(receive: Receive) -> None:
    """Return when the client disconnects; whatever else it sends is ignored."""
    while (await receive())["type"] != "http.disconnect":
        pass
