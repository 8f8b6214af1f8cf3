"""The case `kill`: one of three nodes is killed; the lateness of its timers on the others."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chronoline.core.lateness import Lateness
from chronoline.timers.membership import replicas_of
from chronoline_bench.report import PERCENTILES, Wanted
from chronoline_bench.timers.requests import SentTimer, When, now_us
from chronoline_bench.timers.stage import FACTOR, Pops, TimerStage, skew_ms

NODES = 3
TAKEN_OVER = Wanted(value_at_most=500)
NONE = Wanted(value_at_most=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSizes:
    timers: int
    rate: int
    """Requests per second."""
    lead_s: float
    """The duration of the sending; then the timers begin to fall due."""
    span_s: float
    """The span of the due times; the node is killed a third into it."""


@dataclass(frozen=True, slots=True)
class Killed:
    """The killed node, the nodes of its cluster, and the time of the kill."""

    node: str
    among: tuple[str, ...]
    at_us: int


def measure_kill(stage: TimerStage, sizes: KillSizes) -> None:
    when = When(lead_ms=round(sizes.lead_s * 1000), span_ms=round(sizes.span_s * 1000))
    with (
        stage.session.show.work("kill -9 of a node", 1),
        stage.cluster(NODES) as cluster,
    ):
        load = stage.load(cluster.addresses, sizes.timers, when, rate=sizes.rate)
        path = stage.begin(load)
        kill_us = now_us() + round((sizes.lead_s + sizes.span_s / 3) * 1e6)
        killed: list[Killed] = []

        def kill() -> None:
            time.sleep(max(0, kill_us - now_us()) / 1e6)  # a third into the span
            node, among = cluster.addresses[0], tuple(sorted(cluster.addresses))
            killed.append(Killed(node, among, now_us()))
            cluster.nodes.kill(node)

        passage = stage.finish(load, path, when_sent=kill)
    stage.check(passage, may_repeat=True)
    _report(stage, sizes, passage, killed[0])


def _report(stage: TimerStage, sizes: KillSizes, passage: Pops, killed: Killed) -> None:
    """Reports the timers that the dead node had not popped, beside those of the other nodes."""
    came_us = passage.arrivals.first_us

    def is_orphan(each: SentTimer) -> bool:
        first = replicas_of(each.id, FACTOR, killed.among)[0] == killed.node
        return first and came_us.get(each.number, 0) > killed.at_us

    orphans = [each for each in passage.sent if is_orphan(each)]
    taken_over = Lateness.of(
        (came_us[each.number] - each.due_us) / 1000 - skew_ms(each.interval_ms) for each in orphans
    )
    taken = {each.number for each in orphans}
    later_ms = passage.late_ms(killed.at_us + 1)
    others = Lateness.of(late for number, late in later_ms.items() if number not in taken)
    case = f"one of {NODES} nodes killed, {sizes.timers / sizes.span_s:,.0f} pops/s"
    add = stage.session.add
    add(case, "timers that another node took over", len(orphans), "timers")
    for name, attribute in PERCENTILES.items():
        add(
            case,
            f"late after due + skew, {name}",
            getattr(taken_over, attribute),
            "ms",
            beside=(
                f"late after due, timers of the other nodes, {name}",
                getattr(others, attribute),
            ),
            wanted=TAKEN_OVER if name == "max" else None,
        )
    tally = passage.tally
    add(case, "lost or early", tally.lost + tally.early, "timers", wanted=NONE)
    add(case, "popped twice", tally.duplicated, "timers")
