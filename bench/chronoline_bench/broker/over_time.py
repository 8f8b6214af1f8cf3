"""The case `over_time`: one rate on each system, one after the other, and a plot of them together."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from chronoline.core.lateness import Lateness
from chronoline_bench.broker.lateness import places_of
from chronoline_bench.broker.stage import BEANSTALKD, ENGINES, TABLE, BrokerStage, people
from chronoline_bench.harness.passage import Passage
from chronoline_bench.harness.slices import slices_of
from chronoline_bench.plot import Line, Plot
from chronoline_bench.report import PERCENTILES

SLICE_S = 1.0
_WARM_S = 1.0
_NAMES = {
    "sqlite": ("broker on SQLite", "ours"),
    "postgresql": ("broker on PostgreSQL", "ours-too"),
    BEANSTALKD: ("beanstalkd", "peer"),
    TABLE: ("polling queue", "peer-too"),
}
"""The name of each system in the plot, and the style of its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTimeSizes:
    rate: int
    consumers: int
    steady_s: float
    """The duration, unless another one is chosen (`--seconds`)."""
    delay_s: int


def measure_over_time(stage: BrokerStage, sizes: OverTimeSizes) -> None:
    """Carries the load on each system, after a short one that warms it up."""
    session = stage.session
    steady_s = session.seconds or sizes.steady_s
    found: dict[str, Passage] = {}
    with ExitStack() as opened:
        for name, place in places_of(stage, opened, "over_time").items():
            for seconds in (_WARM_S, steady_s):
                found[name] = stage.carry(
                    place(),
                    rate=sizes.rate,
                    steady_s=seconds,
                    delay_s=sizes.delay_s,
                    consumers=sizes.consumers,
                )
    report_over_time(stage, found, sizes)
    session.write_plot("broker-over-time", plot_of(found, sizes, steady_s))


def report_over_time(
    stage: BrokerStage, found: Mapping[str, Passage], sizes: OverTimeSizes
) -> None:
    late = {name: passage.steady for name, passage in found.items()}
    for engine in ENGINES:
        case = f"{engine}: {sizes.rate:,}/s over time, {people(sizes.consumers)}"
        for peer in (BEANSTALKD, TABLE):
            for name, attribute in PERCENTILES.items():
                theirs: Lateness | None = late.get(peer)
                beside = (peer, getattr(theirs, attribute) if theirs else None)
                value = getattr(late[engine], attribute)
                stage.session.add(case, f"{name}, beside {peer}", value, "ms", beside=beside)


def plot_of(found: Mapping[str, Passage], sizes: OverTimeSizes, steady_s: float) -> Plot:
    """Returns a plot with a line for each system: the p99 of the messages due in each second."""
    return Plot(
        title=f"Lateness at {sizes.rate:,} messages a second: the p99 of each second",
        subtitle=f"{people(sizes.consumers).capitalize()}, which leases and acks each message;"
        f" {steady_s:g} s on each system, one after the other on the same machine",
        lines=[_line(name, passage) for name, passage in found.items()],
    )


def _line(system: str, passage: Passage) -> Line:
    name, kind = _NAMES[system]
    start_us, end_us = passage.steady_us
    points = [point for point in passage.points if start_us <= point[0] < end_us]
    return Line(
        name=name,
        kind=kind,
        points=[(each.middle_s, each.late.p99_ms) for each in slices_of(points, start_us, SLICE_S)],
        width_s=SLICE_S,
    )
