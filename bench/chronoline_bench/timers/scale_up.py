"""The case `scaling`: a fourth node joins three with many waiting timers, while others pop."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chronoline.runtime.child_process import free_addresses
from chronoline_bench.report import PERCENTILES, Wanted
from chronoline_bench.timers.requests import When, now_us
from chronoline_bench.timers.stage import FACTOR, Cluster, Pops, TimerStage

NODES = 3
AS_QUIET = Wanted(at_most=2)
NONE = Wanted(value_at_most=0)
_WHEN = When(shortest_ms=2_000, longest_ms=4_000)
_LONGEST_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSizes:
    waiting: int
    rate: int
    """Pops per second during the case."""
    quiet_s: float
    """The time before the node joins."""


def measure_scaling(stage: TimerStage, sizes: ScalingSizes) -> None:
    with stage.cluster(NODES) as cluster:
        stage.fill("timers that wait", cluster.addresses, sizes.waiting)
        load = stage.load(tuple(cluster.addresses), sizes.rate * _LONGEST_S, _WHEN, rate=sizes.rate)
        with stage.session.show.work("a node joins", 1):
            path = stage.begin(load)
            time.sleep(_WHEN.longest_ms / 1000 + sizes.quiet_s)  # before the scale-up
            joined = join(cluster)
            time.sleep(1)  # ends pops that were in progress during the scale-up
            stage.sender.ask("enough")
            passage = stage.finish(load, path)
        stage.check(passage)
        stage.session.tally.expect(FACTOR * sizes.waiting, cluster.waiting())
    report_scaling(stage, sizes, passage, joined)


@dataclass(frozen=True, slots=True)
class Joined:
    """The start and end of the scale-up, and the number of offered timers."""

    begun_us: int
    ended_us: int
    offered: int

    @property
    def seconds(self) -> float:
        return (self.ended_us - self.begun_us) / 1e6


def join(cluster: Cluster) -> Joined:
    """Scales up as an operator does."""
    begun_us = now_us()
    nodes, old = cluster.nodes, list(cluster.addresses)
    (new,) = free_addresses(1)
    cluster.addresses.append(new)
    nodes.write(old, joining=[new])
    nodes.start(new)
    nodes.reload(old)
    offered = nodes.resync(cluster.addresses)
    nodes.write(cluster.addresses)
    nodes.reload(cluster.addresses)
    return Joined(begun_us, now_us(), offered)


def report_scaling(stage: TimerStage, sizes: ScalingSizes, passage: Pops, joined: Joined) -> None:
    case = f"{NODES} nodes → {NODES + 1}, {sizes.waiting:,} timers waiting, {sizes.rate:,} pops/s"
    add = stage.session.add
    add(case, "the scale-up took", joined.seconds, "s")
    add(case, "timers that nodes were offered", joined.offered / joined.seconds, "timers/s")
    quiet = passage.between(passage.steady_us[0], joined.begun_us)
    meanwhile = passage.between(joined.begun_us, joined.ended_us)
    for name, attribute in PERCENTILES.items():
        add(
            case,
            f"late meanwhile, {name}",
            getattr(meanwhile, attribute),
            "ms",
            beside=(f"before, {name}", getattr(quiet, attribute)),
            wanted=AS_QUIET if name == "p99" else None,
        )
    tally = passage.tally
    add(
        case,
        "lost, early or popped twice",
        tally.lost + tally.early + tally.duplicated,
        "timers",
        wanted=NONE,
    )
