"""A process that consumes, by leases, by a `Worker` or over HTTP, and records every delivery and call.

    python -m tests.torture.brokers.consumer '{"process": …}'

It settles messages in every possible way, or not at all, in time or too late.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from chronoline import AsyncClient, Retry, Worker
from chronoline.client import AsyncLease
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.core.errors import ChronolineError, ConsumerReplaced, TopicNotFound
from chronoline.runtime.timestamps import to_ms
from tests.torture.brokers.doors import Answer, HttpDoor, asked, digest, told_answer
from tests.torture.brokers.program import Program, play
from tests.torture.history import DELIVERY, DONE, UNKNOWN

_TIMEOUT_S = 6.0
_PREFETCH = 200
"""High, since brokers go on reserving for a frozen consumer."""
_CONCURRENCY = 20
_LOOK_EVERY_S = 0.05
_REST_S = 0.5
_HTTP_COUNT = 8
_SETTLED_S = 0.3
"""Leases of the broker before may be handed over within this time after a stream moved."""


class Held(Protocol):
    """A leased message, for any door."""

    @property
    def version(self) -> int: ...
    @property
    def until_ms(self) -> int: ...
    @property
    def is_lost(self) -> bool: ...

    async def settle(
        self, op: str, *, delay_s: float = 0.0, consumer: str = "", stale: int = 0
    ) -> Answer:
        """`ack`, `retry`, `release`, `bury` or `extend`."""


class SdkHeld:
    """A message that the SDK delivered."""

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    @property
    def version(self) -> int:
        return self._lease.version

    @property
    def until_ms(self) -> int:
        return to_ms(self._lease.until)

    @property
    def is_lost(self) -> bool:
        return self._lease.is_lost

    async def settle(
        self, op: str, *, delay_s: float = 0.0, consumer: str = "", stale: int = 0
    ) -> Answer:
        lease = self._lease
        ways: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "ack": lease.ack,
            "retry": lambda: lease.retry(delay=delay_s),
            "release": lambda: lease.release(delay=delay_s),
            "bury": lambda: lease.bury("given up"),
            "extend": lambda: lease.extend(delay_s),
        }
        return await asked(ways[op])


class HttpHeld:
    """A message from a poll."""

    def __init__(self, door: HttpDoor, topic: str, consumer: str, told: dict[str, Any]) -> None:
        self._door = door
        self._topic = topic
        self._consumer = consumer
        self._id = told["id"]
        self.version: int = told["version"]
        self.until_ms: int = told["until_ms"]
        self.is_lost = False  # nothing signals it

    async def settle(
        self, op: str, *, delay_s: float = 0.0, consumer: str = "", stale: int = 0
    ) -> Answer:
        """Under the name of another consumer, or under a stale version, the call must be refused."""
        named: dict[str, Any] = {"id": self._id, "version": stale or self.version}
        if op in ("retry", "release", "extend"):
            named["delay_ms"] = max(20, int(delay_s * 1000))
        elif op == "bury":
            named["reason"] = "given up"
        sent = {"consumer": consumer or self._consumer, "leases": [named]}

        async def work() -> Answer:
            told = await self._door.ask("POST", f"/topics/{self._topic}/{op}", json=sent)
            return told_answer(told["outcomes"][0] if "outcomes" in told else told)

        answer = await asked(work)
        if op == "extend" and answer.outcome == DONE:
            assert answer.version is not None
            assert answer.until_ms is not None
            self.version, self.until_ms = answer.version, answer.until_ms
        elif op == "extend" and answer.outcome == UNKNOWN:
            await self._look()
        return answer

    async def _look(self) -> None:
        """Looks whether an extension was made: it is the next version. A poll gets no other notice."""
        path = f"/topics/{self._topic}/messages/{quote(self._id, '')}"
        with suppress(httpx.HTTPError):
            found = await self._door.ask("GET", path)
            mine = found.get("consumer") == self._consumer
            if mine and found["version"] == self.version + 1 and found["status"] == "processing":
                self.version, self.until_ms = found["version"], found["ts_ms"]


class Hand:
    """The work of a consumer, which it records."""

    def __init__(self, program: Program, consumer: str) -> None:
        self.program = program
        self.consumer = consumer
        self.lease_s: float = program.given["lease_s"]
        self.settled_s = _SETTLED_S
        self.chance = random.Random(f"{program.given['seed']} {program.recorder.process}")
        self._recorder = program.recorder
        self._taken = 0
        self._works: set[asyncio.Task[None]] = set()
        self._stream: ConsumerStream | None = None
        self._address, self._moved_s = "", 0.0

    def took(self, **fields: Any) -> str:
        """Records a delivery; returns its name."""
        self._taken += 1
        name = f"{self._recorder.process}/{self.consumer}/{self._taken}"
        self._recorder.record(DELIVERY, delivery=name, consumer=self.consumer, **fields)
        return name

    def took_lease(self, lease: AsyncLease) -> str:
        return self.took(
            door="grpc",
            topic=lease.topic,
            topic_uid=lease.topic_uid,
            id=lease.id,
            version=lease.version,
            due=to_ms(lease.due),
            until=to_ms(lease.until),
            attempts=lease.attempts,
            redelivered=lease.redelivered,
            group=lease.producer_group,
            content=digest(lease.body, lease.key),
            broker=self._broker_of(lease),
        )

    def _broker_of(self, lease: AsyncLease) -> int | None:
        """The number of the broker that delivered a lease, if that is certain."""
        brokers: list[str] = self.program.given.get("brokers", [])
        stream = lease._stream  # a lease does not say where it comes from
        if stream is not self._stream:
            self._stream = stream
            follower = asyncio.create_task(self._follow(stream))
            self._works.add(follower)
            follower.add_done_callback(self._works.discard)
        self._look(stream)
        is_certain = time.monotonic() > self._moved_s + self.settled_s
        return brokers.index(self._address) if is_certain and self._address in brokers else None

    async def _follow(self, stream: ConsumerStream) -> None:
        """Notes when a stream moves to another broker."""
        while stream is self._stream:
            self._look(stream)
            await asyncio.sleep(_LOOK_EVERY_S)  # a move sends no signal

    def _look(self, stream: ConsumerStream) -> None:
        if stream.address != self._address:
            self._address, self._moved_s = stream.address, time.monotonic()

    def begin(self, topic: str, delivery: str, held: Held) -> None:
        """Works on a message concurrently with others."""
        task = asyncio.create_task(self._work(topic, delivery, held))
        self._works.add(task)
        task.add_done_callback(self._works.discard)

    async def settle(self, delivery: str, held: Held, op: str, **given: Any) -> Answer:
        """Records a call, makes it, and records its outcome."""
        call = self._recorder.call(
            op, delivery=delivery, version=held.version, until=held.until_ms, **given
        )
        answer = await held.settle(op, **given)
        self._recorder.outcome(
            call, answer.outcome, answer.reason, version=held.version, until=held.until_ms
        )
        return answer

    def unseen(self, delivery: str, held: Held, op: str) -> None:
        """Records a call of unknown outcome."""
        self._recorder.call(op, delivery=delivery, version=held.version, until=held.until_ms)

    async def linger(self, delivery: str, held: Held, seconds: float) -> bool:
        """Works for a while; true if the lease was lost meanwhile."""
        end = time.monotonic() + seconds
        version = held.version
        while (left_s := end - time.monotonic()) > 0:
            await asyncio.sleep(min(_LOOK_EVERY_S, left_s))
            if held.version != version:
                version = held.version
                self._recorder.record(
                    "renewed", delivery=delivery, version=version, until=held.until_ms
                )
            if held.is_lost:
                self._recorder.record(
                    "lost", delivery=delivery, version=held.version, until=held.until_ms
                )
                return True
        return False

    async def _work(self, topic: str, delivery: str, held: Held) -> None:
        chance, settle = self.chance, self.settle
        if self._is_poison(topic):
            await settle(delivery, held, "retry", delay_s=chance.uniform(0, 0.5))
            return
        await asyncio.sleep(chance.choice((0.0, 0.0, chance.uniform(0, 0.2))))
        if self.program.calm:
            await settle(delivery, held, "ack")
        else:
            await self._settle_somehow(delivery, held)

    def _is_poison(self, topic: str) -> bool:
        """Whether no consumer can handle its messages. In the end it can.

        Brokers serve a consumer that always fails with single messages, further and further apart, so that a
        topic without any other consumer would not be drained.
        """
        return bool(topic == self.program.given["topics"][1]) and not self.program.calm

    async def _settle_somehow(self, delivery: str, held: Held) -> None:
        chance, settle = self.chance, self.settle
        ways = ("ack", "retry", "release", "extend", "late", "never", "bury", "slow", "other")
        match chance.choices(ways, (54, 7, 7, 9, 5, 4, 2, 10, 2))[0]:
            case "ack":
                await settle(delivery, held, "ack")
                if isinstance(held, HttpHeld) and chance.random() < 0.2:
                    await settle(delivery, held, "ack")
            case "retry" | "release" as given_back:
                delay_s = chance.choice((0.0, chance.uniform(0, 1.5)))
                await settle(delivery, held, given_back, delay_s=delay_s)
            case "extend":
                for _ in range(chance.randrange(1, 4)):
                    least = chance.choice((1.0, 1.0, 1.0, 0.8))  # sometimes it shortens the lease
                    longer_s = self.lease_s * chance.uniform(least, 1.5)
                    before = held.version
                    if (await settle(delivery, held, "extend", delay_s=longer_s)).outcome != DONE:
                        break
                    if isinstance(held, HttpHeld):
                        await settle(delivery, held, "ack", stale=before)
                    await self.linger(delivery, held, chance.uniform(0, self.lease_s / 2))
                await settle(delivery, held, "ack")
            case "late":
                await self.linger(delivery, held, self.lease_s * chance.uniform(0.9, 1.3))
                op = chance.choice(("ack", "ack", "retry", "extend"))
                await settle(delivery, held, op, delay_s=1.0)
            case "slow":
                await self.linger(delivery, held, self.lease_s * chance.uniform(0, 0.8))
                await settle(delivery, held, "ack")
            case "bury":
                await settle(delivery, held, "bury")
            case "other":
                if isinstance(held, HttpHeld):
                    await settle(delivery, held, "ack", consumer="nobody")
                await settle(delivery, held, "ack")

    async def handle(self, lease: AsyncLease) -> None:
        """A worker's handler: it may run longer than its lease, which the worker renews."""
        delivery, held, chance = self.took_lease(lease), SdkHeld(lease), self.chance
        calm = self.program.calm
        if self._is_poison(lease.topic) or (not calm and chance.random() < 0.08):
            self.unseen(delivery, held, "retry")
            raise ValueError("a handler that fails")
        if not calm and chance.random() < 0.25:
            await self.linger(delivery, held, chance.uniform(0, 2.5) * self.lease_s)
        if not calm and chance.random() < 0.2:
            self.unseen(delivery, held, "ack")  # the worker acks
        else:
            await self.settle(delivery, held, "ack")


async def by_hand(hand: Hand, topics: list[str]) -> None:
    """Subscribes, again after each interruption; ends when another process takes its name."""
    client = AsyncClient(
        hand.program.given["grpc"], timeout=_TIMEOUT_S, rack=hand.program.given["rack"]
    )
    while True:
        try:
            stream = await client.subscribe(
                topics, consumer=hand.consumer, lease=hand.lease_s, prefetch=_PREFETCH
            )
            try:
                while True:
                    lease = await stream.next()
                    hand.begin(lease.topic, hand.took_lease(lease), SdkHeld(lease))
            finally:
                await client.unsubscribe(stream)
        except ConsumerReplaced:
            hand.program.recorder.record("replaced", consumer=hand.consumer)
            return
        except TopicNotFound:
            await asyncio.sleep(_REST_S)
        except ChronolineError as error:
            hand.program.recorder.record("interrupted", consumer=hand.consumer, why=repr(error))
            await asyncio.sleep(_REST_S)


async def by_worker(hand: Hand, topics: list[str]) -> None:
    """Serves by a `Worker`; ends when another process takes its name."""
    hand.settled_s = hand.lease_s  # leases wait until a handler is free
    while True:
        worker = Worker(
            hand.program.given["grpc"],
            consumer=hand.consumer,
            rack=hand.program.given["rack"],
            concurrency=_CONCURRENCY,
            lease=hand.lease_s,
            retry=Retry(base=0.1, cap=0.5),
        )
        for topic in topics:
            worker.handler(topic)(hand.handle)
        try:
            await worker.serve()
        except ConsumerReplaced:
            hand.program.recorder.record("replaced", consumer=hand.consumer)
            return
        except ChronolineError as error:
            hand.program.recorder.record("interrupted", consumer=hand.consumer, why=repr(error))
            await asyncio.sleep(_REST_S)


async def by_http(hand: Hand, topics: list[str]) -> None:
    """Polls the first topic. At its start it asks for the leases that it held under its name."""
    topic = topics[0]
    door = HttpDoor(hand.program.given["http"], timeout_s=_TIMEOUT_S)
    resume = True
    while True:
        asking = {
            "consumer": hand.consumer,
            "count": _HTTP_COUNT,
            "lease": f"{int(hand.lease_s * 1000)}ms",
            "wait": "2s",
            "resume": resume,
        }
        try:
            told = await door.ask("POST", f"/topics/{topic}/receive", json=asking)
        except httpx.HTTPError:
            await asyncio.sleep(_REST_S)
            continue
        if "messages" not in told:
            await asyncio.sleep(_REST_S)
            continue
        resume = False
        for each in told["messages"]:
            delivery = hand.took(
                door="http",
                topic=topic,
                id=each["id"],
                version=each["version"],
                due=each["due_ms"],
                until=each["until_ms"],
                attempts=each["attempts"],
                redelivered=each["redelivered"],
                group=each["producer_group"],
                content=digest(_bytes(each, "body"), _bytes(each, "key")),
            )
            hand.begin(topic, delivery, HttpHeld(door, topic, hand.consumer, each))


def _bytes(told: dict[str, Any], name: str) -> bytes | None:
    if name in told:
        return str(told[name]).encode()
    encoded = told.get(f"{name}_base64")
    return None if encoded is None else base64.b64decode(encoded)


_WAYS: dict[str, Callable[[Hand, list[str]], Awaitable[None]]] = {
    "hand": by_hand,
    "worker": by_worker,
    "http": by_http,
}


async def main(program: Program) -> None:
    """Runs one consumer for each requested way; one also consumes the topic that is deleted and created."""
    steady, fleeting = program.given["topics"][:2], program.given["topics"][2]
    works = []
    for way, consumer in program.given["consumers"].items():
        topics = [fleeting] if way == "fleeting" else steady
        run = _WAYS["hand" if way == "fleeting" else way]
        works.append(run(Hand(program, consumer), topics))
    await asyncio.gather(*works)


if __name__ == "__main__":
    play(main)
