"""The case `lateness`: fixed rates, beside beanstalkd and the hand-written queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from chronoline_bench.broker.stage import BEANSTALKD, ENGINES, TABLE, BrokerStage, people
from chronoline_bench.broker.targets import Target
from chronoline_bench.harness.passage import Passage
from chronoline_bench.harness.stage import CONTROL
from chronoline_bench.report import Wanted, medians_of

OVER_MS = 1.0
"""The allowed excess over the reference."""
BEHIND_MS = 100.0
"""The queue grows if half of the messages are later than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessSizes:
    rounds: int
    loads: tuple[tuple[int, int], ...]
    """Pairs of messages per second and consumers."""
    steady_s: float
    delay_s: int
    """Whole seconds, the unit of beanstalkd's delays."""
    with_table: bool = True


def measure_lateness(stage: BrokerStage, sizes: LatenessSizes) -> None:
    """Measures each load on all systems in turn, each time on a new topic, tube or table."""
    with ExitStack() as opened:
        places = places_of(stage, opened, "lateness", with_table=sizes.with_table)
        for rate, consumers in sizes.loads:
            found = stage.in_turn(
                f"late at {rate:,}/s, {people(consumers)}",
                sizes.rounds,
                {
                    name: partial(_carry, stage, place, sizes, rate, consumers)
                    for name, place in places.items()
                },
            )
            report_lateness(stage, found, rate, consumers)


def places_of(
    stage: BrokerStage, opened: ExitStack, name: str, *, with_table: bool = True
) -> dict[str, Callable[[], Target]]:
    """Opens all systems, and returns for each how to open a new topic, tube or table in it."""
    places: dict[str, Callable[[], Target]] = {}
    for engine in ENGINES:
        places[engine] = opened.enter_context(stage.broker(engine, f"{name}_{engine}")).open
    new_tube = opened.enter_context(stage.tubes(f"{name}_beanstalkd"))
    if new_tube is not None:
        places[BEANSTALKD] = new_tube
    if with_table:
        places[TABLE] = opened.enter_context(stage.table(f"{name}_table")).open
    return places


def _carry(
    stage: BrokerStage, place: Callable[[], Target], sizes: LatenessSizes, rate: int, consumers: int
) -> Passage:
    return stage.carry(
        place(), rate=rate, steady_s=sizes.steady_s, delay_s=sizes.delay_s, consumers=consumers
    )


def report_lateness(
    stage: BrokerStage, found: Mapping[str, Sequence[Passage]], rate: int, consumers: int
) -> None:
    late = {name: medians_of([each.steady for each in those]) for name, those in found.items()}
    judged = _keeps_up(stage, late.get(BEANSTALKD), rate, consumers)
    for engine in ENGINES:
        case = f"{engine}: late at {rate:,}/s, {people(consumers)}, lease and ack each"
        ours = late[engine]
        control = medians_of([each.control for each in found[engine]])["p50"]
        beside: tuple[str, float | None] = (f"{CONTROL}, p50", control)
        stage.session.add(case, "p50", ours["p50"], "ms", beside=beside, wanted=over(control))
        theirs = late[BEANSTALKD]["p99"] if BEANSTALKD in late else None
        wanted = over(theirs) if judged else None
        beside = (f"{BEANSTALKD}, p99", theirs)
        stage.session.add(case, "p99", ours["p99"], "ms", beside=beside, wanted=wanted)
        for peer in (each for each in (BEANSTALKD, TABLE) if each in late):
            for name, value in ours.items():
                if (peer, name) != (BEANSTALKD, "p99"):
                    metric = f"{name}, beside {peer}"
                    stage.session.add(case, metric, value, "ms", beside=(peer, late[peer][name]))


def _keeps_up(
    stage: BrokerStage, late: Mapping[str, float] | None, rate: int, consumers: int
) -> bool:
    """Whether beanstalkd kept up; if not, adds a note, since a growing queue has no meaningful lateness."""
    if late is None or late["p50"] <= BEHIND_MS:
        return True
    stage.session.notes.append(
        f"beanstalkd did not keep up with {rate:,}/s, {people(consumers)}: its lateness is no reference"
        " there"
    )
    return False


def over(reference_ms: float | None) -> Wanted | None:
    """Returns the bound: at most a millisecond more than the reference."""
    if reference_ms is None:
        return None
    return Wanted(value_at_most=round(reference_ms + OVER_MS, 2))
