"""A timeline of a known size and shape, and the work that is measured on it."""

from __future__ import annotations

import random

from chronoline.core.topic import Topic
from chronoline_bench.engines.contract import Database
from chronoline_bench.filling import Filling
from chronoline_bench.messages import DAY_MS
from chronoline_bench.rounds import Stopwatch, timed_ms
from chronoline_bench.serving import CONSUMER, LEASE_MS, SERVE_BATCH
from chronoline_bench.session import Session
from chronoline_bench.show import Advance
from chronoline_bench.tally import Served

FORECAST_STEP_MS = 900_000
_CHANCE = random.Random(4)


class Timeline:
    """A day of messages, of which the first `due` are due already.

    What answers a figure is how long the work took, in ms; what it found is checked outside of that time.
    """

    def __init__(
        self, session: Session, database: Database, *, total: int, due: int, shuffled: bool
    ) -> None:
        now_ms = session.clock.now_ms()
        self._session = session
        self._database = database
        self._store = database.store
        self._topic: Topic = self._store.create_topic("timeline", now_ms=now_ms)
        self._served = Served(session.tally)
        self.filling = Filling(
            total=total,
            start_ms=now_ms - due * DAY_MS // total,
            span_ms=DAY_MS,
            now_ms=now_ms,
            shuffled=shuffled,
        )

    @property
    def bytes_per_message(self) -> float:
        return self._database.bytes_on_disk() / self.filling.total

    def fill(self, advance: Advance) -> None:
        self._database.fill(self._topic, self.filling, advance)
        self._database.settle()
        self._session.tally.expect(self.filling.total, self._database.count(self._topic))

    def fetch(self) -> float:
        """The next that are due, oldest first, without leasing them."""
        now_ms = self._session.clock.now_ms()
        watch = Stopwatch()
        with watch.running():
            page = self._store.select(
                self._topic.uid, self._topic.all_buckets, limit=SERVE_BATCH, max_ts=now_ms
            )
        self._session.tally.expect(SERVE_BATCH, len(page.messages))
        return watch.ms

    def lease(self) -> float:
        """A lease by range; the ack that follows is not in the time."""
        now_ms = self._session.clock.now_ms()
        watch = Stopwatch()
        with watch.running():
            grant = self._store.reserve(
                self._topic.uid,
                self._topic.all_buckets,
                consumer=CONSUMER,
                limit=SERVE_BATCH,
                lease_ms=LEASE_MS,
                now_ms=now_ms,
            )
        leases = [leased.lease for leased in grant.leased]
        self._session.tally.expect(SERVE_BATCH, len(leases))
        acked = self._store.ack(self._topic.uid, leases, now_ms=self._session.clock.now_ms())
        self._served.add(grant, acked, now_ms)
        return watch.ms

    def next_ts(self) -> float:
        """When something can next be leased."""
        return timed_ms(lambda: self._store.next_ts(self._topic.uid, self._topic.all_buckets))

    def look_up(self, ids: int) -> float:
        """Messages anywhere on the timeline that nobody has acked."""
        numbers = [self._waiting_number() for _ in range(ids)]
        wanted = {self.filling.id(number): self.filling.due(number) for number in numbers}
        watch = Stopwatch()
        with watch.running():
            found = self._store.lookup(self._topic.uid, list(wanted))
        right = sum(each in found and found[each].due == due for each, due in wanted.items())
        self._session.tally.expect(len(wanted), right)
        return watch.ms

    def count(self, first: int, last: int) -> float:
        """The messages with these places."""
        watch = Stopwatch()
        with watch.running():
            counts = self._store.count(
                self._topic.uid,
                self._topic.all_buckets,
                start=self.filling.moment(first),
                end=self.filling.moment(last),
                now_ms=self._session.clock.now_ms(),
            )
        self._session.tally.expect(last - first, counts.total)
        return watch.ms

    def forecast(self) -> float:
        """The whole day."""
        watch = Stopwatch()
        with watch.running():
            steps = self._store.forecast(
                self._topic.uid,
                self._topic.all_buckets,
                start=self.filling.start_ms,
                end=self.filling.start_ms + DAY_MS,
                step_ms=FORECAST_STEP_MS,
                now_ms=self._session.clock.now_ms(),
            )
        left = self.filling.total - len(self._served.ids)
        self._session.tally.expect(left, sum(step.counts.total for step in steps))
        return watch.ms

    def raw_count(self) -> float:
        return timed_ms(lambda: self._database.count(self._topic))

    def _waiting_number(self) -> int:
        while True:
            number = _CHANCE.randrange(self.filling.total)
            if self.filling.id(number) not in self._served.ids:
                return number
