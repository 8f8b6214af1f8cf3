"""The servers and processes of a run, and what is done with them: loads, and crowds of consumers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chronoline.core.closing import Closing
from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline.runtime.control import Control
from chronoline_bench.brokers.agents import PATIENCE_S, AgentProcess
from chronoline_bench.brokers.passage import Came, Passage, count_up
from chronoline_bench.brokers.targets import SETTINGS, Broker, Table, Target, TubeTarget
from chronoline_bench.engines.contract import Database
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.engines.sqlite import SqliteEngine
from chronoline_bench.pipes.records import read_pairs
from chronoline_bench.rounds import Figure, in_turn
from chronoline_bench.servers.beanstalkd import BeanstalkdServer, find_program
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally

ENGINES = ("sqlite", "postgresql")
MOST_CONSUMERS = 4
BEANSTALKD = "beanstalkd"
TABLE = "the hand-written queue"
CONTROL = "the control"
QUIET_S = 15.0
"""What has not come when nothing has come for so long is lost."""
_LOOK_EVERY_S = 0.1
_WRITERS = 8
"""Connections of a producer at a rate, where one cannot do it."""


class Stage(Closing):
    """PostgreSQL and the agents for a whole run. What is measured has a place of its own in each case."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.peers = Tally()
        """What the others lost, repeated or gave out early: no fault of ours."""
        self._files = 0
        self._agents: list[AgentProcess] = []
        with ExitStack() as opened:
            opened.callback(self._close_agents)
            self._start_agents()
            self.sqlite = SqliteEngine(session.folder)
            self.postgres = opened.enter_context(PostgresEngine(session.folder))
            self._has_beanstalkd = find_beanstalkd(session)
            self._shared: dict[str, Broker] = {}
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    @property
    def producer(self) -> AgentProcess:
        return self._agents[0]

    def renew_agents(self) -> None:
        """After something failed: who knows what they are at."""
        self._close_agents()
        self._start_agents()

    def _start_agents(self) -> None:
        said_path = self.session.folder / "agents.said"
        for _ in range(1 + MOST_CONSUMERS):
            self._agents.append(AgentProcess(said_path))

    def _close_agents(self) -> None:
        while self._agents:
            self._agents.pop().close()

    # Places

    def database(self, engine: str, name: str) -> Database:
        return (self.sqlite if engine == "sqlite" else self.postgres).open(name)

    @contextmanager
    def broker(self, engine: str, name: str, *, alone: bool = False) -> Iterator[Broker]:
        """A broker on an empty database; in a quick run the same one for all who need not be alone."""
        if self.session.quick and not alone:
            if engine not in self._shared:
                made = self._start_broker(engine, engine)
                self._shared[engine] = self._opened.enter_context(made)
            yield self._shared[engine]
            return
        with self._start_broker(engine, name) as broker:
            yield broker

    def _start_broker(self, engine: str, name: str) -> Broker:
        said_path = self.session.folder / f"{name}.said"
        if engine == "postgresql":
            postgres = self.postgres.open(name)
            return Broker(postgres, postgres.url, said_path)
        url = f"sqlite:///{self.session.folder / name}.db"
        return Broker(self.sqlite.open(name), url, said_path)

    @contextmanager
    def tubes(self, name: str) -> Iterator[Callable[[], TubeTarget] | None]:
        """New tubes of a beanstalkd; None where it cannot be had."""
        if not self._has_beanstalkd:
            yield None
            return
        with BeanstalkdServer(self.session.folder / name) as server:
            yield lambda: TubeTarget(server, f"tube-{self._number()}")

    def table(self, name: str) -> Table:
        return Table(self.postgres.server, name)

    # Loads

    def carry(
        self, target: Target, *, rate: int, steady_s: float, delay_s: int, consumers: int
    ) -> Passage:
        """Puts messages at a rate, all with the same delay, until for so long as many came as were put."""
        messages = round(rate * (delay_s + steady_s))
        path = self._path()
        with self.crowd(target, consumers) as crowd, Control() as control:
            told = self.producer.ask(
                "produce",
                PATIENCE_S + messages / rate,
                line=target.line(connections=_WRITERS),
                first=target.reserve(messages),
                messages=messages,
                rate=rate,
                delay_s=delay_s,
                path=str(path),
            )
            due_us = dict(read_pairs(path))
            crowd.await_settled(messages, quiet_s=QUIET_S + delay_s)
        path.unlink()
        self.check(target, due_us, crowd.came)
        return Passage(
            started_us=int(told["started_us"]),
            ended_us=int(told["ended_us"]),
            delay_s=delay_s,
            due_us=due_us,
            came_us=crowd.came.arrivals.first_us,
            control=control.lateness,
        )

    @contextmanager
    def crowd(self, target: Target, consumers: int, **more: Any) -> Iterator[Crowd]:
        """Within the block so many consumers take what comes; after it, what came is known."""
        crowd = Crowd(self._agents[1 : 1 + consumers])
        try:
            crowd.start(target.line(**more))
            if target.ours and consumers > 1:
                time.sleep(2 * SETTINGS.window_ms / 1000)  # then all have their shares
            yield crowd
        finally:
            crowd.stop([self._path() for _ in range(consumers)])

    def check(self, target: Target, due_us: Mapping[int, int], came: Came) -> None:
        """Counts what was lost, came twice or early."""
        tally = count_up(due_us, came, left=target.left())
        total = self.session.tally if target.ours else self.peers
        total.lost += tally.lost
        total.duplicated += tally.duplicated
        total.early += tally.early

    # Rounds and rows

    def in_turn(
        self, title: str, rounds: int, works: Mapping[str, Callable[[], Figure]]
    ) -> dict[str, list[Figure]]:
        """What each work found, one for each round. A full run begins with a round that does not count."""
        return in_turn(self.session, title, rounds, works)

    # Inside

    def _number(self) -> int:
        self._files += 1
        return self._files

    def _path(self) -> Path:
        return self.session.folder / f"pairs-{self._number()}"


class Crowd:
    """Consumers that work side by side."""

    def __init__(self, agents: list[AgentProcess]) -> None:
        self._agents = agents
        self.came = Came()
        """Known when they have stopped."""

    def start(self, line: dict[str, Any]) -> None:
        for agent in self._agents:
            agent.begin("consume", line=line)
        self._answers()

    def await_settled(self, messages: int, *, quiet_s: float = QUIET_S) -> None:
        """Waits until they have settled so many, or nothing more comes."""
        settled, changed_s = -1, time.monotonic()
        while settled < messages and time.monotonic() < changed_s + quiet_s:
            if settled >= 0:
                time.sleep(_LOOK_EVERY_S)  # they say how far they are when they are asked
            now = sum(int(agent.ask("count")["settled"]) for agent in self._agents)
            if now != settled:
                settled, changed_s = now, time.monotonic()

    def stop(self, paths: list[Path]) -> None:
        for agent, path in zip(self._agents, paths, strict=True):
            agent.begin("stop", path=str(path))
        for told, path in zip(self._answers(), paths, strict=True):
            self.came.add(read_pairs(path), **told)
            path.unlink()

    def _answers(self) -> list[dict[str, Any]]:
        """One of each, whatever the others say: no answer is left over for the next command."""
        answers: list[dict[str, Any]] = []
        failed: list[ChronolineError] = []
        for agent in self._agents:
            try:
                answers.append(agent.answer())
            except ChronolineError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return answers


def find_beanstalkd(session: Session) -> bool:
    """Whether it can be had; if not, that is said, at once and in the result."""
    try:
        find_program()
    except MissingExtra as error:
        told = f"beanstalkd is NOT measured, so that nothing is judged by it: {error}"
        session.notes.append(told)
        print(told, file=sys.stderr, flush=True)
        return False
    return True


def people(consumers: int) -> str:
    return "one consumer" if consumers == 1 else f"{consumers} consumers"
