"""The case `pops`: lateness at a rate on three nodes, beside a process that only sleeps and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from chronoline.core.lateness import Lateness
from chronoline_bench.report import Wanted, medians_of
from chronoline_bench.timers.requests import When
from chronoline_bench.timers.stage import Cluster, TimerStage

NODES = 3
WITHIN_MS = 10.0
ON_TIME = Wanted(value_at_least=99)
SLEEPER = "a process that sleeps and calls"
_BEFORE = "asked for before"
_MEANWHILE = "as many asked for meanwhile"
_SPARE_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PopSizes:
    rounds: int
    rate: int
    steady_s: float


def measure_pops(stage: TimerStage, sizes: PopSizes) -> None:
    """Measures timers that are all sent before the first is due; then with new ones at the same rate."""
    with stage.cluster(NODES) as cluster:
        works: dict[str, Callable[[], list[float]]] = {
            _BEFORE: partial(_before, stage, cluster, sizes),
            _MEANWHILE: partial(_meanwhile, stage, cluster, sizes),
            SLEEPER: partial(_sleeper, stage, cluster, sizes),
        }
        found = stage.in_turn(f"pops at {sizes.rate:,}/s", sizes.rounds, works)
    for name in (_BEFORE, _MEANWHILE):
        report_pops(stage, name, sizes, found)


def _before(stage: TimerStage, cluster: Cluster, sizes: PopSizes) -> list[float]:
    passage = stage.carry(stage.load(cluster.addresses, *_spread(sizes), rate=sizes.rate / 2))
    stage.check(passage)
    return list(passage.late_ms().values())


def _spread(sizes: PopSizes) -> tuple[int, When]:
    """Returns the timers and due times of a load that is sent before the first is due, at half the rate."""
    lead_s = 2 * sizes.steady_s + _SPARE_S
    when = When(lead_ms=round(lead_s * 1000), span_ms=round(sizes.steady_s * 1000))
    return round(sizes.rate * sizes.steady_s), when


def _meanwhile(stage: TimerStage, cluster: Cluster, sizes: PopSizes) -> list[float]:
    """Timers that fall due at the rate of new ones."""
    when = When(shortest_ms=2_000, longest_ms=4_000)
    timers = round(sizes.rate * (sizes.steady_s + when.longest_ms / 1000))
    passage = stage.carry(stage.load(cluster.addresses, timers, when, rate=sizes.rate))
    stage.check(passage)
    return list(passage.late_ms(*passage.steady_us).values())


def _sleeper(stage: TimerStage, cluster: Cluster, sizes: PopSizes) -> list[float]:
    timers, when = _spread(sizes)
    passage = stage.call_without_nodes(stage.load(cluster.addresses, timers, when))
    return list(passage.late_ms().values())


def report_pops(
    stage: TimerStage, name: str, sizes: PopSizes, found: Mapping[str, Sequence[Sequence[float]]]
) -> None:
    case = f"{NODES} nodes, 2 copies, {sizes.rate:,} pops/s, {name}"
    ours, theirs = found[name], found[SLEEPER]
    within = {
        each: median(share_within(late_ms, WITHIN_MS) for late_ms in found[each])
        for each in (name, SLEEPER)
    }
    stage.session.add(
        case,
        f"at most {WITHIN_MS:g} ms late",
        within[name],
        "%",
        beside=(SLEEPER, within[SLEEPER]),
        wanted=ON_TIME,
    )
    reference = medians_of([Lateness.of(each) for each in theirs])
    for percentile, value in medians_of([Lateness.of(each) for each in ours]).items():
        beside = (f"{SLEEPER}, {percentile}", reference[percentile])
        stage.session.add(case, f"late, {percentile}", value, "ms", beside=beside)


def share_within(late_ms: Iterable[float], most_ms: float) -> float:
    """Returns the percentage of values up to a limit; 0 if there are none."""
    values = list(late_ms)
    return 100 * sum(each <= most_ms for each in values) / len(values) if values else 0.0
