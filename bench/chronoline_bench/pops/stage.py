"""The processes of a run, and what is done with them: clusters, and loads of timers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chronoline.core.closing import Closing
from chronoline.node.local_nodes import TimerNodes, free_addresses
from chronoline.timers.plan import Plan
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.brokers.agents import PATIENCE_S, AgentProcess
from chronoline_bench.messages import DAY_MS
from chronoline_bench.pipes.records import read_pairs
from chronoline_bench.pops import agent
from chronoline_bench.pops.asking import Load, When
from chronoline_bench.pops.notes import Asked, now_us, read_asked
from chronoline_bench.pops.passage import Passage
from chronoline_bench.session import Session

QUIET_S = 15.0
"""What has not come when nothing has come for so long, and everything is due, is lost."""
FACTOR = 2
CONNECTIONS = 16
"""Of whoever asks for timers, if nothing else is said."""
_LOOK_EVERY_S = 0.1
_SLOWEST_RATE = 50
_PART = 20_000


class Cluster:
    """Nodes that run."""

    def __init__(self, nodes: TimerNodes, addresses: list[str]) -> None:
        self.nodes = nodes
        self.addresses = addresses

    def waiting(self) -> int:
        """Timers that wait, counted on every node that keeps them."""
        return sum(self.nodes.ask(each, "/v1/nodes")["timers"] for each in self.addresses)


class Stage(Closing):
    """The agents for a whole run. Every case has a cluster of its own."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._next = 0
        self._files = 0
        self._agents: list[AgentProcess] = []
        self.renew_agents()

    def close(self) -> None:
        while self._agents:
            self._agents.pop().close()

    def renew_agents(self) -> None:
        """Also after something failed: who knows what they are at."""
        self.close()
        self._agents += [self.agent(), self.agent()]
        self.uri: str = self.receiver.ask("receive")["uri"]

    def agent(self) -> AgentProcess:
        """One more, for whoever closes it."""
        return AgentProcess(self.session.folder / "agents.said", agent.__name__)

    @property
    def receiver(self) -> AgentProcess:
        return self._agents[0]

    @property
    def asker(self) -> AgentProcess:
        return self._agents[1]

    @contextmanager
    def cluster(self, size: int) -> Iterator[Cluster]:
        """So many nodes that keep nothing yet."""
        folder = self.path()
        folder.mkdir()
        addresses = free_addresses(size)
        with TimerNodes(folder) as nodes:
            nodes.write(addresses)
            nodes.start(*addresses)
            yield Cluster(nodes, addresses)

    def path(self) -> Path:
        """A name that nobody has yet."""
        self._files += 1
        return self.session.folder / f"part-{self._files}"

    # Loads

    def load(self, nodes: Sequence[str], timers: int, when: When, **more: Any) -> Load:
        """Timers with numbers of their own, that call the receiver."""
        self._next += timers
        more = {"connections": CONNECTIONS, "factor": FACTOR, **more}
        return Load(
            nodes=nodes, uri=self.uri, first=self._next - timers, timers=timers, when=when, **more
        )

    def carry(self, load: Load) -> Passage:
        """Asks for timers, and waits until they have popped."""
        path = self.path()
        self.asker.begin("ask", load=asdict(load), path=str(path))
        return self.passage(load, path)

    def call_without_nodes(self, load: Load) -> Passage:
        """The reference: the same timers in a process that sleeps and calls."""
        path = self.path()
        when = asdict(load.when)
        self.asker.begin(
            "call", uri=load.uri, first=load.first, timers=load.timers, when=when, path=str(path)
        )
        return self.passage(load, path)

    def passage(self, load: Load, path: Path) -> Passage:
        """Waits for the end of a load that is under way, and for what it asked for."""
        seconds = load.timers / load.rate if load.rate else 0
        longest_s = (load.when.longest_ms + load.when.lead_ms + load.when.span_ms) / 1000
        told = self.asker.answer(PATIENCE_S + seconds + longest_s)
        asked = tuple(read_asked(path))
        path.unlink()
        return Passage(
            started_us=int(told["started_us"]),
            ended_us=int(told["ended_us"]),
            asked=asked,
            arrivals=self._await(asked),
        )

    def _await(self, asked: Sequence[Asked]) -> Arrivals:
        last_s = max((each.due_us for each in asked), default=0) / 1e6
        came, changed_s = -1, time.monotonic()
        while came < len(asked) and time.monotonic() < max(changed_s, last_s) + QUIET_S:
            if came >= 0:
                time.sleep(_LOOK_EVERY_S)  # it says what came when it is asked
            now = int(self.receiver.ask("count")["came"])
            if now != came:
                came, changed_s = now, time.monotonic()
        skew_s = skew_ms(max((each.interval_ms for each in asked), default=0)) / 1000
        time.sleep(skew_s + _LOOK_EVERY_S)  # twice comes what comes at the other node's turn
        path = self.path()
        self.receiver.ask("take", path=str(path))
        arrivals = Arrivals()
        arrivals.add(read_pairs(path))
        path.unlink()
        return arrivals

    def far(self, nodes: Sequence[str], timers: int, **more: Any) -> Load:
        """Timers that are due during one day, the day after tomorrow."""
        return self.load(nodes, timers, When(shortest_ms=2 * DAY_MS, longest_ms=3 * DAY_MS), **more)

    def ask_fast(self, load: Load) -> float:
        """Asks as fast as it goes; timers a second."""
        told = self.asker.ask("ask", PATIENCE_S + load.timers / _SLOWEST_RATE, load=asdict(load))
        return float(told["taken"] * 1e6 / (told["ended_us"] - told["started_us"]))

    def fill(self, title: str, nodes: Sequence[str], timers: int, **more: Any) -> float:
        """The same with many, in parts, so that it can be seen how far it is."""
        seconds = 0.0
        with self.session.show.work(title, timers) as advance:
            for start in range(0, timers, _PART):
                part = min(_PART, timers - start)
                seconds += part / self.ask_fast(self.far(nodes, part, **more))
                advance(part)
        return timers / seconds

    # Counts

    def check(self, passage: Passage, *, may_repeat: bool = False) -> None:
        """Counts what was lost, came twice or early; where a node is killed some may come twice."""
        tally, total = passage.tally(), self.session.tally
        total.lost += tally.lost
        total.early += tally.early
        total.duplicated += 0 if may_repeat else tally.duplicated


def skew_ms(interval_ms: int) -> int:
    """How long the second replica of a timer waits for the first."""
    plan = Plan(
        interval_ms=interval_ms, repeat_for_ms=interval_ms, uri="", opaque="", factor=FACTOR
    )
    return plan.skew_ms(1, FACTOR)


def sleep_until(moment_us: int) -> None:
    """A moment of the clock that everything here goes by."""
    while (wait_us := moment_us - now_us()) > 0:
        time.sleep(wait_us / 1e6)  # nothing else happens then
