"""Writers, readers and upkeep of two logs, with the index in SQLite and in PostgreSQL, under faults.

Upkeep sweeps without grace: it sweeps and forgets the objects of frozen or slow writers before their commit.
At the end everything is repaired, the groups read to the end, and the events of the logs are recorded.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg

from chronoline.core.errors import ChronolineError
from chronoline.log import Log
from chronoline.testing.postgres import PostgresServer
from tests.torture.brokers.stage import Child
from tests.torture.history import Recorder
from tests.torture.log.program import HOLD_MS, KEPT, PARTITIONS, Work

Report = Callable[[str], None]

_ROLES = ("writer", "writer", "reader", "reader", "keeper")
_LOOK_EVERY_S = 0.25
_DRAIN_S = 40.0
_READY_S = 60.0
_ROWS = """
    SELECT sum(CASE WHEN refs < 0 AND name < 'once-' THEN 1 ELSE 0 END),
        sum(CASE WHEN refs < 0 AND name >= 'once-' THEN 1 ELSE 0 END)
    FROM {schema}objects
"""


def run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    """Records a history of about `seconds`, and then the events of the logs."""
    recorder = Recorder(folder, "director")
    postgres = PostgresServer(folder / "postgres")
    postgres.start()
    stages = [
        Stage("sqlite", folder, recorder, seed=seed, report=report),
        Stage("postgres", folder, recorder, seed=seed + 1, report=report, postgres=postgres),
    ]
    try:
        asyncio.run(_play(stages, seconds))
    finally:
        for stage in stages:
            stage.abandon()
        postgres.stop()
        recorder.close()


async def _play(stages: list[Stage], seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        for stage in stages:
            group.create_task(stage.play(seconds))


class Stage:
    """One log, its processes, and their faults."""

    def __init__(
        self,
        name: str,
        folder: Path,
        recorder: Recorder,
        *,
        seed: int,
        report: Report,
        postgres: PostgresServer | None = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self._recorder = recorder
        self._seed = seed
        self._chance = random.Random(seed)
        self._tell = report
        self._postgres = postgres
        self._database = postgres.create_database("log") if postgres else ""
        self.url = f"file://{folder}/{name}-log"
        if postgres:
            self.url += f"?index={self._database.replace(':', '%3A').replace('/', '%2F')}"
        (folder / f"{name}-logs").mkdir()
        self._children = [
            Child(recorder, folder, f"{name}-{role}{number}") for number, role in enumerate(_ROLES)
        ]

    async def play(self, seconds: float) -> None:
        work = await asyncio.to_thread(self._open)
        for number in range(len(_ROLES)):
            self._start(number)
        await self._until(lambda: all(child.ready for child in self._children), _READY_S)
        self._report("writers, readers and upkeep work")
        await self._break_things(work, seconds)
        self._report("everything is mended, groups read to the end")
        await self._mend(work)
        await self._drain(work.log)
        for child in self._children:
            await child.end()
        await asyncio.to_thread(self._record_contents, work.log)
        work.log.close()

    def abandon(self) -> None:
        for child in self._children:
            child.kill()

    def _open(self) -> Work:
        work = Work(self._recorder, self.url, self.name, self._seed)
        for topic in ("main", "fleeting", "short"):
            work.log.create_topic(work.topic(topic), partitions=PARTITIONS)
        return work

    def _start(self, number: int) -> None:
        child, role = self._children[number], _ROLES[number]
        given = {
            "folder": str(self._folder),
            "process": child.next_process(),
            "url": self.url,
            "stage": self.name,
            "seed": self._chance.randrange(1 << 30),
            "role": role,
        }
        child.start([sys.executable, "-m", "tests.torture.log.program", json.dumps(given)])

    def _report(self, text: str) -> None:
        self._tell(f"log on {self.name}: {text}")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            await asyncio.sleep(_LOOK_EVERY_S)
        return condition()

    # Faults

    async def _break_things(self, work: Work, seconds: float) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill -9 a writer": lambda: self._kill("writer"),
            "kill -9 a reader": lambda: self._kill("reader"),
            "kill -9 upkeep": lambda: self._kill("keeper"),
            "freeze a writer": lambda: self._freeze("writer", 0.3, 1.0),
            "freeze a reader past its holds": lambda: self._freeze("reader", 1.6, 2.2),
            "freeze upkeep": lambda: self._freeze("keeper", 0.3, 1.0),
            "delete a topic and create it again": lambda: self._delete_topic(work),
            "delete a group": lambda: self._delete_group(work),
        }
        if self._postgres is not None:
            faults["pause PostgreSQL"] = self._pause_postgres
            faults["kill -9 PostgreSQL"] = self._kill_postgres
        end = time.monotonic() + seconds
        deck: list[str] = []
        while time.monotonic() < end:
            if not deck:
                deck = sorted(faults)
                self._chance.shuffle(deck)
            name = deck.pop()
            self._recorder.fault(name, stage=self.name)
            self._report(name)
            await faults[name]()
            await asyncio.to_thread(self._look, work.log)
            self._keep_running()
            await asyncio.sleep(_LOOK_EVERY_S * self._chance.uniform(0.2, 2))

    def _pick(self, role: str) -> int:
        return self._chance.choice([n for n, each in enumerate(_ROLES) if each == role])

    async def _kill(self, role: str) -> None:
        number = self._pick(role)
        self._children[number].kill()
        self._start(number)

    async def _freeze(self, role: str, least_s: float, most_s: float) -> None:
        child = self._children[self._pick(role)]
        await child.freeze()
        await asyncio.sleep(self._chance.uniform(least_s, most_s))
        child.thaw()

    async def _delete_topic(self, work: Work) -> None:
        topic = work.topic("fleeting")
        await asyncio.to_thread(
            work.call, "delete_topic", lambda: work.log.delete_topic(topic), topic=topic
        )
        await self._create_topic(work)

    async def _create_topic(self, work: Work) -> None:
        topic = work.topic("fleeting")
        await asyncio.to_thread(
            work.call,
            "create_topic",
            lambda: bool(work.log.create_topic(topic, partitions=PARTITIONS)),
            topic=topic,
        )

    async def _delete_group(self, work: Work) -> None:
        topic, group = work.topic("main"), "passing"
        await asyncio.to_thread(
            work.call,
            "delete_group",
            lambda: work.log.delete_group(topic, group),
            topic=topic,
            group=group,
        )

    async def _pause_postgres(self) -> None:
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.pause)
        await asyncio.sleep(self._chance.uniform(0.3, 1.5))
        await asyncio.to_thread(self._postgres.resume)

    async def _kill_postgres(self) -> None:
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.to_thread(self._postgres.start)

    def _keep_running(self) -> None:
        """Starts processes that ended because they found no store."""
        for number, child in enumerate(self._children):
            if not child.runs:
                self._start(number)

    async def _mend(self, work: Work) -> None:
        topics = {topic.name for topic in await asyncio.to_thread(work.log.topics)}
        if work.topic("fleeting") not in topics:  # its deletion failed with the store
            await self._create_topic(work)
        for number, (child, role) in enumerate(zip(self._children, _ROLES, strict=True)):
            child.thaw()
            if role in ("writer", "keeper"):
                await child.end()
            elif not child.runs:
                self._start(number)

    # Observations

    def _look(self, log: Log) -> None:
        with suppress(ChronolineError):  # a fault has stopped the store
            record_progress(self._recorder, log, self.name)

    async def _drain(self, log: Log) -> None:
        topics = [f"{self.name}-{name}" for name in ("main", "fleeting")]
        lags: dict[str, int] = {}

        def drained() -> bool:
            for topic in topics:
                groups = log.groups(topic)
                partitions = len(groups) or 1
                lags[topic] = sum(each.lag for each in groups) + (partitions % PARTITIONS)
            return not any(lags.values())

        await self._until(drained, _DRAIN_S)
        for topic in topics:
            self._recorder.record("drained", topic=topic, lag=lags[topic])
        self._look(log)

    def _record_contents(self, log: Log) -> None:
        time.sleep(HOLD_MS / 1000)  # names of the clock's current millisecond are not forgotten
        log.sweep(grace_ms=0)
        self._record_rows()
        record_contents(self._recorder, log, self.name)

    def _record_rows(self) -> None:
        """Records the number of index rows of deleted objects."""
        row: Any
        if self._postgres is not None:
            with psycopg.connect(self._database) as connection:
                row = connection.execute(_ROWS.format(schema="chronoline_log.").encode()).fetchone()
        else:
            path = self._folder / f"{self.name}-log" / "index.db"
            with closing(sqlite3.connect(path)) as connection:
                row = connection.execute(_ROWS.format(schema="")).fetchone()
        gone, keyed = (int(count or 0) for count in row)
        # For each writer that was ever started; a retried number may have two names.
        writers = sum(
            int(child.process.rpartition(".")[2])
            for child, role in zip(self._children, _ROLES, strict=True)
            if role == "writer"
        )
        self._recorder.record(
            "rows", stage=self.name, gone=gone, keyed=keyed, keyed_most=2 * KEPT * writers
        )


def record_progress(recorder: Recorder, log: Log, stage: str) -> None:
    """Records the progress of the groups of the main topic."""
    topic = f"{stage}-main"
    for each in log.groups(topic):
        where = {"group": each.group, "partition": each.partition}
        recorder.record("progress", topic=topic, sequence=each.sequence, **where)


def record_contents(recorder: Recorder, log: Log, stage: str) -> None:
    """Records all events of a log."""
    for name in ("main", "fleeting", "short"):
        topic = f"{stage}-{name}"
        heads = [[head.first_sequence, head.next_sequence] for head in log.heads(topic)]
        events = [
            [event.partition, event.sequence, (event.value or b"").decode()]
            for partition in range(PARTITIONS)
            for event in log.read(topic, partition=partition, follow=False)
        ]
        recorder.record("content", topic=topic, heads=heads, events=events)
