"""The case `faults`: processes are killed, servers go away and bursts come under a steady load.

Each fault has a pipe of its own, measured from outside: the time until the output is on time again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import LineProcess, Server
from chronoline_bench.harness.cores import family, is_jvm
from chronoline_bench.harness.passage import Passage, wall_us
from chronoline_bench.harness.slices import SECOND_US, late_share
from chronoline_bench.pipe import agent
from chronoline_bench.pipe.outside import draw
from chronoline_bench.pipe.scene import AnySide, Flight, Scene
from chronoline_bench.pipe.stage import POLLING_QUEUE, PipeStage
from chronoline_bench.plot import Mark
from chronoline_bench.report import Wanted

BACK_CEILING = Wanted(value_at_most=5)
TAKEOVER_CEILING = Wanted(value_at_most=6)
_RATE = 1_000
_LONGEST_S = 600
_SLICE_US = 250_000
_STEADY_SLICES = 20
"""The output is on time again when this many slices in a row, five seconds, are on time."""
_ON_TIME_MS = 50
_LATE_SHARE = 0.1
"""A slice of time is late if more than this share of its messages came later than that."""
_GRACE_S = 5
_TAKEN_IN_US = 2 * SECOND_US
"""A message that was published this time before a kill waited on the timeline then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSizes:
    before_s: float = 20.0
    """The duration of the steady output before the fault."""
    away_s: float = 10.0
    after_s: float = 30.0
    """The duration of the load after the fault."""
    burst: int = 100_000
    with_reference: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A load with a fault, and the times at which the fault began and was over."""

    passage: Passage
    began_us: int
    over_us: int

    @property
    def recovered_s(self) -> float:
        """Seconds from the end of the fault until messages that fall due are on time, for some seconds.

        A late slice after that is another matter: the percentiles of the time after the fault have it.
        """
        late = self.late_slices(self.over_us, self.passage.due_us)
        last = -1
        for place in sorted(late):
            if place - last > _STEADY_SLICES:
                break
            last = place
        return (last + 1) * _SLICE_US / SECOND_US

    def takeover_s(self, numbers: Iterable[int]) -> float:
        """Seconds from the fault until the last of these messages that it delayed came."""
        late = self.late_slices(self.began_us, numbers)
        came_us = self.passage.arrivals.first_us
        delayed = [came_us[number] for each in late.values() for number in each]
        return (max(delayed, default=self.began_us) - self.began_us) / SECOND_US

    @property
    def waiting(self) -> set[int]:
        """The messages that waited on the timeline when the fault began."""
        return self.passage.sent_between(0, self.began_us - _TAKEN_IN_US)

    @property
    def sent_after(self) -> set[int]:
        """The messages that were published after the fault."""
        return self.passage.sent_between(self.began_us, 1 << 62)

    def late_slices(self, first_us: int, numbers: Iterable[int]) -> dict[int, list[int]]:
        """Returns the messages of each late slice of time from a moment on, by the slice's place."""
        late_ms = self.passage.late_ms(first_us, self.passage.steady_us[1])
        slices: dict[int, list[int]] = {}
        for number in late_ms.keys() & set(numbers):
            place = (self.passage.due_us[number] - first_us) // _SLICE_US
            slices.setdefault(place, []).append(number)
        return {
            place: found
            for place, found in slices.items()
            if late_share((late_ms[number] for number in found), _ON_TIME_MS) > _LATE_SHARE
        }

    @property
    def p99_before_ms(self) -> float:
        return self.passage.between(self.passage.steady_us[0], self.began_us).p99_ms

    @property
    def p99_after_ms(self) -> float:
        """The lateness of messages due from five seconds after the fault on."""
        first_us = self.over_us + _GRACE_S * SECOND_US
        return self.passage.between(first_us, self.passage.steady_us[1]).p99_ms

    @property
    def worst_ms(self) -> float:
        return self.passage.whole.max_ms

    def mark(self, name: str) -> Mark:
        """Returns its mark in a plot."""
        first_s, last_s = (
            (moment_us - self.passage.started_us) / SECOND_US
            for moment_us in (self.began_us, self.over_us)
        )
        return Mark(name=name, first_s=first_s, last_s=last_s)


@dataclass(slots=True, kw_only=True)
class Strike:
    """The things that a fault acts on."""

    stage: PipeStage
    scene: Scene[Any]
    nodes: list[LineProcess]
    sizes: FaultSizes
    opened: ExitStack
    """Ends with the load."""
    flights: list[Flight] = field(default_factory=list)
    """Loads beside the steady one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: when `strike` returns, it is over."""

    name: str
    title: str
    strike: Callable[[Strike], None]
    pipes: int = 1
    has_reference: bool = False
    """Whether the polling queue meets it too."""
    is_takeover: bool = False
    """Whether another pipe takes over, which is judged by the time from the fault on."""


# The faults


def _stop_server(server: Callable[[PipeStage], Server]) -> Callable[[Strike], None]:
    def strike(on: Strike) -> None:
        with ExitStack() as stack:
            stack.callback(server(on.stage).start)
            server(on.stage).stop()
            time.sleep(on.sizes.away_s)  # the outage

    return strike


def _kill_driver(on: Strike) -> None:
    """Kills the driver's program alone; another pipe is started at once."""
    on.nodes[0].send_signal(signal.SIGKILL)
    other = on.opened.enter_context(on.scene.start_node())
    on.scene.side.await_node(other)


def _kill_worker(on: Strike) -> None:
    """Kills the Python worker of Spark that has worked most."""
    pid = on.nodes[0].pid
    assert pid is not None
    os.kill(busiest_worker(pid), signal.SIGKILL)


def _kill_pipe(on: Strike) -> None:
    """Kills all processes of the first pipe at one moment."""
    on.nodes[0].kill()


def _send_burst(on: Strike) -> None:
    """Publishes as fast as possible, with the delays of the steady load."""
    second = on.opened.enter_context(on.stage.new_agent(agent))
    delays = asdict(on.stage.delays)
    burst = on.scene.begin(count=on.sizes.burst, loader=second, **delays)
    on.flights.append(burst)
    burst.await_sent()


def busiest_worker(pid: int) -> int:
    """Returns the Python worker with the most processor time: a child of a child of the JVM."""
    processes = {process.pid: process for process in family(pid)}
    jvms = {each for each, process in processes.items() if is_jvm(process.name())}
    daemons = {each for each, process in processes.items() if process.ppid() in jvms}
    workers = [process for process in processes.values() if process.ppid() in daemons]
    if not workers:
        raise ChronolineError("the pipe has no Python worker to kill")
    return int(max(workers, key=lambda process: sum(process.cpu_times()[:2])).pid)


FAULTS = (
    Fault(
        name="killed_driver",
        title="kill -9 of the driver, another pipe is started",
        strike=_kill_driver,
    ),
    Fault(name="killed_worker", title="kill -9 of a Python worker", strike=_kill_worker),
    Fault(
        name="killed_pipe",
        title="kill -9 of one pipe of two",
        strike=_kill_pipe,
        pipes=2,
        is_takeover=True,
    ),
    Fault(
        name="postgresql_away",
        title="PostgreSQL away",
        strike=_stop_server(lambda stage: stage.postgres.server),
        has_reference=True,
    ),
    Fault(
        name="kafka_away",
        title="Kafka away",
        strike=_stop_server(lambda stage: stage.kafka),
        has_reference=True,
    ),
    Fault(name="burst", title="a burst beside the steady load", strike=_send_burst),
)


# Measuring


def measure_faults(stage: PipeStage, sizes: FaultSizes, faults: Iterable[Fault] = FAULTS) -> None:
    for fault in faults:
        case = f"{fault.title}, {_RATE:,}/s"
        with_reference = fault.has_reference and sizes.with_reference
        with stage.session.show.work(fault.title, 1 + with_reference) as advance:
            theirs = None
            if with_reference:
                with stage.polling_queue(f"{fault.name}_polling_queue") as polling_queue:
                    theirs = suffer(stage, polling_queue, fault, sizes)
                advance(1)
            with stage.pipe(fault.name, case, may_repeat=True) as pipe:
                ours = suffer(stage, pipe, fault, sizes)
            advance(1)
        _report(stage, fault, case, ours, theirs)
        draw(stage, fault.name, case, ours.passage, [ours.mark(fault.title)])


def suffer(stage: PipeStage, scene: Scene[AnySide], fault: Fault, sizes: FaultSizes) -> Incident:
    """Strikes under a continuous load; unpublished messages wait in their producer."""
    lead_s = stage.delays.longest_ms / 1000 + sizes.before_s
    with scene.serving(fault.pipes) as nodes, ExitStack() as opened:
        flight = scene.begin(count=_RATE * _LONGEST_S, rate=_RATE, **asdict(stage.delays))
        on = Strike(stage=stage, scene=scene, nodes=nodes, sizes=sizes, opened=opened)
        time.sleep(lead_s)  # the load runs in its agent
        began_us = wall_us()
        fault.strike(on)
        over_us = wall_us()
        time.sleep(sizes.after_s)  # the load runs in its agent
        flight.end()
        passage = flight.finish()
        for other in on.flights:
            passage = passage.joined(other.finish())
    return Incident(passage=passage, began_us=began_us, over_us=over_us)


def _report(
    stage: PipeStage, fault: Fault, case: str, ours: Incident, theirs: Incident | None
) -> None:
    def beside(name: str) -> tuple[str, float] | None:
        return None if theirs is None else (POLLING_QUEUE, float(getattr(theirs, name)))

    add = stage.session.add
    add(case, "the fault took", (ours.over_us - ours.began_us) / SECOND_US, "s")
    if fault.is_takeover:
        waited_s, new_s = (ours.takeover_s(each) for each in (ours.waiting, ours.sent_after))
        add(case, "the last delayed message that waited", waited_s, "s", wanted=TAKEOVER_CEILING)
        add(case, "the last delayed message that was published later", new_s, "s")
    add(
        case,
        "on time again after the fault within",
        ours.recovered_s,
        "s",
        beside=beside("recovered_s"),
        wanted=None if fault.is_takeover else BACK_CEILING,
    )
    add(case, "the latest of all", ours.worst_ms, "ms", beside=beside("worst_ms"))
    add(
        case,
        f"late, p99, due {_GRACE_S} s after the fault or later",
        ours.p99_after_ms,
        "ms",
        beside=("before it", ours.p99_before_ms),
    )
