"""Wake-ups: the time from an append to a waiting reader, in the same process and in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest import mock

from chronoline.core.lateness import Lateness
from chronoline.log import Event, Log
from chronoline.log.index.sqlite import SqliteIndex
from chronoline_bench.harness.agent import AgentProcess
from chronoline_bench.log import appender
from chronoline_bench.log.appender import Acknowledged, append_now_and_then
from chronoline_bench.log.events import PARTITIONS, Book
from chronoline_bench.report import Wanted
from chronoline_bench.session import Session

MAX_LATENCY_MS = 100
COMMIT_CEILING = Wanted(at_most=2)
LATENCY_CEILING = Wanted(at_most=1)
_TOPIC = "waking"
_GROUP = "waiting"
_LONGEST_GAP_S = 0.02
_PATIENCE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeupSizes:
    rounds: int
    events: int
    """Events in each round, by each process."""


def measure_wakeups(session: Session, sizes: WakeupSizes) -> None:
    url = f"file://{session.folder}/waking"
    with (
        Log(url, max_latency_ms=MAX_LATENCY_MS) as log,
        AgentProcess(appender, session.folder / "appender.log") as agent,
    ):
        log.create_topic(_TOPIC, partitions=PARTITIONS)
        waking = _Waking(session, log, sizes.events)
        with session.show.work("waking", 2 * sizes.rounds) as advance:
            for _ in range(sizes.rounds):
                waking.append_here()
                advance(1)
                waking.append_elsewhere(agent, url)
                advance(1)
    waking.report()


class _Waking:
    def __init__(self, session: Session, log: Log, events: int) -> None:
        self._session = session
        self._log = log
        self._events = events
        self._book = Book(session.tally)
        self._here: list[Lateness] = []
        self._elsewhere: list[Lateness] = []
        self._commits: list[Lateness] = []

    def append_here(self) -> None:
        commits_ms: list[float] = []
        with self._reading() as reader, _timing_commits(commits_ms):
            acknowledged = append_now_and_then(self._log, _TOPIC, self._events, _LONGEST_GAP_S)
            self._here.append(self._finish(reader, acknowledged))
        self._commits.append(Lateness.of(commits_ms))

    def append_elsewhere(self, agent: AgentProcess, url: str) -> None:
        with self._reading() as reader:
            answer = agent.ask(
                "append",
                url=url,
                topic=_TOPIC,
                events=self._events,
                longest_gap_s=_LONGEST_GAP_S,
            )
            acknowledged = [
                Acknowledged(partition, sequence, at_s, bytes.fromhex(value))
                for partition, sequence, at_s, value in answer["acknowledged"]
            ]
            self._elsewhere.append(self._finish(reader, acknowledged))

    @contextmanager
    def _reading(self) -> Iterator[_Reader]:
        """Starts a waiting reader; its first event is not measured."""
        reader = _Reader(self._log, self._events + 1)
        first = append_now_and_then(self._log, _TOPIC, 1, 0)
        self._book.note(first, first)
        reader.began.wait(_PATIENCE_S)
        yield reader

    def _finish(self, reader: _Reader, acknowledged: Sequence[Acknowledged]) -> Lateness:
        reader.thread.join(_PATIENCE_S)  # after a loss it waits until the log is closed
        self._book.note(acknowledged, acknowledged)
        self._book.check(reader.found)
        self._book.turn()
        came_s = reader.came_s
        places = {(each.partition, each.sequence): each.at_s for each in acknowledged}
        # It may come before its acknowledgement.
        return Lateness.of(
            max(0.0, came_s[place] - at_s) * 1000
            for place, at_s in places.items()
            if place in came_s
        )

    def report(self) -> None:
        case = "from the acknowledgement to a waiting reader"
        for name, p in (("p99", "p99_ms"), ("median", "p50_ms")):
            self._session.add(
                case,
                f"appended in the same process, {name}",
                median(getattr(late, p) for late in self._here),
                "ms",
                beside=(
                    f"the index commit, {name}",
                    median(getattr(took, p) for took in self._commits),
                ),
                wanted=COMMIT_CEILING,
            )
        for name, p in (("p99", "p99_ms"), ("median", "p50_ms")):
            self._session.add(
                case,
                f"appended in another process, {name}",
                median(getattr(late, p) for late in self._elsewhere),
                "ms",
                beside=("max_latency_ms", MAX_LATENCY_MS),
                wanted=LATENCY_CEILING,
            )


class _Reader:
    """A thread that waits for events and notes their arrival times."""

    def __init__(self, log: Log, events: int) -> None:
        self.found: list[Event] = []
        self.came_s: dict[tuple[int, int], float] = {}
        self.began = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(log, events), daemon=True)
        self.thread.start()

    def _run(self, log: Log, events: int) -> None:
        for event in log.read(_TOPIC, group=_GROUP, limit=events):
            self.came_s[event.partition, event.sequence] = time.monotonic()
            self.found.append(event)
            self.began.set()


@contextmanager
def _timing_commits(took_ms: list[float]) -> Iterator[None]:
    commit = SqliteIndex.commit

    def timed(*arguments: Any, **named: Any) -> list[int]:
        started = time.perf_counter()
        try:
            return commit(*arguments, **named)
        finally:
            took_ms.append((time.perf_counter() - started) * 1000)

    with mock.patch.object(SqliteIndex, "commit", timed):
        yield
