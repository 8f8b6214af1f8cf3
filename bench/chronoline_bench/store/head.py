"""The head of a timeline after many leases and acks, which leave dead rows behind."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from chronoline.core.topic import Topic
from chronoline_bench.engines.contract import Database, Engine
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import timed_ms
from chronoline_bench.session import Session
from chronoline_bench.tally import Served
from chronoline_bench.workload import SERVE_BATCH, Filling, count_all, serve

SAME_TIME = Wanted(at_most=1.5)
_LEFT = 10_000
"""Due messages that are left after the others have been served."""
_DUE_SPAN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    rounds: int
    served: int


def measure_head(session: Session, engine: Engine, sizes: HeadSizes) -> None:
    """Measures the fetch of the next due messages before and after, and again after the engine's clean-up."""
    with engine.open("head") as database:
        head = _Head(session, database, sizes.served + _LEFT)
        title = f"{engine.name}: {sizes.served:,} leases and acks"
        with session.show.work(title, sizes.served) as advance:
            before = head.fetch_ms(sizes.rounds)
            batches_s: list[float] = []
            while len(batches_s) * SERVE_BATCH < sizes.served:
                batches_s.append(head.serve_one())
                advance(SERVE_BATCH)
            after = head.fetch_ms(sizes.rounds)
            database.settle()
            cleaned = head.fetch_ms(sizes.rounds)
        head.check()
    case = f"{engine.name}: head of the timeline after {sizes.served:,} leases and acks"
    metric = f"fetch of the next due {SERVE_BATCH}"
    for name, value, wanted in (
        ("the first", after[0], None),
        ("median", median(after), SAME_TIME),
        (f"after {database.settling}", median(cleaned), SAME_TIME),
    ):
        session.add(
            case,
            f"{metric}, {name}",
            value,
            "ms",
            beside=("before", median(before)),
            wanted=wanted,
        )
    tenth = max(1, len(batches_s) // 10)
    session.add(
        case,
        "lease + ack, the last tenth",
        SERVE_BATCH / median(batches_s[-tenth:]),
        "messages/s",
        beside=("the first tenth", SERVE_BATCH / median(batches_s[:tenth])),
    )


class _Head:
    """A timeline with due messages only."""

    def __init__(self, session: Session, database: Database, total: int) -> None:
        now_ms = session.clock.now_ms()
        self._session = session
        self._database = database
        self._total = total
        self._topic: Topic = database.store.create_topic("head", now_ms=now_ms)
        filling = Filling(
            total=total, start_ms=now_ms - _DUE_SPAN_MS, span_ms=_DUE_SPAN_MS, now_ms=now_ms
        )
        database.fill(self._topic, filling, lambda _: None)
        database.settle()
        self.served = Served(session.tally)

    def serve_one(self) -> float:
        """Serves one batch; returns its seconds."""
        (batch_s,) = serve(
            self._database.store, self._topic, self._session.clock, self.served, most=SERVE_BATCH
        )
        return batch_s

    def fetch_ms(self, rounds: int) -> list[float]:
        return [self._fetch_ms() for _ in range(rounds)]

    def check(self) -> None:
        left = count_all(self._database.store, self._topic, self._session.clock.now_ms())
        self._session.tally.expect(self._total, len(self.served.ids) + left)

    def _fetch_ms(self) -> float:
        now_ms = self._session.clock.now_ms()
        return timed_ms(
            lambda: self._database.store.select(
                self._topic.uid, self._topic.all_buckets, limit=SERVE_BATCH, max_ts=now_ms
            )
        )
