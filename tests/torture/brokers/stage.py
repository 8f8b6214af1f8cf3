"""A store with its brokers, producers and consumers, each a process that can be killed and frozen."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from chronoline import AsyncClient
from chronoline.client import TopicSettings
from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline.runtime.child_process import LineProcess, free_ports
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.faketime import FakeTime
from tests.torture.brokers.doors import answer_of, digest
from tests.torture.environment import child_environment
from tests.torture.history import DONE, Recorder

LEASE_S = 2.5
_ROOT = Path(__file__).parents[3]
_LOOK_EVERY_S = 0.02
_PATIENCE_S = 60.0
_REACHED_S = 0.1
SETTINGS = ("patience_ms=1s", "limits.ping_timeout_ms=8s")
_DEDUPE = timedelta(days=1)
"""Longer than any run: no id becomes free again."""
_LIVES = ("live", "gone", "dead")
_ROWS = """
    SELECT t.name, m.topic, m.id, m.life, m.ts, m.due, m.version, m.attempts, m.producer_group,
        m.lock_consumer, {body}, m.key
    FROM {schema}messages m JOIN {schema}topics t ON t.uid = m.topic {bodies}
    WHERE t.dropped_at IS NULL
"""


class Child:
    """A named process, whose starts and ends are in the history. Started again, it gets a new name."""

    def __init__(
        self,
        recorder: Recorder,
        folder: Path,
        name: str,
        consumers: dict[str, str] | None = None,
    ) -> None:
        self.base = name
        self.consumers = consumers or {}
        self.broker = 0
        self.environment: dict[str, str] = {}
        self._recorder = recorder
        self._history = folder
        self._folder = folder / f"{name.split('-', 1)[0]}-logs"
        self._starts = 0
        self.is_up: Callable[[], bool] = self._has_history
        self._process: LineProcess | None = None
        self.stopped = False

    @property
    def process(self) -> str:
        """Its name in the history, since its last start."""
        return f"{self.base}.{self._starts}"

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.is_running

    @property
    def ready(self) -> bool:
        """Whether it runs, and has begun its work."""
        return self.runs and not self.stopped and self.is_up()

    def next_process(self) -> str:
        """The name that it will have after its next start."""
        return f"{self.base}.{self._starts + 1}"

    def start(self, command: Sequence[str]) -> None:
        """Starts it; it ends when its stdin is closed, and so with this process."""
        self.kill()  # it may have ended by itself
        self._starts += 1
        self.stopped = False
        self._note("running")
        self._process = LineProcess(
            command,
            log_path=self._folder / f"{self.base}.log",
            environment={**child_environment(), **self.environment},
            cwd=_ROOT,
            reads_output=False,
        )
        self._process.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._note("dead")

    async def end(self) -> None:
        """Ends it by SIGTERM."""
        if self._process is None:
            return
        self.thaw()
        await asyncio.to_thread(self._process.stop, _PATIENCE_S / 4)
        self.kill()

    async def freeze(self) -> None:
        """Freezes it by SIGSTOP; when this returns the process does not run."""
        if self._process is not None:
            await asyncio.to_thread(self._process.pause)
            self.stopped = True
            self._note("stopped")

    def thaw(self) -> None:
        if self.stopped and self._process is not None:
            self.stopped = False
            self._note("running")
            self._process.resume()

    def _has_history(self) -> bool:
        return (self._history / f"{self.process}.jsonl").exists()

    def _note(self, state: str) -> None:
        consumers = list(self.consumers.values())
        self._recorder.record(
            "life", who=self.process, state=state, consumers=consumers, broker=self.broker
        )


@dataclass
class Stage:
    """One store and its processes. The names of its topics begin with the stage's name."""

    name: str
    folder: Path
    recorder: Recorder
    seed: int
    brokers_wanted: int
    postgres: PostgresServer | None = None
    store: str = ""
    brokers: list[Child] = field(default_factory=list)
    producers: list[Child] = field(default_factory=list)
    consumers: list[Child] = field(default_factory=list)
    ghosts: list[Child] = field(default_factory=list)
    """Frozen processes whose name another has."""
    wall: FakeTime | None = None
    """The clock of the first broker; None if there is no libfaketime."""
    ahead_ms: int = 0
    rate: float = 8.0

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed} {self.name}")
        self.topics = [f"{self.name}-{each}" for each in ("main", "poison", "fleeting")]
        self.opened = self.folder / f"{self.name}.opened"
        self.calm = self.folder / f"{self.name}.calm"
        self.logs = self.folder / f"{self.name}-logs"
        self.logs.mkdir()
        self._ports: list[range] = []
        self._twins = 0

    # Starting

    async def set_up(self) -> None:
        """Starts the store and the brokers."""
        if self.postgres is not None:
            await asyncio.to_thread(self.postgres.start)
            self.store = self.postgres.create_database("torture")
        else:
            self.store = f"sqlite:///{self.logs / 'timeline.db'}"
        with suppress(MissingExtra):
            self.wall = FakeTime(self.logs)
        for number in range(self.brokers_wanted):
            broker = Child(self.recorder, self.folder, f"{self.name}-broker{number}")
            if number == 0 and self.wall is not None:
                broker.environment = self.wall.environment
            self._ports.append(free_ports(2))
            broker.is_up = partial(listens, self.own_address(number))
            self.brokers.append(broker)
            self.start_broker(number)

    async def all_ready(self) -> None:
        """Creates the topics, and waits until all processes have begun to work."""
        for number in range(self.brokers_wanted):
            await self.answering(number)
        for topic in self.topics:
            await self.create_topic(topic)
        self.opened.touch()
        children = (*self.brokers, *self.producers, *self.consumers)
        await self.until(lambda: all(child.ready for child in children), _PATIENCE_S)

    def start_broker(self, number: int) -> None:
        grpc, http = self.addresses(number)
        settings = [part for each in SETTINGS for part in ("--set", each)]
        self.brokers[number].start(
            [
                *(sys.executable, "-m", "chronoline", "up", "--quiet", "--until-eof"),
                *("--data", str(self.logs / f"broker{number}"), "--store", self.store),
                *("--grpc", grpc, "--http", http, *settings),
            ]
        )

    def addresses(self, number: int) -> tuple[str, str]:
        """Returns a broker's addresses for gRPC and HTTP."""
        grpc, http = self._ports[number % self.brokers_wanted]
        return f"127.0.0.1:{grpc}", f"127.0.0.1:{http}"

    def own_address(self, number: int) -> str:
        """Returns the address of a broker's own gRPC."""
        return self.addresses(number)[0]

    def rack_of(self, number: int) -> str:
        """The rack of a broker, and of the consumers whose first broker it is."""
        return ""

    @property
    def advertised(self) -> list[str]:
        """The addresses by which clients know the brokers of a cluster, in the order of their numbers."""
        return []

    async def answering(self, number: int) -> None:
        """Waits until a broker answers; starts it if it has ended."""
        async with AsyncClient(self.own_address(number), timeout=1) as client:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    try:
                        await client.topics()
                    except ChronolineError:
                        if not self.brokers[number].runs:
                            self.start_broker(number)
                        await asyncio.sleep(
                            _LOOK_EVERY_S
                        )  # a broker sends no signal when it is ready
                    else:
                        return

    def add_producer(self, doors: Sequence[str]) -> None:
        number = len(self.producers)
        producer = Child(self.recorder, self.folder, f"{self.name}-producer{number}")
        producer.broker = number
        self.producers.append(producer)
        self.start_producer(producer, doors)

    def start_producer(self, producer: Child, doors: Sequence[str]) -> None:
        given = {"doors": list(doors), "store": self.store, "rate": self.rate}
        self._start_program(producer, "producer", **given)

    def add_consumer(self, **consumers: str) -> None:
        """Adds a process with consumers, each given as `way=name`."""
        number = len(self.consumers)
        consumer = Child(self.recorder, self.folder, f"{self.name}-consumer{number}", consumers)
        consumer.broker = number
        self.consumers.append(consumer)
        self.start_consumer(consumer)

    def start_consumer(self, consumer: Child) -> None:
        self._start_program(
            consumer,
            "consumer",
            lease_s=LEASE_S,
            consumers=dict(consumer.consumers),
            rack=self.rack_of(consumer.broker),
            brokers=self.advertised,
        )

    def add_twin(self, number: int, broker: int) -> Child:
        """Replaces a process by another with the same consumers; returns the old one."""
        old = self.consumers[number]
        self._twins += 1
        name = f"{self.name}-twin{self._twins}"
        twin = Child(self.recorder, self.folder, name, dict(old.consumers))
        twin.broker = broker % self.brokers_wanted
        self.consumers[number] = twin
        self.ghosts.append(old)
        self.start_consumer(twin)
        return old

    def _start_program(self, child: Child, program: str, **given: Any) -> None:
        grpc, http = self.addresses(child.broker)
        common = {
            "folder": str(self.folder),
            "process": child.next_process(),
            "seed": self.seed,
            "opened": str(self.opened),
            "calm": str(self.calm),
            "topics": self.topics,
            "grpc": grpc,
            "http": http,
        }
        module = f"tests.torture.brokers.{program}"
        child.start([sys.executable, "-m", module, json.dumps(common | given)])

    # Topics and clocks

    async def create_topic(self, topic: str) -> None:
        """Creates a topic; retries while the rows of a deleted one of this name are removed."""
        settings = TopicSettings(
            buckets=16,
            window=0.5,
            default_lease=LEASE_S,
            max_attempts=3 if topic == self.topics[1] else 100_000,
            dedupe=_DEDUPE,
        )
        async with AsyncClient(self.addresses(0)[0], timeout=2) as client:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    call = self.recorder.call("create_topic", topic=topic)
                    try:
                        made = await client.create_topic(topic, settings)
                    except ChronolineError as error:
                        answer = answer_of(error)
                        self.recorder.outcome(call, answer.outcome, answer.reason)
                        await asyncio.sleep(0.3)  # nothing signals that a name is free
                    else:
                        self.recorder.outcome(call, DONE, uid=made.uid)
                        return

    def move_clock(self, ahead_ms: int) -> None:
        """Moves the clock of the first broker, and records the range of its offset."""
        if self.wall is not None:
            self.recorder.record("clock", stage=self.name, ahead_ms=[self.ahead_ms, ahead_ms])
            self.wall.move(ahead_ms / 1000)
            self.recorder.record("clock", stage=self.name, ahead_ms=[ahead_ms])
            self.ahead_ms = ahead_ms

    # Ending

    async def mend(self) -> None:
        """Repairs everything: all processes run, with the right clock."""
        if self.postgres is not None:
            self.postgres.resume()
            await asyncio.to_thread(self.postgres.start)
        self.move_clock(0)
        for ghost in self.ghosts:
            ghost.kill()
        self.ghosts.clear()
        for child in (*self.brokers, *self.consumers, *self.producers):
            child.thaw()
        for number in range(len(self.brokers)):
            await self.answering(number)

    async def drain(self, seconds: float) -> None:
        """Waits until everything is consumed, or until the time-out."""
        for producer in self.producers:
            await self.until(lambda producer=producer: not producer.runs, seconds)  # type: ignore[misc]
            producer.kill()
        end = time.monotonic() + seconds
        left: int | None = None
        async with AsyncClient(self.addresses(0)[0], timeout=5) as client:
            while left != 0 and time.monotonic() < end:
                for consumer in self.consumers:
                    if not consumer.runs:
                        self.start_consumer(consumer)
                with suppress(ChronolineError):
                    left = sum([(await client.count(topic)).total for topic in self.topics])
                await asyncio.sleep(0.1)  # nothing signals the last message
        self.recorder.record("drained", stage=self.name, left=left)

    async def until(self, holds: Callable[[], bool], seconds: float) -> None:
        """Waits until a condition holds, or until the time-out."""
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end:
            await asyncio.sleep(_LOOK_EVERY_S)  # the end of a process sends no signal

    async def close(self) -> None:
        """Ends all processes but the store's, and records its rows."""
        for child in (*self.consumers, *self.ghosts, *self.producers):
            child.kill()
        await asyncio.gather(*(broker.end() for broker in self.brokers))
        await asyncio.to_thread(record_rows, self.recorder, self.store)

    def abandon(self) -> None:
        """Kills all processes, in any state."""
        for child in (*self.consumers, *self.ghosts, *self.producers, *self.brokers):
            if child.runs:
                child.kill()
        if self.postgres is not None:
            self.postgres.kill()


def record_rows(recorder: Recorder, store: str) -> None:
    """Records the rows of a store after all processes have ended."""
    for row in _rows(store):
        name, uid, id, life, ts, due, version, attempts, group, holder, body, key = row
        recorder.record(
            "row",
            topic=name,
            topic_uid=uid,
            id=id,
            state=_LIVES[life],
            ts=ts,
            due=due,
            version=version,
            attempts=attempts,
            group=group,
            holder=holder,
            content=digest(body, key),
        )


def _rows(store: str) -> Iterator[Any]:
    if store.startswith("postgresql:"):
        query = _ROWS.format(schema="chronoline.", body="m.body", bodies="")
        with psycopg.connect(store) as connection:
            yield from connection.execute(query)
        return
    query = _ROWS.format(
        schema="",
        body="coalesce(b.body, m.body)",
        bodies="LEFT JOIN bodies b ON m.apart = 1 AND b.no = m.no",
    )
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file:
        yield from file.execute(query)


def listens(address: str) -> bool:
    """Whether a broker accepts connections, and its clients reach it."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(_REACHED_S)
        return probe.connect_ex((host, int(port))) == 0
