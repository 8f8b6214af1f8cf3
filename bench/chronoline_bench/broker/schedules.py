"""The case `schedules`: many schedules, beside the same messages without schedules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.client.aio import AsyncClient
from chronoline.core.message import NewMessage
from chronoline.core.schedule import CatchUpRule, Recurrence, Schedule
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from chronoline_bench.broker import node
from chronoline_bench.broker.stage import ENGINES, BrokerStage
from chronoline_bench.broker.targets import SETTINGS, Broker
from chronoline_bench.workload import BODY_BYTES

_LEAD_MS = 3_000
"""From the last write until the first message is due: the consumer has its share by then."""
_PUTS = 100
_WRITERS = 8
_BODY = b"x" * BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSizes:
    schedules: int
    every_ms: int
    """Each fires once in this time, and they are spread over it; it is also the time of the measurement."""
    engines: Sequence[str] = ENGINES


@dataclass(frozen=True, slots=True)
class _Served:
    late_ms: list[float]
    core_percent: float
    """The processor time of the broker, in per cent of one core."""


Fill = Callable[[Store, Topic, int, ScheduleSizes], None]
"""Writes the messages, or the schedules of messages, that fall due from a moment on."""


def measure_schedules(stage: BrokerStage, sizes: ScheduleSizes) -> None:
    for engine in sizes.engines:
        # At the same rate, for half of the time.
        half = replace(sizes, schedules=sizes.schedules // 2, every_ms=sizes.every_ms // 2)
        plain = _serve(stage, engine, "messages", half, _fill_with_messages)
        ours = _serve(stage, engine, "schedules", sizes, _fill_with_schedules)
        case = f"{engine}: {sizes.schedules:,} schedules, each every {sizes.every_ms / 1000:g} s"
        for name, value, beside in (
            ("late, p50", median(ours.late_ms), median(plain.late_ms)),
            ("late, p99", _p99(ours.late_ms), _p99(plain.late_ms)),
            ("late, max", max(ours.late_ms), max(plain.late_ms)),
        ):
            stage.session.add(case, name, value, "ms", beside=("the same messages alone", beside))
        stage.session.add(
            case,
            "processor time of the broker",
            ours.core_percent,
            "% of a core",
            beside=("the same messages alone", plain.core_percent),
        )


def _serve(stage: BrokerStage, engine: str, what: str, sizes: ScheduleSizes, fill: Fill) -> _Served:
    database = stage.database(engine, f"{what}_{engine}")
    topic = database.store.create_topic("t", SETTINGS, now_ms=_now_ms())
    with stage.session.show.work(f"{engine}: {what}", 1):
        begin_ms = _now_ms() + _LEAD_MS + 2 * sizes.schedules  # the time to write them
        fill(database.store, topic, begin_ms, sizes)
        with Broker(database, stage.new_agent(node)) as broker:
            got, served = asyncio.run(_consume(broker, begin_ms, sizes))
    stage.session.tally.expect(sizes.schedules, got)
    return served


def _fill_with_messages(store: Store, topic: Topic, begin_ms: int, sizes: ScheduleSizes) -> None:
    messages = [
        NewMessage(id=f"m{number}", due=_due(begin_ms, number, sizes), body=_BODY)
        for number in range(sizes.schedules)
    ]
    for first in range(0, len(messages), 1_000):
        store.create(topic.uid, messages[first : first + 1_000], now_ms=_now_ms())


def _fill_with_schedules(store: Store, topic: Topic, begin_ms: int, sizes: ScheduleSizes) -> None:
    def put(number: int) -> None:
        first_ms = _due(begin_ms, number, sizes)
        schedule = Schedule(
            name=f"s{number}",
            topic_uid=topic.uid,
            recurrence=Recurrence(every_ms=sizes.every_ms, start_ms=first_ms),
            catch_up=CatchUpRule.NONE,
            body=_BODY,
            next_ms=first_ms,
        )
        store.put_schedule(schedule, now_ms=_now_ms())

    numbers = range(sizes.schedules)
    if store.capabilities.concurrent_writers:
        with ThreadPoolExecutor(_WRITERS) as threads:
            list(threads.map(put, numbers))
        return
    for first in range(0, sizes.schedules, _PUTS):
        works = [lambda number=number: put(number) for number in numbers[first : first + _PUTS]]
        for done in store.together(works):
            if isinstance(done, Exception):
                raise done


def _due(begin_ms: int, number: int, sizes: ScheduleSizes) -> int:
    return begin_ms + number * sizes.every_ms // sizes.schedules


async def _consume(broker: Broker, begin_ms: int, sizes: ScheduleSizes) -> tuple[int, _Served]:
    """The messages of the time of the measurement: their number, their lateness, and the broker's work."""
    late_ms: list[float] = []
    end_ms = begin_ms + sizes.every_ms
    process = psutil.Process(broker.pid)

    async def consume(client: AsyncClient) -> None:
        async for lease in client.consume("t", prefetch=1_000):
            await lease.ack()
            due_ms = round(lease.due.timestamp() * 1000)
            if begin_ms <= due_ms < end_ms:
                late_ms.append(lease.late_ms)
            if len(late_ms) >= sizes.schedules:
                return

    async with AsyncClient(broker.address) as client:
        consuming = asyncio.create_task(consume(client))
        await asyncio.sleep((begin_ms - _now_ms()) / 1000)
        busy_s = _busy_s(process)
        await asyncio.sleep((end_ms - _now_ms()) / 1000)
        busy_s = _busy_s(process) - busy_s
        async with asyncio.timeout(60):
            await consuming
    return len(late_ms), _Served(late_ms, 100_000 * busy_s / sizes.every_ms)


def _busy_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
