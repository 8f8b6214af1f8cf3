"""The stage of the bench `timers`: clusters of nodes, and loads of timers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chronoline.node.local_nodes import TimerNodes, free_addresses
from chronoline.timers.plan import Plan
from chronoline_bench.harness.agent import PATIENCE_S, AgentProcess
from chronoline_bench.harness.passage import Arrivals, Passage, take_pairs
from chronoline_bench.harness.stage import Stage, await_count
from chronoline_bench.timers import agent
from chronoline_bench.timers.requests import Asked, Load, When, read_asked
from chronoline_bench.workload import DAY_MS

FACTOR = 2
CONNECTIONS = 16
"""Connections of an asker, by default."""
_SLOWEST_RATE = 50
_PART = 20_000
_GRACE_S = 0.1


class Cluster:
    """Nodes that run, and their addresses."""

    def __init__(self, nodes: TimerNodes, addresses: list[str]) -> None:
        self.nodes = nodes
        self.addresses = addresses

    def waiting(self) -> int:
        """Timers that wait, counted on every node that keeps them."""
        return sum(self.nodes.ask(each, "/v1/nodes")["timers"] for each in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pops(Passage):
    """The passage of timers, with what was asked for."""

    asked: tuple[Asked, ...]


class TimerStage(Stage):
    """Every case has a cluster of its own."""

    @property
    def asker(self) -> AgentProcess:
        return self.agent(agent)

    @property
    def receiver(self) -> AgentProcess:
        return self.agent(agent, 1)

    @property
    def uri(self) -> str:
        """Where the receiver takes callbacks."""
        return str(self.receiver.ask("receive")["uri"])

    @contextmanager
    def cluster(self, size: int) -> Iterator[Cluster]:
        """Nodes that keep nothing yet."""
        folder = self.path()
        folder.mkdir()
        addresses = free_addresses(size)
        with TimerNodes(folder) as nodes:
            nodes.write(addresses)
            nodes.start(*addresses)
            yield Cluster(nodes, addresses)

    # Loads

    def load(self, nodes: Sequence[str], timers: int, when: When, **more: Any) -> Load:
        """Timers with numbers of their own that call the receiver."""
        first = self.reserve(timers)
        more = {"connections": CONNECTIONS, "factor": FACTOR, **more}
        return Load(nodes=nodes, uri=self.uri, first=first, timers=timers, when=when, **more)

    def carry(self, load: Load) -> Pops:
        """Ask for timers, and wait until they have popped."""
        path = self.begin(load)
        return self.finish(load, path)

    def begin(self, load: Load) -> Path:
        """Begin to ask for timers; the path for `finish`."""
        path = self.path()
        self.asker.begin("ask", load=asdict(load), path=str(path))
        return path

    def call_without_nodes(self, load: Load) -> Pops:
        """The reference: the same timers in a process that sleeps and calls."""
        path = self.path()
        when = asdict(load.when)
        self.asker.begin(
            "call", uri=load.uri, first=load.first, timers=load.timers, when=when, path=str(path)
        )
        return self.finish(load, path)

    def finish(
        self, load: Load, path: Path, *, when_asked: Callable[[], None] = lambda: None
    ) -> Pops:
        """Wait for the end of a load that is under way, call `when_asked`, and wait for the timers."""
        seconds = load.timers / load.rate if load.rate else 0
        longest_s = (load.when.longest_ms + load.when.lead_ms + load.when.span_ms) / 1000
        sent = self.asker.answer(PATIENCE_S + seconds + longest_s)
        when_asked()
        asked = tuple(read_asked(path))
        path.unlink()
        started_us, ended_us = int(sent["started_us"]), int(sent["ended_us"])
        return Pops(
            started_us=started_us,
            ended_us=ended_us,
            steady_us=(started_us + load.when.longest_ms * 1_000, ended_us),
            due_us={each.number: each.due_us for each in asked},
            arrivals=self._await(asked),
            asked=asked,
        )

    def _await(self, asked: Sequence[Asked]) -> Arrivals:
        await_count(
            lambda: int(self.receiver.ask("count")["came"]),
            len(asked),
            busy_until_s=max((each.due_us for each in asked), default=0) / 1e6,
        )
        skew_s = skew_ms(max((each.interval_ms for each in asked), default=0)) / 1000
        time.sleep(skew_s + _GRACE_S)  # the other node would pop a timer a second time then
        path = self.path()
        self.receiver.ask("take", path=str(path))
        arrivals = Arrivals()
        arrivals.add(take_pairs(path))
        return arrivals

    def far(self, nodes: Sequence[str], timers: int, **more: Any) -> Load:
        """Timers that are due during one day, the day after tomorrow."""
        return self.load(nodes, timers, When(shortest_ms=2 * DAY_MS, longest_ms=3 * DAY_MS), **more)

    def ask_fast(self, load: Load) -> float:
        """Ask as fast as possible; timers a second."""
        sent = self.asker.ask("ask", PATIENCE_S + load.timers / _SLOWEST_RATE, load=asdict(load))
        return float(sent["taken"] * 1e6 / (sent["ended_us"] - sent["started_us"]))

    def fill(self, title: str, nodes: Sequence[str], timers: int, **more: Any) -> float:
        """Ask for many timers in parts, with a progress bar; timers a second."""
        seconds = 0.0
        with self.session.show.work(title, timers) as advance:
            for start in range(0, timers, _PART):
                part = min(_PART, timers - start)
                seconds += part / self.ask_fast(self.far(nodes, part, **more))
                advance(part)
        return timers / seconds

    def check(self, passage: Passage, *, may_repeat: bool = False) -> None:
        """Count what was lost, came twice or early; where a node is killed, timers may come twice."""
        tally = passage.tally
        self.add_tally(replace(tally, duplicated=0) if may_repeat else tally)


def skew_ms(interval_ms: int) -> int:
    """How long the second replica of a timer waits for the first."""
    plan = Plan(
        interval_ms=interval_ms, repeat_for_ms=interval_ms, uri="", opaque="", factor=FACTOR
    )
    return plan.skew_ms(1, FACTOR)
