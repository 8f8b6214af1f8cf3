"""A fourth node joins three that keep many timers: how long it takes, and how late others pop meanwhile."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from chronoline.node.local_nodes import free_addresses
from chronoline.runtime.percentiles import PERCENTILES
from chronoline_bench.pops.asking import When
from chronoline_bench.pops.notes import now_us
from chronoline_bench.pops.passage import Passage
from chronoline_bench.pops.stage import FACTOR, Cluster, Stage
from chronoline_bench.report import Wanted

NODES = 3
AS_QUIET = Wanted(at_most=2)
NONE = Wanted(value_at_most=0)
_WHEN = When(shortest_ms=2_000, longest_ms=4_000)
_LONGEST_S = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSizes:
    waiting: int
    rate: int
    """So many pop in a second all the while."""
    quiet_s: float
    """For so long before the node joins."""


def measure_scaling(stage: Stage, sizes: ScalingSizes) -> None:
    path = stage.path()
    with stage.cluster(NODES) as cluster:
        stage.fill("timers that wait", cluster.addresses, sizes.waiting)
        load = stage.load(tuple(cluster.addresses), sizes.rate * _LONGEST_S, _WHEN, rate=sizes.rate)
        with stage.session.show.work("a node joins", 1):
            stage.asker.begin("ask", load=asdict(load), path=str(path))
            time.sleep(_WHEN.longest_ms / 1000 + sizes.quiet_s)  # the quiet stretch
            joined = join(cluster)
            time.sleep(1)  # what was under way at the end is over then
            stage.asker.ask("enough")
            passage = stage.passage(load, path)
        stage.check(passage)
        stage.session.tally.expect(FACTOR * sizes.waiting, cluster.waiting())
    report_scaling(stage, sizes, passage, joined)


@dataclass(frozen=True, slots=True)
class Joined:
    """When the scale-up began and ended, and how many timers nodes were offered."""

    begun_us: int
    ended_us: int
    offered: int

    @property
    def seconds(self) -> float:
        return (self.ended_us - self.begun_us) / 1e6


def join(cluster: Cluster) -> Joined:
    """As an operator does it."""
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


def report_scaling(stage: Stage, sizes: ScalingSizes, passage: Passage, joined: Joined) -> None:
    case = f"{NODES} nodes → {NODES + 1}, {sizes.waiting:,} timers waiting, {sizes.rate:,} pops/s"
    add = stage.session.add
    add(case, "the scale-up took", joined.seconds, "s")
    add(case, "timers that nodes were offered", joined.offered / joined.seconds, "timers/s")
    quiet = passage.late(passage.started_us + _WHEN.longest_ms * 1_000, joined.begun_us)
    meanwhile = passage.late(joined.begun_us, joined.ended_us)
    for name, attribute in PERCENTILES.items():
        add(
            case,
            f"late meanwhile, {name}",
            getattr(meanwhile, attribute),
            "ms",
            beside=(f"before, {name}", getattr(quiet, attribute)),
            wanted=AS_QUIET if name == "p99" else None,
        )
    tally = passage.tally()
    add(
        case,
        "lost, early or popped twice",
        tally.lost + tally.early + tally.duplicated,
        "timers",
        wanted=NONE,
    )
