"""Producers, consumers and brokers on PostgreSQL and on SQLite, under faults in turn.

Two brokers share a PostgreSQL, one serves a SQLite file, both at the same time. Faults come in random order;
each kind comes once before any comes again. At the end everything is repaired, consumers drain the topics,
and the rows that are left in the stores are recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from chronoline import AsyncClient
from chronoline.client import Outcomes
from chronoline.core.errors import ChronolineError
from chronoline.testing.postgres import PostgresServer
from tests.torture.brokers.doors import Answer, answer_of, answer_to
from tests.torture.brokers.stage import LEASE_S, Child, Stage
from tests.torture.history import DONE, Recorder

Report = Callable[[str], None]
Begins = Callable[[], None]
Fault = Callable[[Begins], Awaitable[None]]

_WARM_UP_S = 1.0
_PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.3
_TWIN_S = 10.0
"""A twin that has not started by then is ignored."""
_STALL_S = 1.5
"""Longer than the time-out of brokers for their store."""
# On SQLite there is no library user: the broker would wait for its locks by `time.sleep`, which fails under
# libfaketime.
_DOORS = {
    "postgres": (("grpc", "http", "store"),),
    "sqlite": (("grpc", "http"),),
    "cluster": (("grpc", "http"),),
}


def run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    """Records a history of about `seconds`, and of the rows that are left."""
    recorder = Recorder(folder, "director")
    postgres = PostgresServer(folder / "postgres")
    stages = [
        Stage("postgres", folder, recorder, seed, brokers_wanted=2, postgres=postgres),
        Stage("sqlite", folder, recorder, seed, brokers_wanted=1),
    ]
    try:
        asyncio.run(_play(stages, seconds, report))
    finally:
        for stage in stages:
            stage.abandon()
        recorder.close()


async def _play(stages: list[Stage], seconds: float, report: Report) -> None:
    async with asyncio.TaskGroup() as group:
        for stage in stages:
            group.create_task(Director(stage, report).play(seconds))


class NotNow(Exception):
    """The fault has no target at the moment."""


class Director:
    """Breaks the processes of one stage, and repairs them."""

    together_s = _STALL_S
    """The time for which a consumer and its twin both run."""
    drain_s = 30.0
    """The longest time in which consumers drain the topics."""
    wanted_faults: frozenset[str] = frozenset()
    """A run goes on until it has had these."""

    def __init__(self, stage: Stage, report: Report) -> None:
        self._stage = stage
        self._chance = stage.chance
        self._tell = report
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        self._begun: set[str] = set()
        self._postponed: list[tuple[str, Fault]] = []
        self._errors: list[BaseException] = []

    async def play(self, seconds: float) -> None:
        stage = self._stage
        await stage.set_up()
        for doors in _DOORS[stage.name]:
            stage.add_producer(doors)
        self._add_consumers()
        await stage.all_ready()
        self._report("brokers, producers and consumers work")
        await asyncio.sleep(_WARM_UP_S)
        await self._break_things(seconds)
        stage.recorder.record("calm", stage=stage.name)
        stage.calm.touch()
        await stage.mend()
        self._report("everything is mended, consumers drain the topics")
        await stage.drain(self.drain_s)
        await stage.close()

    def _add_consumers(self) -> None:
        stage = self._stage
        if stage.postgres is not None:
            stage.add_consumer(hand="ada", fleeting="bob")
            stage.add_consumer(worker="cleo", http="dan")
        else:
            stage.add_consumer(hand="eve", http="fay", worker="gus", fleeting="hal")

    def _deck(self, faults: dict[str, Fault]) -> list[tuple[str, Fault]]:
        """All faults in a random order; the last comes first."""
        deck = list(faults.items())
        self._chance.shuffle(deck)
        return deck

    async def _break_things(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        deck: list[tuple[str, Fault]] = []
        faults = self._faults()
        every_s = min(1.5, max(0.6, seconds / max(1, len(faults))))
        while time.monotonic() < end or self._lacks_faults(end):
            if not deck:
                deck = self._deck(faults)
            deck += self._postponed
            self._postponed.clear()
            if deck:
                name, fault = deck.pop()
                task = asyncio.create_task(self._bring_about(name, fault))
                self._under_way.add(task)
                task.add_done_callback(self._ended)
            await asyncio.sleep(every_s * self._chance.uniform(0.5, 1.5))
            self._keep_running()
        while self._under_way:
            await asyncio.wait(self._under_way, timeout=_LOOK_EVERY_S)
            self._keep_running()
        for error in self._errors:
            raise error

    def _lacks_faults(self, end: float) -> bool:
        lacking = (self.wanted_faults & self._faults().keys()) - self._begun
        return bool(lacking) and time.monotonic() < end + _PATIENCE_S

    async def _bring_about(self, name: str, fault: Fault) -> None:
        try:
            await fault(lambda: self._begins(name))
        except NotNow:
            self._report(f"{name}: not now")
            if name in self.wanted_faults:
                self._postponed.append((name, fault))

    def _report(self, text: str) -> None:
        self._tell(f"{self._stage.name}: {text}")

    def _begins(self, name: str) -> None:
        self._begun.add(name)
        self._stage.recorder.fault(name, stage=self._stage.name)
        self._report(name)

    def _pick(self, children: list[Child]) -> int:
        """Returns the place of a working process; starting ones are left alone."""
        ready = [number for number, child in enumerate(children) if child.ready]
        if not ready:
            raise NotNow
        return self._chance.choice(ready)

    @contextmanager
    def _alone(self, what: str) -> Iterator[None]:
        """One fault at a time."""
        if what in self._busy:
            raise NotNow
        self._busy.add(what)
        try:
            yield
        finally:
            self._busy.discard(what)

    def _ended(self, fault: asyncio.Task[None]) -> None:
        self._under_way.discard(fault)
        if not fault.cancelled() and (error := fault.exception()) is not None:
            self._errors.append(error)

    def _faults(self) -> dict[str, Fault]:
        faults: dict[str, Fault] = {
            "kill -9 a broker": self._kill_broker,
            "freeze a broker": self._freeze_broker,
            "restart a broker": self._restart_broker,
            "kill -9 a consumer, same name": partial(self._kill_consumer, same_name=True),
            "kill -9 a consumer, new name": partial(self._kill_consumer, same_name=False),
            "freeze a consumer": self._freeze_consumer,
            "twin at the same broker": partial(self._twin, other_broker=False),
            "kill -9 a producer": self._kill_producer,
            "drop a topic and create it again": self._drop_topic,
            "redrive dead letters": self._redrive,
        }
        if self._stage.wall is not None:
            within, beyond = (300, 800), (3_000, 10_000)
            faults["clock within the bound"] = partial(
                self._move_clock, least_ms=within[0], most_ms=within[1]
            )
            faults["clock beyond the bound"] = partial(
                self._move_clock, least_ms=beyond[0], most_ms=beyond[1]
            )
        if self._stage.postgres is not None:
            faults["twin at another broker"] = partial(self._twin, other_broker=True)
            faults["twin at another broker, and PostgreSQL stalls"] = partial(
                self._twin, other_broker=True, pause=True
            )
            faults["pause PostgreSQL"] = self._pause_postgres
            faults["kill -9 PostgreSQL"] = self._kill_postgres
        return faults

    def _keep_running(self) -> None:
        """Starts processes that ended: a killed producer, a replaced consumer."""
        stage = self._stage
        for consumer in stage.consumers:
            if not consumer.runs:
                stage.start_consumer(consumer)
        for producer, doors in zip(stage.producers, _DOORS[stage.name], strict=True):
            if not producer.runs:
                stage.start_producer(producer, doors)
        for number, broker in enumerate(stage.brokers):
            if not broker.runs and broker.base not in self._busy:
                stage.start_broker(number)

    # Faults: each chooses its target, records its beginning, breaks the target, and repairs it

    async def _kill_broker(self, begins: Begins) -> None:
        number = self._pick(self._stage.brokers)
        broker = self._stage.brokers[number]
        with self._alone(broker.base):
            begins()
            broker.kill()
            await asyncio.sleep(self._chance.choice((0, 0.3, 1)))
            self._stage.start_broker(number)

    async def _restart_broker(self, begins: Begins) -> None:
        number = self._pick(self._stage.brokers)
        broker = self._stage.brokers[number]
        with self._alone(broker.base):
            begins()
            await broker.end()
            self._stage.start_broker(number)

    async def _freeze_broker(self, begins: Begins) -> None:
        broker = self._stage.brokers[self._pick(self._stage.brokers)]
        with self._alone(broker.base):
            begins()
            await broker.freeze()
            await asyncio.sleep(self._chance.choice((0.3, 1, 2)))
            broker.thaw()

    async def _kill_consumer(self, begins: Begins, *, same_name: bool) -> None:
        consumer = self._stage.consumers[self._pick(self._stage.consumers)]
        begins()
        consumer.kill()
        if not same_name:
            consumer.consumers = {
                way: f"{name.split('~')[0]}~{self._chance.randrange(10_000)}"
                for way, name in consumer.consumers.items()
            }  # `_keep_running` starts it

    async def _freeze_consumer(self, begins: Begins) -> None:
        consumer = self._stage.consumers[self._pick(self._stage.consumers)]
        begins()
        await consumer.freeze()
        await asyncio.sleep(LEASE_S * self._chance.choice((0.2, 0.6, 1.2)))
        consumer.thaw()

    async def _twin(self, begins: Begins, *, other_broker: bool, pause: bool = False) -> None:
        """Freezes a consumer while its twin works, and perhaps stalls the store; then resumes the first."""
        with self._alone("twin"):
            number = self._pick(self._stage.consumers)
            if pause:
                number = 0  # the consumer with leases, for which its broker goes on reserving
                if not self._stage.consumers[0].ready:
                    raise NotNow
            begins()
            await self._stage.consumers[number].freeze()
            broker = self._stage.consumers[number].broker + other_broker
            ghost = self._stage.add_twin(number, broker)
            twin = self._stage.consumers[number]
            await self._stage.until(lambda: twin.ready, _TWIN_S)
            await asyncio.sleep(self._chance.choice((0.5, 1.5)))
            if pause:
                await self._pause_postgres(lambda: None, _STALL_S)
                await asyncio.sleep(_STALL_S)
            ghost.thaw()
            await asyncio.sleep(self.together_s)
            ghost.kill()
            self._stage.ghosts.remove(ghost)

    async def _kill_producer(self, begins: Begins) -> None:
        producer = self._stage.producers[self._pick(self._stage.producers)]
        begins()
        producer.kill()

    async def _pause_postgres(self, begins: Begins, seconds: float | None = None) -> None:
        postgres = self._stage.postgres
        assert postgres is not None
        with self._alone("postgres"):
            begins()
            await asyncio.to_thread(postgres.pause)
            await asyncio.sleep(seconds or self._chance.choice((0.5, 1.5, 2.5)))
            await asyncio.to_thread(postgres.resume)

    async def _kill_postgres(self, begins: Begins) -> None:
        postgres = self._stage.postgres
        assert postgres is not None
        with self._alone("postgres"):
            begins()
            await asyncio.to_thread(postgres.kill)
            await asyncio.sleep(self._chance.choice((0, 1)))
            await asyncio.to_thread(postgres.start)

    async def _move_clock(self, begins: Begins, least_ms: int, most_ms: int) -> None:
        with self._alone("clock"):
            begins()
            ahead_ms = self._chance.randrange(least_ms, most_ms) * self._chance.choice((-1, 1))
            self._stage.move_clock(ahead_ms)
            await asyncio.sleep(self._chance.choice((1, 2)))
            self._stage.move_clock(0)

    async def _drop_topic(self, begins: Begins) -> None:
        topic, recorder = self._stage.topics[2], self._stage.recorder
        with self._alone("fleeting"):
            async with self._client() as client:
                begins()
                call = recorder.call("drop_topic", topic=topic)
                try:
                    await client.delete_topic(topic)
                except ChronolineError as error:
                    answer = answer_of(error)
                else:
                    answer = Answer(DONE)
                recorder.outcome(call, answer.outcome, answer.reason)
            await self._stage.create_topic(topic)

    async def _redrive(self, begins: Begins) -> None:
        """Redrives some dead letters, and discards others."""
        async with self._client() as client:
            begins()
            for topic in self._stage.topics[:2]:
                try:
                    letters = await client.dead_letters(topic, limit=100)
                except ChronolineError:
                    continue
                ids = [letter.message.id for letter in letters]
                self._chance.shuffle(ids)
                half = len(ids) // 2
                await self._of_letters("redrive", topic, ids[:half], client.redrive)
                await self._of_letters("discard", topic, ids[half : half + 3], client.discard)

    async def _of_letters(
        self,
        op: str,
        topic: str,
        ids: list[str],
        work: Callable[[str, list[str]], Awaitable[Outcomes]],
    ) -> None:
        recorder = self._stage.recorder
        calls = [recorder.call(op, topic=topic, id=id) for id in ids]
        try:
            answers = [answer_to(each) for each in await work(topic, ids)]
        except ChronolineError as error:
            answers = [answer_of(error)] * len(ids)
        for call, answer in zip(calls, answers, strict=True):
            recorder.outcome(call, answer.outcome, answer.reason, version=answer.version)

    def _client(self) -> AsyncClient:
        number = self._pick(self._stage.brokers)
        return AsyncClient(self._stage.addresses(number)[0], timeout=5)
