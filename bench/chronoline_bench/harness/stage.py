"""The folder, servers and agents of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from pathlib import Path
from types import ModuleType

from chronoline.runtime.service import Closable
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.engines.sqlite import SqliteEngine
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.rounds import Figure, in_turn
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally

CONTROL = "the control"
QUIET_S = 15.0
"""A due message counts as lost when no message has come for this time."""
_LOOK_EVERY_S = 0.1


class Stage(Closable):
    """Servers and agents start when a case first needs them, and end with the stage.

    A bench derives its own stage, which starts the systems under test.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.peers = Tally()
        """Messages that references lost, repeated or delivered early: they are not in Chronoline's counts."""
        self._opened = ExitStack()
        self._opened.callback(self.end_agents)
        self._agents: dict[tuple[str, int], AgentProcess] = {}
        self._files = count(1)
        self._reserved = 0

    def close(self) -> None:
        self._opened.close()

    # Servers and files

    @cached_property
    def sqlite(self) -> SqliteEngine:
        return SqliteEngine(self.session.folder)

    @cached_property
    def postgres(self) -> PostgresEngine:
        return self._opened.enter_context(PostgresEngine(self.session.folder))

    def server_pids(self) -> dict[str, int]:
        """Returns the first process of each server that runs, by its name."""
        if "postgres" not in vars(self) or self.postgres.server.pid is None:
            return {}
        return {"PostgreSQL": self.postgres.server.pid}

    def path(self) -> Path:
        """Returns a new path in the run's folder."""
        return self.session.folder / f"part-{next(self._files)}"

    # Agents

    def agent(self, module: ModuleType, number: int = 0) -> AgentProcess:
        """Returns the agent with this number, which all cases share."""
        key = (module.__name__, number)
        if key not in self._agents:
            self._agents[key] = self.new_agent(module)
        return self._agents[key]

    def new_agent(self, module: ModuleType) -> AgentProcess:
        """Starts an agent that the caller stops."""
        agent = AgentProcess(module, self.session.folder / "agents.log")
        agent.start()
        return agent

    def end_agents(self) -> None:
        """Ends the shared agents; also after a failed case, since their state is unknown then."""
        while self._agents:
            self._agents.popitem()[1].stop()

    # Messages

    def reserve(self, messages: int) -> int:
        """Reserves message numbers, which are unique in the run; returns the first."""
        self._reserved += messages
        return self._reserved - messages

    def add_tally(self, tally: Tally, *, ours: bool = True) -> None:
        (self.session.tally if ours else self.peers).add(tally)

    def in_turn(
        self, title: str, rounds: int, measures: Mapping[str, Callable[[], Figure]]
    ) -> dict[str, list[Figure]]:
        """Returns the figures of each measure, one for each round. A full run begins with a warm-up."""
        warm_ups = 0 if self.session.quick else 1
        return in_turn(self.session, title, rounds, measures, warm_ups=warm_ups)


def await_count(
    found: Callable[[], int], wanted: int, *, quiet_s: float = QUIET_S, busy_until_s: float = 0.0
) -> bool:
    """Waits until the wanted number is found, or the number stays the same for `quiet_s`; true if all came.

    Until `busy_until_s` of the monotonic clock the number may stay the same.
    """
    before, changed_s = -1, time.monotonic()
    while before < wanted and time.monotonic() < max(changed_s, busy_until_s) + quiet_s:
        if before >= 0:
            time.sleep(_LOOK_EVERY_S)  # the count is polled from another process
        now = found()
        if now != before:
            before, changed_s = now, time.monotonic()
    return before >= wanted
