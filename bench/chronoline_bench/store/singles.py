"""Single creates from many threads, committed in groups, beside raw commits of one row each."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import count

from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.topic import Topic
from chronoline.delivery.storage_threads import StorageThreads
from chronoline_bench.engines.contract import Database, Engine, raw_row
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import at_once, in_turn, medians
from chronoline_bench.session import Session
from chronoline_bench.workload import AHEAD_MS, BODY_BYTES, count_all

THREADS = 64
SINGLES_FLOOR = Wanted(at_least=5)
_BODY = bytes(BODY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleSizes:
    rounds: int
    seconds: float
    """The duration of each measure in each round."""


def measure_singles(session: Session, engine: Engine, sizes: SingleSizes) -> None:
    with engine.open("singles") as own, engine.open("singles_raw") as raw:
        topic = own.store.create_topic("singles", now_ms=session.clock.now_ms())
        threads = StorageThreads(own.store, session.clock)
        try:
            work = _Singles(session, topic, threads, raw, sizes.seconds)
            title = f"{engine.name}: singles"
            measures = {"create": work.create, "raw": work.commit}
            rates = medians(in_turn(session, title, sizes.rounds, measures))
        finally:
            threads.close()
        found = count_all(own.store, topic, session.clock.now_ms())
        session.tally.expect(work.created, found)
    session.add(
        f"{engine.name}: singles",
        f"single creates, {THREADS} threads, each waits for its answer",
        rates["create"],
        "messages/s",
        beside=("raw commits of one row", rates["raw"]),
        wanted=SINGLES_FLOOR,
    )


class _Singles:
    def __init__(
        self, session: Session, topic: Topic, threads: StorageThreads, raw: Database, seconds: float
    ) -> None:
        self._session = session
        self._topic = topic
        self._threads = threads
        self._raw = raw
        self._seconds = seconds
        self._numbers = count()
        self.created = 0

    def create(self) -> float:
        """Creates messages in many threads; each waits for its answer before the next."""
        answers: list[list[Outcome]] = [[] for _ in range(THREADS)]

        def send(answered: list[Outcome]) -> None:
            end = time.perf_counter() + self._seconds
            while time.perf_counter() < end:
                answer = self._threads.create(self._topic.uid, [self._message()])
                answered += answer.result()

        took_s = at_once([partial(send, answered) for answered in answers])
        outcomes = [outcome for answered in answers for outcome in answered]
        self._session.tally.expect_done(outcomes)
        self.created += len(outcomes)
        return len(outcomes) / took_s

    def commit(self) -> float:
        started = now = time.perf_counter()
        rows = 0
        while now - started < self._seconds:
            row = raw_row(self._topic, self._message(), self._session.clock.now_ms())
            self._raw.insert_one(row)
            rows += 1
            now = time.perf_counter()
        return rows / (now - started)

    def _message(self) -> NewMessage:
        now_ms = self._session.clock.now_ms()
        return NewMessage(id=f"single-{next(self._numbers)}", due=now_ms + AHEAD_MS, body=_BODY)
