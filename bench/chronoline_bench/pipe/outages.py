"""The case `outages`: PostgreSQL and Kafka stop under load; the time until the output is on time again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from chronoline.core.lateness import Lateness
from chronoline.runtime.child_process import Server
from chronoline_bench.harness.passage import Passage, wall_us
from chronoline_bench.pipe.scene import AnySide, Scene
from chronoline_bench.pipe.stage import POLLING_QUEUE, PipeStage
from chronoline_bench.report import Wanted

AWAY_S = 10.0
BACK_CEILING = Wanted(value_at_most=5)
_RATE = 1_000
_BEFORE_S = 3.0
_SLICE_US = 250_000
_ON_TIME_MS = 50
"""A slice of time is on time if half of the messages due in it came within this time."""
_GRACE_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSizes:
    away_s: float = AWAY_S
    after_s: float = 15.0
    """The least duration of the load after the server's return."""
    with_reference: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A load during which a server was away, and the times of the outage."""

    passage: Passage
    away_us: int
    back_us: int

    @property
    def recovered_s(self) -> float:
        """Seconds from the server's return until messages are on time, and stay so."""
        return (max(self.late_slices(), default=self.back_us) - self.back_us) / 1_000_000

    def late_slices(self) -> list[int]:
        """Returns the ends of the late slices of time after the return."""
        slices: dict[int, list[float]] = {}
        for number, late_ms in self.passage.late_ms(
            self.back_us, self.passage.steady_us[1]
        ).items():
            place = (self.passage.due_us[number] - self.back_us) // _SLICE_US
            slices.setdefault(place, []).append(late_ms)
        return [
            self.back_us + (place + 1) * _SLICE_US
            for place, late_ms in sorted(slices.items())
            if Lateness.of(late_ms).p50_ms > _ON_TIME_MS
        ]

    @property
    def p99_before_ms(self) -> float:
        return self.passage.between(self.passage.steady_us[0], self.away_us).p99_ms

    @property
    def p99_after_ms(self) -> float:
        """The lateness of messages due from five seconds after the return on."""
        first_us = self.back_us + _GRACE_S * 1_000_000
        return self.passage.between(first_us, self.passage.steady_us[1]).p99_ms

    @property
    def worst_ms(self) -> float:
        return self.passage.whole.max_ms


def measure_outages(stage: PipeStage, sizes: OutageSizes) -> None:
    servers: tuple[tuple[str, Server], ...] = (
        ("PostgreSQL", stage.postgres.server),
        ("Kafka", stage.kafka),
    )
    for name, server in servers:
        case = f"{name} away for {sizes.away_s:g} s and its start, {_RATE:,}/s"
        with stage.session.show.work(f"{name} away", 1 + sizes.with_reference) as advance:
            theirs = None
            if sizes.with_reference:
                with stage.polling_queue(f"{name.lower()}_away_polling_queue") as polling_queue:
                    theirs = take_away(stage, polling_queue, server, sizes)
                advance(1)
            with stage.pipe(f"{name.lower()}_away", case, may_repeat=True) as pipe:
                ours = take_away(stage, pipe, server, sizes)
            advance(1)
        _report(stage, case, ours, theirs)


def take_away(
    stage: PipeStage, scene: Scene[AnySide], server: Server, sizes: OutageSizes
) -> Outage:
    """Stops a server under a continuous load; unpublished messages wait in their producer."""
    lead_s = stage.delays.longest_ms / 1000 + _BEFORE_S
    load_s = lead_s + sizes.away_s + sizes.after_s
    with scene.serving():
        flight = scene.begin(count=round(_RATE * load_s), rate=_RATE, **asdict(stage.delays))
        time.sleep(lead_s)  # the load runs in its agent
        away_us = wall_us()
        with ExitStack() as stack:
            stack.callback(server.start)
            server.stop()
            time.sleep(sizes.away_s)  # the outage
        back_us = wall_us()
        passage = flight.finish()
    return Outage(passage=passage, away_us=away_us, back_us=back_us)


def _report(stage: PipeStage, case: str, ours: Outage, theirs: Outage | None) -> None:
    def beside(name: str) -> tuple[str, float] | None:
        return None if theirs is None else (POLLING_QUEUE, float(getattr(theirs, name)))

    stage.session.add(
        case,
        "on time again after its return within",
        ours.recovered_s,
        "s",
        beside=beside("recovered_s"),
        wanted=BACK_CEILING,
    )
    stage.session.add(case, "the latest of all", ours.worst_ms, "ms", beside=beside("worst_ms"))
    stage.session.add(
        case,
        f"late, p99, due {_GRACE_S} s after the return or later",
        ours.p99_after_ms,
        "ms",
        beside=("before it went", ours.p99_before_ms),
    )
