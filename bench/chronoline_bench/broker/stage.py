"""The stage of the bench `broker`: brokers, references, loads, and consumers side by side."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Any

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline.runtime.control import Control
from chronoline_bench.broker import agent, node
from chronoline_bench.broker.targets import SETTINGS, Broker, Table, Target, TubeTarget
from chronoline_bench.engines.contract import Database
from chronoline_bench.harness.agent import PATIENCE_S, AgentProcess, Figures
from chronoline_bench.harness.passage import Arrivals, Passage, count_up, take_pairs
from chronoline_bench.harness.stage import QUIET_S, Stage, await_count
from chronoline_bench.servers.beanstalkd import BeanstalkdServer, find_program
from chronoline_bench.session import Session

ENGINES = ("sqlite", "postgresql")
MOST_CONSUMERS = 4
BEANSTALKD = "beanstalkd"
TABLE = "the hand-written queue"
_WRITERS = 8
"""Connections of a producer at a rate that one connection cannot reach."""


class BrokerStage(Stage):
    """Every case has its own databases, tubes and tables; in a quick run the cases share the brokers."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._shared: dict[str, Broker] = {}
        self._tubes = count(1)

    @property
    def producer(self) -> AgentProcess:
        return self.agent(agent)

    # Targets

    def database(self, engine: str, name: str) -> Database:
        return (self.sqlite if engine == "sqlite" else self.postgres).open(name)

    @contextmanager
    def broker(self, engine: str, name: str, *, alone: bool = False) -> Iterator[Broker]:
        """Opens a broker on an empty database; a quick run shares it, unless it has to be alone."""
        if self.session.quick and not alone:
            if engine not in self._shared:
                made = self._start_broker(engine, engine)
                self._shared[engine] = self._opened.enter_context(made)
            yield self._shared[engine]
            return
        with self._start_broker(engine, name) as broker:
            yield broker

    def _start_broker(self, engine: str, name: str) -> Broker:
        return Broker(self.database(engine, name), self.new_agent(node))

    @contextmanager
    def tubes(self, name: str) -> Iterator[Callable[[], TubeTarget] | None]:
        """Starts a beanstalkd and yields a maker of tubes; None if beanstalkd is not available."""
        if not self._has_beanstalkd:
            yield None
            return
        with BeanstalkdServer(self.session.folder / name) as server:
            yield lambda: TubeTarget(server, f"tube-{next(self._tubes)}")

    @cached_property
    def _has_beanstalkd(self) -> bool:
        return find_beanstalkd(self.session)

    def table(self, name: str) -> Table:
        return Table(self.postgres.server, name)

    # Loads

    def carry(
        self, target: Target, *, rate: int, steady_s: float, delay_s: int, consumers: int
    ) -> Passage:
        """Puts messages at a rate, all with the same delay; for `steady_s` they come at the same rate."""
        messages = round(rate * (delay_s + steady_s))
        path = self.path()
        with self.crowd(target, consumers) as crowd, Control() as control:
            sent = self.producer.ask(
                "produce",
                PATIENCE_S + messages / rate,
                line=target.line(connections=_WRITERS),
                first=target.reserve(messages),
                messages=messages,
                rate=rate,
                delay_s=delay_s,
                path=str(path),
            )
            due_us = dict(take_pairs(path))
            crowd.await_settled(messages, quiet_s=QUIET_S + delay_s)
        self.check(target, due_us, crowd.arrivals)
        started_us, ended_us = int(sent["started_us"]), int(sent["ended_us"])
        return Passage(
            started_us=started_us,
            ended_us=ended_us,
            steady_us=(started_us + delay_s * 1_000_000, ended_us),
            due_us=due_us,
            arrivals=crowd.arrivals,
            control=control.lateness,
        )

    @contextmanager
    def crowd(self, target: Target, consumers: int, **line: Any) -> Iterator[Crowd]:
        """Runs consumers within the block; their arrivals are available after it."""
        crowd = Crowd([self.agent(agent, 1 + number) for number in range(consumers)])
        try:
            crowd.start(target.line(**line))
            if target.ours and consumers > 1:
                time.sleep(2 * SETTINGS.window_ms / 1000)  # until all have their shares
            yield crowd
        finally:
            crowd.stop(self)

    def check(self, target: Target, due_us: Mapping[int, int], arrivals: Arrivals) -> None:
        """Counts lost, duplicated and early messages."""
        self.add_tally(count_up(due_us, arrivals, left=target.left()), ours=target.ours)


class Crowd:
    """Consumers that work side by side."""

    def __init__(self, agents: list[AgentProcess]) -> None:
        self._agents = agents
        self.arrivals = Arrivals()
        """Available when the consumers have stopped."""

    def start(self, line: dict[str, Any]) -> None:
        for each in self._agents:
            each.begin("consume", line=line)
        self._answers()

    def await_settled(self, messages: int, *, quiet_s: float = QUIET_S) -> None:
        """Waits until they have settled this number, or no more messages come."""
        await_count(
            lambda: sum(int(each.ask("count")["settled"]) for each in self._agents),
            messages,
            quiet_s=quiet_s,
        )

    def stop(self, stage: Stage) -> None:
        paths = [stage.path() for _ in self._agents]
        for each, path in zip(self._agents, paths, strict=True):
            each.begin("stop", path=str(path))
        for counts, path in zip(self._answers(), paths, strict=True):
            self.arrivals.add(take_pairs(path), **counts)

    def _answers(self) -> list[Figures]:
        """Returns the answer of each, also after one failed, so that none is left for the next command."""
        answers: list[Figures] = []
        failed: list[ChronolineError] = []
        for each in self._agents:
            try:
                answers.append(each.answer())
            except ChronolineError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        return answers


def find_beanstalkd(session: Session) -> bool:
    """Whether beanstalkd is available; if not, adds a note and prints a line on stderr."""
    try:
        find_program()
    except MissingExtra as error:
        note = f"beanstalkd is NOT measured, so its rows have no reference: {error}"
        session.notes.append(note)
        print(note, file=sys.stderr, flush=True)
        return False
    return True


def people(consumers: int) -> str:
    return "one consumer" if consumers == 1 else f"{consumers} consumers"
