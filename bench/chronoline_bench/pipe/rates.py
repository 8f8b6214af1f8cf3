"""The cases `rates`, `highest` and `several`: lateness at fixed rates, and the highest sustained rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chronoline_bench.harness.passage import Passage, wall_us
from chronoline_bench.harness.stage import CONTROL
from chronoline_bench.pipe.scene import AnySide, Scene
from chronoline_bench.pipe.stage import POLLING_QUEUE, PipeStage
from chronoline_bench.report import PERCENTILES, Wanted, medians_of

COMPARED_RATE = 1_000
CEILINGS = {
    "p50": Wanted(value_at_most=3),
    "p99": Wanted(value_at_most=20),
    "p99.9": Wanted(value_at_most=50),
}
"""The bounds at the compared rate."""
BESIDE_REFERENCE = Wanted(at_most=1 / 3)
HELD_P999_MS = 500
HELD_FLOOR = Wanted(value_at_least=5_000)
HELD_RATIO = Wanted(at_least=4)
_HIGHEST = "the highest rate that is held"
_SEVERAL = "several pipes"
_TRIES = 2
"""Another process may spoil one try."""
_KEPT_UP = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSizes:
    rounds: int
    rates: tuple[int, ...]
    steady_s: float


def measure_rates(stage: PipeStage, sizes: RateSizes) -> None:
    """Measures the pipe at all rates and the reference at one; they take turns to begin a round."""
    ours: dict[int, list[Passage]] = {rate: [] for rate in sizes.rates}
    theirs: list[Passage] = []
    case = "a steady load"
    steps = sizes.rounds * (len(sizes.rates) + 1)
    with (
        stage.session.show.work("rates", steps) as advance,
        stage.polling_queue("rates_polling_queue") as polling_queue,
        stage.pipe("rates", case) as pipe,
    ):

        def serve_ours() -> None:
            with pipe.serving():
                for rate in sizes.rates:
                    ours[rate].append(stage.steady(pipe, rate, sizes.steady_s))
                    advance(1)

        def serve_theirs() -> None:
            with polling_queue.serving():
                theirs.append(stage.steady(polling_queue, COMPARED_RATE, sizes.steady_s))
                advance(1)

        for number in range(sizes.rounds):
            turns = [serve_ours, serve_theirs]
            for turn in turns if number % 2 == 0 else reversed(turns):
                turn()
    report_rates(stage, ours, theirs)


def report_rates(stage: PipeStage, ours: dict[int, list[Passage]], theirs: list[Passage]) -> None:
    """Adds rows; `theirs` is at the compared rate."""
    for rate, passages in ours.items():
        case = f"at {rate:,}/s"
        control = medians_of([each.control for each in passages])
        for name, value in medians_of([each.steady for each in passages]).items():
            wanted = CEILINGS.get(name) if rate == COMPARED_RATE else None
            beside = (f"{CONTROL}, {name}", control[name])
            stage.session.add(case, f"late, {name}", value, "ms", beside=beside, wanted=wanted)
    if COMPARED_RATE in ours:
        case = f"at {COMPARED_RATE:,}/s, beside {POLLING_QUEUE}"
        reference = medians_of([each.steady for each in theirs])
        for name, value in medians_of([each.steady for each in ours[COMPARED_RATE]]).items():
            wanted = BESIDE_REFERENCE if name == "p99.9" else None
            beside = (POLLING_QUEUE, reference[name])
            stage.session.add(case, f"late, {name}", value, "ms", beside=beside, wanted=wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestSizes:
    steady_s: float
    start: int
    step: int
    reference_start: int
    reference_step: int
    most: int


def measure_highest(stage: PipeStage, sizes: HighestSizes) -> None:
    """Measures the reference, then the pipe. A held rate has 99.9 % of the messages within half a second."""
    with stage.session.show.work("highest rate", 2) as advance:
        with stage.polling_queue("highest_polling_queue") as polling_queue, polling_queue.serving():
            reference = highest_held(
                _holds(stage, polling_queue, sizes.steady_s),
                start=sizes.reference_start,
                step=sizes.reference_step,
                most=sizes.most,
            )
        advance(1)
        with stage.pipe("highest", _HIGHEST) as pipe, pipe.serving():
            found = highest_held(
                _holds(stage, pipe, sizes.steady_s),
                start=sizes.start,
                step=sizes.step,
                most=sizes.most,
            )
        advance(1)
    metric = f"p99.9 at most {HELD_P999_MS} ms late, nothing lost"
    beside = (POLLING_QUEUE, reference)
    stage.session.add(_HIGHEST, metric, found, "messages/s", beside=beside, wanted=HELD_RATIO)
    stage.session.add(_HIGHEST, "the same, as it is", found, "messages/s", wanted=HELD_FLOOR)


def _holds(stage: PipeStage, scene: Scene[AnySide], steady_s: float) -> Callable[[int], bool]:
    def holds(rate: int) -> bool:
        return any(is_held(stage.steady(scene, rate, steady_s), rate) for _ in range(_TRIES))

    return holds


def is_held(passage: Passage, rate: int) -> bool:
    """Whether all messages came in time, and the load reached its rate."""
    return (
        passage.tally.lost == 0
        and passage.steady.p999_ms <= HELD_P999_MS
        and passage.rate >= _KEPT_UP * rate
    )


def highest_held(holds: Callable[[int], bool], *, start: int, step: int, most: int) -> int:
    """Returns the highest rate that is held, to half a step; 0 if none is. Tries `start` first."""
    rate = start
    while rate > 0 and not holds(rate):
        rate -= step
    if rate <= 0:
        return 0
    if rate < start:
        return rate + step // 2 if holds(rate + step // 2) else rate
    while rate + step <= most and holds(rate + step):
        rate += step
    half = rate + step // 2
    return half if half <= most and holds(half) else rate


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralSizes:
    pipes: tuple[int, ...]
    steady_s: float
    overdue: int
    """Messages that are due when they are published: they pass through the pipe as fast as possible."""


def measure_several(stage: PipeStage, sizes: SeveralSizes) -> None:
    """Measures one, two and three pipes on the same topics."""
    first: dict[str, float] = {}
    rows: list[tuple[str, float, str]] = []
    with (
        stage.session.show.work(_SEVERAL, len(sizes.pipes)) as advance,
        stage.pipe("several", _SEVERAL) as scene,
    ):
        for pipes in sizes.pipes:
            with scene.serving(pipes):
                late = stage.steady(scene, COMPARED_RATE, sizes.steady_s).steady
                rows += [
                    (f"late at {COMPARED_RATE:,}/s, {name}", getattr(late, attribute), "ms")
                    for name, attribute in PERCENTILES.items()
                ]
                passage = scene.run(count=sizes.overdue, due_ms=wall_us() // 1_000)
                took_s = (passage.arrivals.latest_us - passage.started_us) / 1_000_000
                metric = f"{sizes.overdue:,} overdue ones, through everything"
                rows.append((metric, sizes.overdue / took_s, "messages/s"))
            for metric, value, unit in rows:
                beside = ("with one pipe", first.setdefault(metric, value))
                stage.session.add(f"{_SEVERAL}: {pipes}", metric, value, unit, beside=beside)
            rows.clear()
            advance(1)
