"""What consumers ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Response
from starlette.types import Receive, Scope, Send

from chronoline.broker.carrier import Move
from chronoline.broker.context import Parts
from chronoline.broker.http.fields import TopicName
from chronoline.broker.http.poller import Pollers
from chronoline.broker.http.requests import (
    AskedAcks,
    AskedBuries,
    AskedBury,
    AskedExtend,
    AskedExtends,
    AskedGiveBack,
    AskedGiveBacks,
    AskedLease,
    AskedReceive,
)
from chronoline.broker.http.responses import (
    DeliveryTold,
    OutcomesTold,
    ReceivedTold,
    moments,
)
from chronoline.broker.http.router import (
    OF_A_CHANGE,
    OF_A_TOPIC,
    WITH_A_BODY,
    new_router,
    problems,
    told,
)
from chronoline.broker.http.slices import Shape, checked, in_slices
from chronoline.broker.http.topic_finder import Finder
from chronoline.broker.limits import check_batch
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MIN_LEASE_MS
from chronoline.core.message import After, Lease, LeasedMessage
from chronoline.core.topic import Topic

_DEFAULT_WAIT_MS = 20_000
_MOST_WAIT_MS = 60_000
_TURNS = 4
"""Of the event loop: so many it takes until someone who went away is known to be gone."""


class Consuming:
    """One method for each route."""

    def __init__(self, parts: Parts, finder: Finder, pollers: Pollers) -> None:
        self._parts = parts
        self._finder = finder
        self._pollers = pollers

    def router(self) -> APIRouter:
        router = new_router("consuming")
        settling = problems(WITH_A_BODY, OF_A_TOPIC, OF_A_CHANGE)
        router.post(
            "/topics/{topic}/receive",
            response_model=ReceivedTold,
            responses={**settling, **problems([HTTPStatus.CONFLICT])},
        )(self.receive)
        for name in ("ack", "extend", "release", "retry", "bury"):
            router.post(
                f"/topics/{{topic}}/{name}", responses=settling, response_model_exclude_none=True
            )(getattr(self, name))
        return router

    async def receive(self, topic: TopicName, asked: AskedReceive) -> Response:
        """Wait for messages that are due, and lease them.

        It is answered as soon as there is one, with what is due at that moment; with an empty list if nothing
        was until `wait` is over. Nothing is handed over before its due, by the broker's clock.
        """
        most = self._parts.limits.credit
        if asked.count > most:
            raise InvalidInput(f"a count of {asked.count}; at most {most} are handed over at once")
        wait_ms = _DEFAULT_WAIT_MS if asked.wait is None else asked.wait
        if wait_ms > _MOST_WAIT_MS:
            raise InvalidInput(f"a wait of {wait_ms} ms; at most {_MOST_WAIT_MS} ms: poll again")
        if asked.lease is not None and asked.lease < MIN_LEASE_MS:
            raise InvalidInput(f"a lease of {asked.lease} ms; at least {MIN_LEASE_MS} are needed")
        return _LongPoll(
            self._parts,
            self._finder,
            self._pollers,
            topic=topic,
            asked=asked,
            wait_s=wait_ms / 1000,
        )

    async def ack(self, topic: TopicName, asked: AskedAcks) -> OutcomesTold:
        """Delete messages that are done with."""
        shaped = await self._checked(AskedLease, asked.leases)
        leases = _leases(asked.consumer, shaped)
        return await told(
            await self._finder.on(
                topic,
                lambda found: self._parts.carrier.ack(found.uid, leases, again=asked.again),
            )
        )

    async def extend(self, topic: TopicName, asked: AskedExtends) -> OutcomesTold:
        """Move the ends of leases. From then on only the new versions count."""
        shaped = await self._checked(AskedExtend, asked.leases)
        leases = _leases(asked.consumer, shaped)

        async def move(found: Topic) -> OutcomesTold:
            usual = After(found.settings.default_lease_ms)
            ends = [usual if each.time is None else each.time for each in shaped]
            moves = list(zip(leases, ends, strict=True))
            outcomes = await self._parts.carrier.move("extend", found.uid, moves, again=asked.again)
            return await told(outcomes, "until")

        return await self._finder.on(topic, move)

    async def release(self, topic: TopicName, asked: AskedGiveBacks) -> OutcomesTold:
        """Give messages back, "not now"; it is no failed attempt."""
        return await self._give_back("release", topic, asked)

    async def retry(self, topic: TopicName, asked: AskedGiveBacks) -> OutcomesTold:
        """Give messages back after a failed attempt."""
        return await self._give_back("retry", topic, asked)

    async def _give_back(self, move: Move, topic: str, asked: AskedGiveBacks) -> OutcomesTold:
        shaped = await self._checked(AskedGiveBack, asked.leases)
        dues = [each.time or 0 for each in shaped]
        moves = list(zip(_leases(asked.consumer, shaped), dues, strict=True))
        outcomes = await self._finder.on(
            topic,
            lambda found: self._parts.carrier.move(move, found.uid, moves, again=asked.again),
        )
        return await told(outcomes, "due")

    async def bury(self, topic: TopicName, asked: AskedBuries) -> OutcomesTold:
        """Give messages up: they are dead letters from now on."""
        shaped = await self._checked(AskedBury, asked.leases)
        reasons = [each.reason for each in shaped]
        buried = list(zip(_leases(asked.consumer, shaped), reasons, strict=True))
        return await told(
            await self._finder.on(
                topic,
                lambda found: self._parts.carrier.bury(found.uid, buried, again=asked.again),
            )
        )

    async def _checked(self, shape: type[Shape], leases: Sequence[Any]) -> list[Shape]:
        check_batch(len(leases), self._parts.limits)
        return await checked(shape, leases, "leases")


def _leases(consumer: str, asked: Sequence[AskedLease]) -> list[Lease]:
    """A lease is named by id, consumer and version; its end is the store's to know."""
    return [Lease(id=each.id, consumer=consumer, version=each.version, until=0) for each in asked]


class _LongPoll(Response):
    """An answer that waits until there is something to say, and knows whether it was said."""

    def __init__(
        self,
        parts: Parts,
        finder: Finder,
        pollers: Pollers,
        *,
        topic: str,
        asked: AskedReceive,
        wait_s: float,
    ) -> None:
        super().__init__(media_type="application/json")
        self._parts = parts
        self._finder = finder
        self._pollers = pollers
        self._topic = topic
        self._asked = asked
        self._wait_s = wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._asked
        with self._parts.metrics.command("receive", ""):
            poll = await self._finder.on(
                self._topic,
                lambda found: self._pollers.begin(
                    found,
                    asked.consumer,
                    count=asked.count,
                    lease_ms=asked.lease or found.settings.default_lease_ms,
                    resume=asked.resume,
                ),
            )
        gone = asyncio.ensure_future(_until_gone(receive))
        gone.add_done_callback(lambda _: poll.wake())
        handed = False
        try:
            came = await self._pollers.wait(poll, self._wait_s)
            told = await self._told(poll.poller.name, came)
            for _ in range(_TURNS):
                await asyncio.sleep(0)  # who has left is noticed now, before the answer
            if not gone.done():
                await Response(told, media_type=self.media_type)(scope, receive, send)
                handed = True
        finally:
            gone.cancel()
            self._pollers.end(poll, handed=handed)

    async def _told(self, consumer: str, came: Sequence[LeasedMessage]) -> str:
        now_ms = self._parts.clock.now_ms()
        received = ReceivedTold(
            consumer=consumer,
            messages=await in_slices(came, lambda each: DeliveryTold.of(each, now_ms)),
            **moments(now=now_ms),
        )
        return received.model_dump_json(exclude_none=True)


async def _until_gone(receive: Receive) -> None:
    """Until the client goes away. What else it may send is of no interest."""
    while (await receive())["type"] != "http.disconnect":
        pass
