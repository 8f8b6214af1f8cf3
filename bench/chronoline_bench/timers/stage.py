"""The stage of the bench `timers`: clusters of nodes, and loads of timers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.plan import TimerPlan
from chronoline_bench.harness.agent import PATIENCE_S, AgentProcess
from chronoline_bench.harness.passage import Arrivals, Passage, take_pairs
from chronoline_bench.harness.stage import Stage, await_count
from chronoline_bench.timers import agent
from chronoline_bench.timers.requests import Load, SentTimer, When, read_sent
from chronoline_bench.workload import DAY_MS

FACTOR = 2
CONNECTIONS = 16
"""The default number of a sender's connections."""
_SLOWEST_RATE = 50
_PART = 20_000
_GRACE_S = 0.1


class Cluster:
    """Running nodes, and their addresses."""

    def __init__(self, nodes: TimerNodes, addresses: list[str]) -> None:
        self.nodes = nodes
        self.addresses = addresses

    def waiting(self) -> int:
        """Counts the waiting timers, once for each of their replicas."""
        return sum(self.nodes.ask(each, "/v1/nodes")["timers"] for each in self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pops(Passage):
    """The passage of timers, with the sent timers."""

    sent: tuple[SentTimer, ...]


class TimerStage(Stage):
    """Every case has its own cluster."""

    @property
    def sender(self) -> AgentProcess:
        return self.agent(agent)

    @property
    def receiver(self) -> AgentProcess:
        return self.agent(agent, 1)

    @property
    def uri(self) -> str:
        """The URI of the receiver's callbacks."""
        return str(self.receiver.ask("receive")["uri"])

    @contextmanager
    def cluster(self, size: int) -> Iterator[Cluster]:
        """Starts nodes without timers."""
        folder = self.path()
        folder.mkdir()
        addresses = free_addresses(size)
        with TimerNodes(folder) as nodes:
            nodes.write(addresses)
            nodes.start(*addresses)
            yield Cluster(nodes, addresses)

    # Loads

    def load(self, nodes: Sequence[str], timers: int, when: When, **more: Any) -> Load:
        """Makes a load of timers with new numbers that call the receiver."""
        first = self.reserve(timers)
        more = {"connections": CONNECTIONS, "factor": FACTOR, **more}
        return Load(nodes=nodes, uri=self.uri, first=first, timers=timers, when=when, **more)

    def carry(self, load: Load) -> Pops:
        """Sends timers, and waits until they have popped."""
        path = self.begin(load)
        return self.finish(load, path)

    def begin(self, load: Load) -> Path:
        """Starts to send timers; returns the path for `finish`."""
        path = self.path()
        self.sender.begin("send", load=asdict(load), path=str(path))
        return path

    def call_without_nodes(self, load: Load) -> Pops:
        """Runs the reference: the same timers in a process that sleeps and calls."""
        path = self.path()
        when = asdict(load.when)
        self.sender.begin(
            "call", uri=load.uri, first=load.first, timers=load.timers, when=when, path=str(path)
        )
        return self.finish(load, path)

    def finish(
        self, load: Load, path: Path, *, when_sent: Callable[[], None] = lambda: None
    ) -> Pops:
        """Waits until a load is sent, calls `when_sent`, and waits for the timers."""
        seconds = load.timers / load.rate if load.rate else 0
        longest_s = (load.when.longest_ms + load.when.lead_ms + load.when.span_ms) / 1000
        answer = self.sender.answer(PATIENCE_S + seconds + longest_s)
        when_sent()
        sent = tuple(read_sent(path))
        path.unlink()
        started_us, ended_us = int(answer["started_us"]), int(answer["ended_us"])
        return Pops(
            started_us=started_us,
            ended_us=ended_us,
            steady_us=(started_us + load.when.longest_ms * 1_000, ended_us),
            due_us={each.number: each.due_us for each in sent},
            arrivals=self._await(sent),
            sent=sent,
        )

    def _await(self, sent: Sequence[SentTimer]) -> Arrivals:
        await_count(
            lambda: int(self.receiver.ask("count")["came"]),
            len(sent),
            busy_until_s=max((each.due_us for each in sent), default=0) / 1e6,
        )
        skew_s = skew_ms(max((each.interval_ms for each in sent), default=0)) / 1000
        time.sleep(skew_s + _GRACE_S)  # until the other node would pop a timer a second time
        path = self.path()
        self.receiver.ask("take", path=str(path))
        arrivals = Arrivals()
        arrivals.add(take_pairs(path))
        return arrivals

    def far(self, nodes: Sequence[str], timers: int, **more: Any) -> Load:
        """Makes a load of timers that are due during the day after tomorrow."""
        return self.load(nodes, timers, When(shortest_ms=2 * DAY_MS, longest_ms=3 * DAY_MS), **more)

    def send_fast(self, load: Load) -> float:
        """Sends as fast as possible; returns timers per second."""
        answer = self.sender.ask(
            "send", PATIENCE_S + load.timers / _SLOWEST_RATE, load=asdict(load)
        )
        return float(answer["taken"] * 1e6 / (answer["ended_us"] - answer["started_us"]))

    def fill(self, title: str, nodes: Sequence[str], timers: int, **more: Any) -> float:
        """Sends many timers in parts, with a progress bar; returns timers per second."""
        seconds = 0.0
        with self.session.show.work(title, timers) as advance:
            for start in range(0, timers, _PART):
                part = min(_PART, timers - start)
                seconds += part / self.send_fast(self.far(nodes, part, **more))
                advance(part)
        return timers / seconds

    def check(self, passage: Passage, *, may_repeat: bool = False) -> None:
        """Counts lost, duplicated and early timers; after the kill of a node timers may come twice."""
        tally = passage.tally
        self.add_tally(replace(tally, duplicated=0) if may_repeat else tally)


def skew_ms(interval_ms: int) -> int:
    """Returns the time that the second replica of a timer waits for the first."""
    plan = TimerPlan(
        interval_ms=interval_ms, repeat_for_ms=interval_ms, uri="", opaque="", factor=FACTOR
    )
    return plan.skew_ms(1, FACTOR)
