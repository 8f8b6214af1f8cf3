"""The cases `outside`, `outside_rates`, `embedded` and `partitions`: the pipe as its users meet it.

The database is empty, the topics are new, and the pipe is a command that was started just now. The load
begins when the pipe says that it runs. Percentiles are those of all messages, the first included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from chronoline.core.lateness import Lateness
from chronoline_bench.harness.passage import Passage
from chronoline_bench.harness.slices import Slice, slices_of
from chronoline_bench.harness.stage import CONTROL
from chronoline_bench.pipe.scene import PARTITIONS
from chronoline_bench.pipe.sides import PipeSide
from chronoline_bench.pipe.stage import POLLING_QUEUE, Delays, PipeStage
from chronoline_bench.pipe.transport import LogPlace
from chronoline_bench.plot import Mark, Plot, lateness_lines
from chronoline_bench.report import PERCENTILES, Wanted
from chronoline_bench.table import shown

RATE = 1_000
SLICE_S = 10
AIMS: Mapping[int, Mapping[str, float]] = {
    1_000: {"p50": 2, "p99": 10, "p99.9": 20},
    4_000: {"p99": 50},
    10_000: {"p99.9": 500},
}
"""The bounds in ms over the whole run, by rate."""
EMBEDDED_AIMS = {"p50": 1.0, "p99": 5.0}
PARTITION_AIMS = {"p99.9": 100.0}
BESIDE_REFERENCE = Wanted(at_most=1 / 3)
_LONG_S = 120
"""A plot of a longer run has a point for each ten seconds, else for each second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideSizes:
    seconds: float
    """The duration of a load."""
    reference_s: float
    """The duration of the load of the polling queue, before and after the pipe's."""
    rates: tuple[int, ...] = (4_000, 10_000)
    partitions: tuple[int, ...] = (4, 12, 48, 100)
    short_loads: tuple[tuple[int, int], ...] = ((200, 1_000), (1_000, 3_000))
    """The rate and the delay in ms of the loads of each number of partitions."""
    partitions_s: float = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A cold run of the pipe under one steady load."""

    name: str
    """The name of its topics and of its plot."""
    rate: int
    seconds: float
    delays: Delays
    partitions: int = PARTITIONS
    embedded: bool = False
    aims: Mapping[str, float]

    @property
    def case(self) -> str:
        where = "log → SQLite → log" if self.embedded else f"{self.partitions} partitions"
        shortest, longest = (each / 1000 for each in asdict(self.delays).values())
        delays = f"{shortest:g}–{longest:g}" if shortest < longest else f"{shortest:g}"
        return f"from outside: {self.rate:,}/s for {self.seconds:g} s, cold, delays {delays} s, {where}"


def measure_outside(stage: PipeStage, sizes: OutsideSizes) -> None:
    """Measures ten minutes at the compared rate, and the polling queue before and after."""
    run = _run_of(stage, RATE, sizes.seconds)
    with stage.session.show.work("from outside", 3) as advance:
        theirs = [_reference(stage, "before", sizes.reference_s)]
        advance(1)
        ours = run_cold(stage, run)
        advance(1)
        theirs.append(_reference(stage, "after", sizes.reference_s))
        advance(1)
    whole, late = ours.whole, all_messages(theirs)
    for name, attribute in PERCENTILES.items():
        stage.session.add(
            f"{run.case}, beside {POLLING_QUEUE} before and after",
            f"late, {name}",
            getattr(whole, attribute),
            "ms",
            beside=(POLLING_QUEUE, getattr(late, attribute)),
            wanted=BESIDE_REFERENCE if name == "p99.9" else None,
        )


def measure_outside_rates(stage: PipeStage, sizes: OutsideSizes) -> None:
    with stage.session.show.work("from outside, higher rates", len(sizes.rates)) as advance:
        for rate in sizes.rates:
            run_cold(stage, _run_of(stage, rate, sizes.seconds))
            advance(1)


def measure_embedded(stage: PipeStage, sizes: OutsideSizes) -> None:
    """Measures the pipe between two topics of a log, with a timeline in SQLite."""
    with stage.session.show.work("embedded", 1) as advance:
        run_cold(
            stage,
            Run(
                name="embedded",
                rate=RATE,
                seconds=sizes.seconds,
                delays=stage.delays,
                embedded=True,
                aims=EMBEDDED_AIMS,
            ),
        )
        advance(1)


def measure_partitions(stage: PipeStage, sizes: OutsideSizes) -> None:
    """Measures short delays with few and many partitions of the input."""
    runs = [
        Run(
            name=f"partitions_{partitions}_{rate}",
            rate=rate,
            seconds=sizes.partitions_s,
            delays=Delays(shortest_ms=delay_ms, longest_ms=delay_ms),
            partitions=partitions,
            aims=PARTITION_AIMS,
        )
        for partitions in sizes.partitions
        for rate, delay_ms in sizes.short_loads
    ]
    with stage.session.show.work("partitions", len(runs)) as advance:
        for run in runs:
            run_cold(stage, run)
            advance(1)


def _run_of(stage: PipeStage, rate: int, seconds: float) -> Run:
    name = f"outside_{rate}"
    return Run(name=name, rate=rate, seconds=seconds, delays=stage.delays, aims=AIMS[rate])


def run_cold(stage: PipeStage, run: Run) -> Passage:
    """Starts a pipe, loads it from the moment at which it says that it runs, and reports."""
    side = PipeSide(run.name, f"sqlite:///{stage.path()}.db") if run.embedded else None
    place = LogPlace(stage.path()) if run.embedded else None
    with (
        stage.pipe(run.name, run.case, side=side, place=place, partitions=run.partitions) as scene,
        scene.serving(cold=True),
    ):
        started_s = scene.started_s
        count = round(run.rate * run.seconds)
        passage = scene.run(count=count, rate=run.rate, **asdict(run.delays))
    stage.session.add(run.case, "runs after", started_s, "s")
    _report(stage, run, passage)
    draw(stage, run.name, run.case, passage)
    return passage


def _reference(stage: PipeStage, when: str, seconds: float) -> Passage:
    with stage.polling_queue(f"outside_{when}") as scene, scene.serving(cold=True):
        return scene.run(count=round(RATE * seconds), rate=RATE, **asdict(stage.delays))


def all_messages(passages: Iterable[Passage]) -> Lateness:
    """Returns the percentiles over all messages of several loads."""
    return Lateness.of(late_ms for passage in passages for late_ms in passage.late_ms().values())


# Reporting


def _report(stage: PipeStage, run: Run, passage: Passage) -> None:
    add = stage.session.add
    whole = passage.whole
    for name, attribute in PERCENTILES.items():
        wanted = Wanted(value_at_most=run.aims[name]) if name in run.aims else None
        beside = (f"{CONTROL}, {name}", getattr(passage.control, attribute))
        value = getattr(whole, attribute)
        add(run.case, f"late, {name} of all", value, "ms", beside=beside, wanted=wanted)
    messages, control = slices_in_turn(passage, SLICE_S)
    for name in ("p50", "p99"):
        worst = max((getattr(each.late, PERCENTILES[name]) for each in messages), default=0.0)
        add(run.case, f"late, {name} of the worst {SLICE_S} s", worst, "ms")
    for part, cores in passage.cores.items():
        add(run.case, f"processor, {part}", cores, "cores")
    add(run.case, "processor, all of these", sum(passage.cores.values()), "cores")
    control_p99 = {each.first_s: each.late.p99_ms for each in control}
    for each in messages:
        case = f"{run.case}, each {SLICE_S} s"
        beside = (f"{CONTROL}, p99", control_p99.get(each.first_s))
        add(case, f"{each}, p50", each.late.p50_ms, "ms")
        add(case, f"{each}, p99", each.late.p99_ms, "ms", beside=beside)
        add(case, f"{each}, max", each.late.max_ms, "ms")


def slices_in_turn(passage: Passage, width_s: float) -> tuple[list[Slice], list[Slice]]:
    """Returns the slices of the messages and of the control, from the first publication on."""
    start_us = passage.started_us
    return (
        slices_of(passage.points, start_us, width_s),
        slices_of(passage.control_points, start_us, width_s),
    )


def draw(
    stage: PipeStage, name: str, title: str, passage: Passage, marks: Iterable[Mark] = ()
) -> None:
    """Writes the plot of a run into the folder for plots, if there is one."""
    seconds = (passage.ended_us - passage.started_us) / 1_000_000
    width_s = SLICE_S if seconds > _LONG_S else 1
    late = passage.whole
    plot = Plot(
        title=title[:1].upper() + title[1:],
        subtitle=f"{late.count:,} messages, by {f'{width_s} s' if width_s > 1 else 'second'}; of all: "
        + ", ".join(
            f"{name} {shown(getattr(late, attribute), 'ms')}"
            for name, attribute in PERCENTILES.items()
        ),
        lines=lateness_lines(*slices_in_turn(passage, width_s)),
        marks=list(marks),
    )
    stage.session.write_plot(f"pipe-{name.replace('_', '-')}", plot)
