"""The case `waiting`: the same load on an empty and on a full timeline, and the broker's memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.runtime.service import Closable
from chronoline_bench.broker.stage import ENGINES, MOST_CONSUMERS, BrokerStage, people
from chronoline_bench.broker.targets import Broker, BrokerTarget
from chronoline_bench.harness.passage import Passage
from chronoline_bench.report import Wanted, medians_of
from chronoline_bench.workload import DAY_MS

SAME = Wanted(at_most=1.2)
FLAT = Wanted(at_most=1.1)
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSizes:
    waiting: int
    rounds: int
    steady_s: float
    delay_s: int
    soak_s: float
    """The duration of the memory measurement; 0 skips it."""
    look_every_s: float
    engines: Sequence[str] = ENGINES
    rate: int = 1_000
    """Messages per second."""


def measure_waiting(stage: BrokerStage, sizes: WaitingSizes) -> None:
    for engine in sizes.engines:
        with (
            stage.broker(engine, f"waiting_none_{engine}", alone=True) as empty_broker,
            stage.broker(engine, f"waiting_{engine}", alone=True) as broker,
        ):
            full = broker.open()
            _fill(stage, full, sizes.waiting)
            _measure_lateness(stage, engine, sizes, empty_broker.open(), full)
            if sizes.soak_s:
                _measure_memory(stage, engine, sizes, broker, full)
            stage.session.tally.expect(sizes.waiting, full.count())


def _fill(stage: BrokerStage, target: BrokerTarget, waiting: int) -> None:
    """Adds messages that fall due during the day after tomorrow."""
    start_ms = time.time_ns() // 1_000_000 + 2 * DAY_MS
    with stage.session.show.work("filling", waiting) as advance:
        target.fill(waiting, start_ms, DAY_MS, advance)
    target.waiting = waiting


def _measure_lateness(
    stage: BrokerStage, engine: str, sizes: WaitingSizes, empty: BrokerTarget, full: BrokerTarget
) -> None:
    case = f"{engine}: {sizes.waiting:,} waiting, {sizes.rate:,}/s, {people(MOST_CONSUMERS)}"
    found = stage.in_turn(
        f"{engine}: waiting",
        sizes.rounds,
        {
            "empty": partial(_carry, stage, empty, sizes, sizes.steady_s),
            "full": partial(_carry, stage, full, sizes, sizes.steady_s),
        },
    )
    reference = medians_of([each.steady for each in found["empty"]])
    for name, value in medians_of([each.steady for each in found["full"]]).items():
        wanted = SAME if name == "p99" else None
        beside = (f"with none waiting, {name}", reference[name])
        stage.session.add(case, f"late, {name}", value, "ms", beside=beside, wanted=wanted)


def _measure_memory(
    stage: BrokerStage, engine: str, sizes: WaitingSizes, broker: Broker, full: BrokerTarget
) -> None:
    """Measures memory after the rounds, when one-time allocations are done."""
    with (
        stage.session.show.work(f"{engine}: memory", 1),
        MemoryWatch(broker.pid, sizes.look_every_s) as watch,
    ):
        passage = _carry(stage, full, sizes, sizes.soak_s)
    first_mb, last_mb = thirds(watch.samples_mb)
    case = f"{engine}: {sizes.soak_s:g} s at {sizes.rate:,}/s, {sizes.waiting:,} waiting"
    stage.session.add(
        case,
        f"memory of the broker, last third of {len(watch.samples_mb)} looks",
        last_mb,
        "MB",
        beside=("first third", first_mb),
        wanted=FLAT,
    )
    stage.session.add(case, "late, p99, all the while", passage.steady.p99_ms, "ms")


def _carry(
    stage: BrokerStage, target: BrokerTarget, sizes: WaitingSizes, steady_s: float
) -> Passage:
    return stage.carry(
        target, rate=sizes.rate, steady_s=steady_s, delay_s=sizes.delay_s, consumers=MOST_CONSUMERS
    )


class MemoryWatch(Closable):
    """Samples the memory of a process until `close`."""

    def __init__(self, pid: int, every_s: float) -> None:
        self._process = psutil.Process(pid)
        self._every_s = every_s
        self._stopping = threading.Event()
        self.samples_mb: list[float] = []
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.samples_mb.append(self._process.memory_info().rss / _MB)


def thirds(samples: list[float]) -> tuple[float, float]:
    """Returns the medians of the first and the last third; needs at least one sample."""
    third = max(1, len(samples) // 3)
    return median(samples[:third]), median(samples[-third:])
