"""The case `waiting`: a node with many timers, its memory, and its restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import medians
from chronoline_bench.timers import agent
from chronoline_bench.timers.stage import Cluster, TimerStage

RATE = Wanted(value_at_least=2_000)
BARE = "aiohttp, which keeps nothing"
RAW = "raw SQLite, as many in a commit as there are connections"
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSizes:
    waiting: int
    rounds: int
    each: int
    """Timers sent in a round."""
    connections: int


def measure_waiting(stage: TimerStage, sizes: WaitingSizes) -> None:
    empty_s = _start_empty(stage)
    with stage.cluster(1) as cluster, stage.new_agent(agent) as bare:
        _fill(stage, cluster, sizes, sizes.each)  # one-time allocations are done then
        before_mb = _memory_mb(cluster)
        rates = _measure_rates(stage, cluster, bare, sizes)
        left = sizes.waiting - cluster.waiting()
        title = f"{sizes.waiting:,} timers"
        rest = stage.fill(title, cluster.addresses, left, connections=sizes.connections)
        stage.session.tally.expect(sizes.waiting, cluster.waiting())
        after_mb = _memory_mb(cluster)
        _report_rates(stage, sizes, rates, rest)
        _report_memory(stage, sizes, (after_mb - before_mb) * _MB / (sizes.waiting - sizes.each))
        _measure_restart(stage, cluster, sizes, empty_s)


def _start_empty(stage: TimerStage) -> float:
    started = time.perf_counter()
    with stage.cluster(1):
        return time.perf_counter() - started


def _fill(stage: TimerStage, cluster: Cluster, sizes: WaitingSizes, timers: int) -> float:
    return stage.send_fast(stage.far(cluster.addresses, timers, connections=sizes.connections))


def _measure_rates(
    stage: TimerStage, cluster: Cluster, bare: AgentProcess, sizes: WaitingSizes
) -> dict[str, float]:
    """Measures the node, a server without storage, and the journal's engine alone, in turn."""
    nothing = [str(bare.ask("serve_nothing")["address"])]
    journal = cluster.nodes.data(cluster.addresses[0]) / "timers.db"

    def insert() -> float:
        answer = stage.sender.ask(
            "insert",
            journal=str(journal),
            scratch=str(stage.path()),
            rows=sizes.each,
            batch=sizes.connections,
        )
        return float(answer["rate"])

    works: dict[str, Callable[[], float]] = {
        "node": partial(_fill, stage, cluster, sizes, sizes.each),
        BARE: lambda: stage.send_fast(
            stage.far(nothing, sizes.each, connections=sizes.connections)
        ),
        RAW: insert,
    }
    return medians(stage.in_turn("timers sent", sizes.rounds, works))


def _report_rates(
    stage: TimerStage, sizes: WaitingSizes, rates: dict[str, float], rest: float
) -> None:
    case = f"one node, timers asked for over {sizes.connections} connections, each waits"
    add = stage.session.add
    add(
        case,
        "on disk, beside HTTP",
        rates["node"],
        "timers/s",
        beside=(BARE, rates[BARE]),
        wanted=RATE,
    )
    add(case, "on disk, beside the disk", rates["node"], "timers/s", beside=(RAW, rates[RAW]))
    metric = f"the rest, up to {sizes.waiting:,}"
    add(case, metric, rest, "timers/s", beside=("the first ones", rates["node"]), wanted=RATE)


def _memory_mb(cluster: Cluster) -> float:
    resident: int = psutil.Process(cluster.nodes.pid(cluster.addresses[0])).memory_info().rss
    return resident / _MB


def _report_memory(stage: TimerStage, sizes: WaitingSizes, bytes_each: float) -> None:
    with stage.new_agent(agent) as fresh:
        plain = float(fresh.ask("hold", timers=sizes.waiting, uri=stage.uri)["bytes"])
    stage.session.add(
        f"one node, {sizes.waiting:,} timers waiting",
        "memory for each",
        bytes_each,
        "bytes/timer",
        beside=("tuples in a dict and a heap", plain),
    )


def _measure_restart(
    stage: TimerStage, cluster: Cluster, sizes: WaitingSizes, empty_s: float
) -> None:
    """Measures a restart from the journal, after kill -9."""
    (node,) = cluster.addresses
    with stage.session.show.work("a restart", 1), stage.new_agent(agent) as fresh:
        cluster.nodes.kill(node)
        journal = cluster.nodes.data(node) / "timers.db"
        read_s = float(fresh.ask("read_all", journal=str(journal))["seconds"])
        started = time.perf_counter()
        cluster.nodes.start(node)
        took_s = time.perf_counter() - started
    stage.session.tally.expect(sizes.waiting, cluster.waiting())
    case = f"one node, {sizes.waiting:,} timers waiting"
    beside = ("reading the rows and their JSON", read_s)
    stage.session.add(case, "restart from the journal", took_s, "s", beside=beside)
    beside = ("of a node that keeps nothing", empty_s)
    stage.session.add(case, "restart, beside a start", took_s, "s", beside=beside)
