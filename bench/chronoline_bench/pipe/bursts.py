"""The case `bursts`: a burst at the input with far deadlines, and many that fall due at one instant."""

from __future__ import annotations

from dataclasses import dataclass

from chronoline_bench.harness.passage import wall_us
from chronoline_bench.harness.stage import await_count
from chronoline_bench.pipe.scene import QUIET_S, AnySide, Scene
from chronoline_bench.pipe.sides import PipeSide, PollingQueueSide
from chronoline_bench.pipe.stage import POLLING_QUEUE, PipeStage
from chronoline_bench.report import Wanted

STORED_FLOOR = Wanted(value_at_least=10_000)
OUT_CEILING = Wanted(value_at_most=3)
_FAR_MS = 86_400_000
_LEAD_MS = 8_000
"""The time from the last publication to the instant: all messages are stored by then."""
_FILL_LEAD_MS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstSizes:
    burst: int
    reference_burst: int
    instant: int
    instant_rate: int
    """The rate of the publications before the instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """The figures of one side."""

    stored: int
    took_s: float
    out_s: float
    """Seconds from the instant to the last arrival."""

    @property
    def stored_rate(self) -> float:
        return self.stored / self.took_s


def measure_bursts(stage: PipeStage, sizes: BurstSizes) -> None:
    with stage.session.show.work("bursts", 2) as advance:
        with stage.polling_queue("bursts_polling_queue") as polling_queue, polling_queue.serving():
            theirs = burst_theirs(polling_queue, sizes)
        advance(1)
        with stage.pipe("bursts", "bursts") as pipe, pipe.serving():
            ours = burst_ours(pipe, sizes)
        advance(1)
    report_bursts(stage, sizes, ours, theirs)


def burst_ours(scene: Scene[PipeSide], sizes: BurstSizes) -> Bursts:
    stored, took_s = _store(scene, sizes.burst)
    return Bursts(stored=stored, took_s=took_s, out_s=_fire(scene, sizes))


def burst_theirs(scene: Scene[PollingQueueSide], sizes: BurstSizes) -> Bursts:
    stored, took_s = _store(scene, sizes.reference_burst)
    return Bursts(stored=stored, took_s=took_s, out_s=_fire_filled(scene, sizes.instant))


def report_bursts(stage: PipeStage, sizes: BurstSizes, ours: Bursts, theirs: Bursts) -> None:
    stage.session.tally.expect(sizes.burst, ours.stored)
    stage.session.add(
        f"a burst of {sizes.burst:,} with far deadlines",
        "stored, from the first publication to the last row",
        ours.stored_rate,
        "messages/s",
        beside=(f"{POLLING_QUEUE}, {sizes.reference_burst:,}", theirs.stored_rate),
        wanted=STORED_FLOOR,
    )
    stage.session.add(
        f"{sizes.instant:,} due at one instant",
        "all have come within",
        ours.out_s,
        "s",
        beside=(f"{POLLING_QUEUE}, filled by SQL", theirs.out_s),
        wanted=OUT_CEILING,
    )


def _store(scene: Scene[AnySide], count: int) -> tuple[int, float]:
    """Publishes as fast as possible until all rows are stored, or no more come; returns rows and seconds."""
    far_ms = _now_ms() + _FAR_MS
    flight = scene.begin(count=count, due_ms=far_ms)
    await_count(lambda: scene.side.stored(far_ms), count, quiet_s=QUIET_S)
    ended_us = wall_us()
    rows = scene.side.stored(far_ms)
    return rows, (ended_us - int(flight.leave()["started_us"])) / 1_000_000


def _fire(scene: Scene[AnySide], sizes: BurstSizes) -> float:
    """Returns the seconds from the instant to the last arrival."""
    lead_ms = sizes.instant * 1000 // sizes.instant_rate + _LEAD_MS
    due_ms = _now_ms() + lead_ms
    passage = scene.run(count=sizes.instant, rate=sizes.instant_rate, due_ms=due_ms)
    return passage.arrivals.latest_us / 1_000_000 - due_ms / 1000


def _fire_filled(scene: Scene[PollingQueueSide], count: int) -> float:
    """The same for the polling queue, filled by SQL: it would take too long to store them one by one."""
    due_ms = _now_ms() + _FILL_LEAD_MS
    first = scene.stage.reserve(count)
    scene.side.fill(first, count, due_ms)
    due_us = dict.fromkeys(range(first, first + count), due_ms * 1_000)
    return scene.expect(due_us).of(due_us).latest_us / 1_000_000 - due_ms / 1000


def _now_ms() -> int:
    return wall_us() // 1_000
