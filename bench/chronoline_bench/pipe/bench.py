"""The bench `pipe`: from a Kafka topic to another at the millisecond, beside a queue that polls a table.

Kafka, PostgreSQL, the pipe, the load and the watcher run on this machine, each in processes of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from chronoline_bench.engines.postgres import shared_buffers_mb
from chronoline_bench.pipe.bursts import (
    BurstSizes,
    burst_ours,
    burst_theirs,
    measure_bursts,
    report_bursts,
)
from chronoline_bench.pipe.faults import FaultSizes, measure_faults
from chronoline_bench.pipe.full_timeline import (
    BulkSizes,
    WaitingSizes,
    measure_bulk,
    measure_waiting,
)
from chronoline_bench.pipe.outside import (
    OutsideSizes,
    measure_embedded,
    measure_outside,
    measure_outside_rates,
    measure_partitions,
)
from chronoline_bench.pipe.rates import (
    COMPARED_RATE,
    HighestSizes,
    RateSizes,
    SeveralSizes,
    measure_highest,
    measure_rates,
    measure_several,
    report_rates,
)
from chronoline_bench.pipe.scene import PARTITIONS
from chronoline_bench.pipe.stage import Delays, PipeStage
from chronoline_bench.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    rates: RateSizes
    highest: HighestSizes
    bursts: BurstSizes
    waiting: WaitingSizes
    several: SeveralSizes
    bulk: BulkSizes
    faults: FaultSizes
    outside: OutsideSizes
    delays: Delays = field(default_factory=Delays)


FULL = Sizes(
    rates=RateSizes(rounds=3, rates=(100, 1_000, 5_000), steady_s=12),
    highest=HighestSizes(
        steady_s=8, start=6_000, step=1_000, reference_start=2_000, reference_step=500, most=20_000
    ),
    bursts=BurstSizes(burst=100_000, reference_burst=10_000, instant=20_000, instant_rate=5_000),
    waiting=WaitingSizes(waiting=5_000_000, rounds=3, steady_s=12, forecasts=2),
    several=SeveralSizes(pipes=(1, 2, 3), steady_s=10, overdue=50_000),
    bulk=BulkSizes(rounds=3, messages=400_000),
    faults=FaultSizes(),
    outside=OutsideSizes(seconds=600, reference_s=60),
)
QUICK = Sizes(
    delays=Delays(shortest_ms=3_000, longest_ms=4_000),
    rates=RateSizes(rounds=1, rates=(1_000,), steady_s=4),
    highest=HighestSizes(
        steady_s=3, start=4_000, step=2_000, reference_start=2_000, reference_step=1_000, most=8_000
    ),
    bursts=BurstSizes(burst=20_000, reference_burst=2_000, instant=5_000, instant_rate=5_000),
    waiting=WaitingSizes(waiting=200_000, rounds=1, steady_s=4, forecasts=1),
    several=SeveralSizes(pipes=(1, 2), steady_s=4, overdue=10_000),
    bulk=BulkSizes(rounds=1, messages=50_000),
    faults=FaultSizes(before_s=5, away_s=5, after_s=15, burst=20_000, with_reference=False),
    outside=OutsideSizes(seconds=20, reference_s=5, partitions=(4, 12), partitions_s=10),
)
_ON_A_FULL_TIMELINE = ("waiting", "forecast")
"""The sizes of `waiting` and `forecast`, which share one filled timeline."""


def measure(session: Session) -> None:
    sizes = QUICK if session.quick else FULL
    if session.seconds is not None:
        sizes = replace(sizes, outside=replace(sizes.outside, seconds=session.seconds))
    measure_sizes(session, sizes)


def measure_sizes(session: Session, sizes: Sizes) -> None:
    """Measures the chosen cases in this order; if none is chosen, all, or a selection in a quick run."""
    session.notes += _notes(sizes)
    with PipeStage(session, sizes.delays) as stage:
        if session.quick and not session.cases:
            measure_taste(stage, sizes.rates.steady_s, sizes.bursts)
        else:
            _measure_cases(stage, sizes)
        theirs = stage.peers
    session.notes.append(
        f"of the polling queue's messages {theirs.lost:,} were lost, {theirs.duplicated:,} came twice,"
        f" {theirs.early:,} early; these are not in the counts"
    )


def measure_taste(stage: PipeStage, steady_s: float, bursts: BurstSizes) -> None:
    """Measures one rate and two bursts with one start of each side, since Spark starts slowly."""
    with stage.session.show.work("a taste", 2) as advance:
        with stage.polling_queue("taste_polling_queue") as polling_queue, polling_queue.serving():
            theirs = stage.steady(polling_queue, COMPARED_RATE, steady_s)
            their_bursts = burst_theirs(polling_queue, bursts)
        advance(1)
        with stage.pipe("taste", "a taste") as pipe, pipe.serving():
            ours = stage.steady(pipe, COMPARED_RATE, steady_s)
            our_bursts = burst_ours(pipe, bursts)
        advance(1)
    report_rates(stage, {COMPARED_RATE: [ours]}, [theirs])
    report_bursts(stage, bursts, our_bursts, their_bursts)


def _measure_cases(stage: PipeStage, sizes: Sizes) -> None:
    cases: dict[str, Callable[[], None]] = {
        "rates": lambda: measure_rates(stage, sizes.rates),
        "highest": lambda: measure_highest(stage, sizes.highest),
        "bursts": lambda: measure_bursts(stage, sizes.bursts),
        "several": lambda: measure_several(stage, sizes.several),
        "bulk": lambda: measure_bulk(stage, sizes.bulk),
        "outside": lambda: measure_outside(stage, sizes.outside),
        "outside_rates": lambda: measure_outside_rates(stage, sizes.outside),
        "embedded": lambda: measure_embedded(stage, sizes.outside),
        "partitions": lambda: measure_partitions(stage, sizes.outside),
        "faults": lambda: measure_faults(stage, sizes.faults),
    }
    session = stage.session
    session.measure_cases(cases)
    chosen = session.cases or _ON_A_FULL_TIMELINE
    lateness, forecast = (name in chosen for name in _ON_A_FULL_TIMELINE)
    if lateness or forecast:
        session.measure_case(
            "waiting",
            lambda: measure_waiting(stage, sizes.waiting, lateness=lateness, forecast=forecast),
        )


def _notes(sizes: Sizes) -> tuple[str, ...]:
    delays = sizes.delays
    return (
        f"delays evenly from {delays.shortest_ms / 1000:g} to {delays.longest_ms / 1000:g} s, small bodies,"
        f" {PARTITIONS} partitions; everything runs on the same cores, load and watcher included",
        "late: from the deadline until a consumer that does nothing else has it; from outside of all"
        " messages, else of those due in the steady span of the load, as medians of the rounds",
        "the polling queue: in Python, one insert a message, a poll every 100 ms, no advance",
        f"PostgreSQL's settings are its defaults, but shared_buffers: {shared_buffers_mb()} MB",
    )
