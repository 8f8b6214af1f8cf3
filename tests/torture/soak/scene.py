"""Two brokers with everything on, for a long time, with a fault every minute: nothing may grow.

The brokers share a PostgreSQL and an etcd; one of them serves timers, too. 500 messages a second go to
consumers and to a target, timers pop, schedules fire, work outlasts its leases, metrics are scraped and the
console is followed, all with tokens. In a long run a pipe works on the same PostgreSQL.

The first broker and the pipe run throughout: their faults are those of their servers, and a freeze. The other
broker is killed. Each few seconds the memory, descriptors and threads of each process are recorded, the rows
and the size of the store, and the lateness since the last sample.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import aiohttp
import psycopg

from chronoline.broker.tokens import Tokens
from chronoline.core.lateness import Lateness
from chronoline.core.rights import Rights
from chronoline.runtime.child_process import ChildProcess, free_ports
from chronoline.runtime.process_family import descendants
from chronoline.testing.cluster import BrokerPlan, BrokerProcess, in_parallel
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.pipe.node import PipeProcess
from tests.torture.environment import child_environment
from tests.torture.history import Recorder
from tests.torture.soak.delay_topic import DelayTopicLoad
from tests.torture.soak.judge import END, FLOW, SAMPLE, STORE
from tests.torture.soak.load import Load

Report = Callable[[str], None]

PER_S = 500
PIPE_PER_S = 50
_PIPE_FROM_S = 60.0
"""A run that is not shorter has a pipe, which takes half a minute to start."""
_FAULT_EVERY_S = 60.0
_SAMPLE_EVERY_S = 5.0
_DRAIN_S = 40.0
_REPORT_EVERY = 12
"""Samples between two lines of a report."""
_LEAST_FAULTS, _LEAST_SAMPLES = 3, 30
_MB = 1_000_000
_TOKENS = "tokens.json"
_FILES = {"brokers": "broker-*/**/*", "log": "log/**/*"}
"""The files that count as disk, beside the database."""
_RIGHTS = {
    "sender": "produce",
    "consumer": "consume",
    "operator": "administer produce",
    "observer": "observe",
    "timers": "timers",
}
_ROWS = "SELECT (SELECT count(*) FROM chronoline.messages), pg_database_size(current_database())"


def run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    """Records the samples of about `seconds`, and at the end what was lost."""
    soak = Soak(folder, seed, report, has_pipe=seconds >= _PIPE_FROM_S)
    try:
        asyncio.run(soak.play(seconds))
    finally:
        soak.abandon()


class Soak:
    """The processes, their samples and their faults."""

    def __init__(self, folder: Path, seed: int, report: Report, *, has_pipe: bool) -> None:
        self._folder, self._report = folder, report
        self._chance = random.Random(seed)
        self._recorder = Recorder(folder, "director")
        self._postgres = PostgresServer(folder / "postgres")
        self._etcd = EtcdServer(folder / "etcd")
        self._brokers: list[BrokerProcess] = []
        self._starts: dict[str, int] = {}
        self._store = ""
        self._timers = ""
        self._tokens: dict[str, str] = {}
        self._delay_topic = DelayTopicLoad(folder / "log", per_s=PIPE_PER_S) if has_pipe else None
        self._pipe: PipeProcess | None = None

    def abandon(self) -> None:
        if self._delay_topic is not None:
            self._delay_topic.stop()
        if self._pipe is not None:
            self._pipe.kill()
        for broker in self._brokers:
            broker.kill()
        self._etcd.stop()
        self._postgres.stop()
        self._recorder.close()

    async def play(self, seconds: float) -> None:
        await asyncio.to_thread(self._start)
        self._report("two brokers, their etcd and their PostgreSQL work")
        addresses = [broker.address for broker in self._brokers]
        http = [broker.plan.http for broker in self._brokers]
        async with Load(addresses, self._timers, http, tokens=self._tokens, per_s=PER_S) as load:
            sampling = asyncio.create_task(self._sample_often(load, seconds))
            await self._break_things(seconds)
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
            self._report("everything is mended, what was sent is awaited")
            await asyncio.gather(load.drain(_DRAIN_S), asyncio.to_thread(self._drain_pipe))
            self._record_end(load)

    def _drain_pipe(self) -> None:
        if self._delay_topic is not None:
            self._delay_topic.drain(_DRAIN_S)

    def _record_end(self, load: Load) -> None:
        counts = Counter(load.counts)
        left = load.left() | {"unfired": 0}
        if (piped := self._delay_topic) is not None:
            counts.update(piped=piped.sent, fired=piped.fired, fired_again=piped.again)
            counts["early"] += piped.early
            left["unfired"] = piped.left
        found = {name: counts[name] for name in ("sent", "delivered", "double", "early")}
        more = {name: count for name, count in counts.items() if name not in found}
        self._recorder.record(END, **found, **left, more=more)
        self._report(", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))

    def _start(self) -> None:
        in_parallel([self._etcd, self._postgres])
        self._store = self._postgres.create_database("soak")
        ports = [f"127.0.0.1:{port}" for port in free_ports(5)]
        self._timers = ports[4]
        for number in range(2):
            roles = "overseer,carrier" + ("" if number else ",timers")
            plan = BrokerPlan(
                name=f"broker-{number + 1}",
                grpc=ports[2 * number],
                http=ports[2 * number + 1],
                data=self._folder / f"broker-{number + 1}",
                store=self._store,
                coordination=self._etcd.url("soak"),
                settings=[
                    f"roles={roles}",
                    f"timers={self._timers}",
                    "callbacks.allow=127.0.0.0/8",  # they need tokens
                ],
            )
            log = self._folder / f"{plan.name}.log"
            broker = BrokerProcess(plan, log_path=log, environment=child_environment())
            self._brokers.append(broker)
        self._create_tokens()
        in_parallel(self._brokers)
        if self._delay_topic is not None:
            self._start_pipe(self._delay_topic)

    def _create_tokens(self) -> None:
        """Both nodes know the same tokens."""
        first, *others = [broker.plan.data for broker in self._brokers]
        tokens = Tokens(first / _TOKENS)
        for folder in (first, *others):
            folder.mkdir(parents=True)
        for name, rights in _RIGHTS.items():
            self._tokens[name] = tokens.create(name, Rights.parse(rights.split()))
        for folder in others:
            shutil.copy(first / _TOKENS, folder)

    def _start_pipe(self, load: DelayTopicLoad) -> None:
        load.create()
        settings = {
            "name": "soak-pipe",
            "store": self._store,
            "spark.conf.spark.driver.memory": "512m",
        }
        self._pipe = PipeProcess(settings | load.flags(), self._folder / "pipe.log")
        self._pipe.start()
        self._pipe.await_running()
        load.start()
        self._report("the pipe runs")

    # Samples

    async def _sample_often(self, load: Load, seconds: float) -> None:
        every_s = min(_SAMPLE_EVERY_S, seconds / _LEAST_SAMPLES)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as session:
            number = 0
            while True:
                number += 1
                await self._scrape(session)
                await asyncio.to_thread(self._sample_processes)
                await asyncio.to_thread(self._sample_store)
                self._sample_flow(load, is_shown=number % _REPORT_EVERY == 0)
                load.forget()
                await asyncio.sleep(every_s)

    async def _scrape(self, session: aiohttp.ClientSession) -> None:
        headers = {"authorization": f"Bearer {self._tokens['observer']}"}
        for broker in self._brokers:
            try:
                url = f"http://{broker.plan.http}/metrics"
                async with session.get(url, headers=headers) as answer:
                    answer.raise_for_status()
                    self._recorder.record("scrape", who=broker.name, size=len(await answer.read()))
            except (aiohttp.ClientError, TimeoutError):
                self._recorder.record("scrape", who=broker.name, size=None)

    def _sample_processes(self) -> None:
        for process in (*self._brokers, self._etcd):
            if (pid := process.pid) is not None and process.is_running:
                start = self._starts.get(process.name, 1)
                self._sample(f"{process.name}.{start}", pid)
        self._sample("load", os.getpid())
        if self._pipe is not None and self._pipe.pid is not None:
            java, workers = _spark_family(self._pipe.pid)
            self._sample("pipe", self._pipe.pid)
            self._sample("pipe's Java", *java)
            self._sample("pipe's workers", *workers)

    def _sample(self, who: str, *pids: int) -> None:
        """Of processes together, if there are any."""
        try:
            found = [_figures(pid) for pid in pids]
        except (OSError, KeyError):  # one has just ended
            return
        if found:
            total = {name: sum(each[name] for each in found) for name in found[0]}
            self._recorder.record(SAMPLE, who=who, **total)

    def _sample_store(self) -> None:
        try:
            with psycopg.connect(self._store, connect_timeout=2, autocommit=True) as connection:
                connection.execute("SET statement_timeout = '2s'")
                row = connection.execute(_ROWS).fetchone()
        except psycopg.Error:  # a fault
            return
        assert row is not None
        parts = {
            part: sum(path.stat().st_size for path in self._folder.glob(pattern) if path.is_file())
            for part, pattern in _FILES.items()
        }
        self._recorder.record(
            STORE, rows=row[0], disk_mb=(row[1] + sum(parts.values())) / _MB, parts=parts
        )

    def _sample_flow(self, load: Load, *, is_shown: bool) -> None:
        late = load.lateness()
        if late is not None:
            self._record_flow("messages", load.counts["sent"], late)
            if is_shown:
                self._report(
                    f"sent {load.counts['sent']:,}, late p50 {late.p50_ms:.1f}, p99 {late.p99_ms:.0f} ms"
                )
        if (piped := self._delay_topic) is not None and (late := piped.lateness()) is not None:
            self._record_flow("pipe", piped.sent, late)

    def _record_flow(self, who: str, sent: int, late: Lateness) -> None:
        shown = {"p50_ms": late.p50_ms, "p99_ms": late.p99_ms, "max_ms": late.max_ms}
        self._recorder.record(FLOW, who=who, sent=sent, **shown)

    # Faults

    async def _break_things(self, seconds: float) -> None:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill -9 a broker": self._kill_broker,
            "freeze a broker": partial(self._freeze, self._brokers[0], 1.0),
            "kill -9 PostgreSQL": self._kill_postgres,
            "pause PostgreSQL": partial(self._freeze, self._postgres, 2.0),
            "stop etcd": self._stop_etcd,
        }
        if self._pipe is not None:
            faults["freeze the pipe"] = partial(self._freeze, self._pipe, 2.0)
        begun = time.monotonic()
        every_s = min(_FAULT_EVERY_S, seconds / _LEAST_FAULTS)
        deck: list[str] = []
        # The samples of the last part are calm: what the faults left behind is seen there.
        while (left_s := begun + seconds - time.monotonic()) > every_s / 2:
            await asyncio.sleep(min(every_s / 2, left_s))
            if not deck:
                deck = list(faults)
                self._chance.shuffle(deck)
            name = deck.pop()
            self._recorder.fault(name)
            self._report(name)
            await faults[name]()
            await asyncio.sleep(max(0.0, min(every_s / 2, begun + seconds - time.monotonic())))
        await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))

    async def _kill_broker(self) -> None:
        broker = self._brokers[1]
        broker.kill()
        await asyncio.sleep(self._chance.choice((0.0, 3.0)))
        self._starts[broker.name] = self._starts.get(broker.name, 1) + 1
        await asyncio.to_thread(broker.start)

    async def _freeze(self, process: ChildProcess, seconds: float) -> None:
        await asyncio.to_thread(process.pause)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(process.resume)

    async def _kill_postgres(self) -> None:
        await asyncio.to_thread(self._postgres.kill)
        await asyncio.to_thread(self._postgres.start)

    async def _stop_etcd(self) -> None:
        self._starts["etcd"] = self._starts.get("etcd", 1) + 1
        await asyncio.to_thread(self._etcd.stop)
        await asyncio.sleep(3.0)
        await asyncio.to_thread(self._etcd.start)


def _spark_family(pid: int) -> tuple[list[int], list[int]]:
    """The Java of a pipe, and the Python processes below it."""
    family = descendants(pid)
    java = [each for each in family if _program(each) == "java"]
    return java, [each for each in family if each not in java]


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has just ended
        return ""


def _figures(pid: int) -> dict[str, float]:
    """The memory, the descriptors and the threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "rss_mb": int(lines["VmRSS"].split()[0]) * 1024 / _MB,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(lines["Threads"]),
    }
