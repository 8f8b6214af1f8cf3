"""The same work on a small and a large timeline, which should take the same time."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from chronoline.core.topic import Topic
from chronoline_bench.engines.contract import Database, Engine
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import Stopwatch, in_turn, medians, timed_ms
from chronoline_bench.session import Advance, Session
from chronoline_bench.tally import Served
from chronoline_bench.workload import CONSUMER, DAY_MS, LEASE_MS, SERVE_BATCH, Filling

SAME_TIME = Wanted(at_most=1.5)
WARM_UPS = 2
_FORECASTS = 3
FORECAST_STEP_MS = 900_000
_CHANCE = random.Random(4)


class Timeline:
    """A day of messages, of which the first `due` are due already.

    A method that returns a figure returns the duration of its work in ms; it checks the result afterwards.
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
        """Fetches the next due messages, oldest first, without leasing them."""
        now_ms = self._session.clock.now_ms()
        watch = Stopwatch()
        with watch.running():
            page = self._store.select(
                self._topic.uid, self._topic.all_buckets, limit=SERVE_BATCH, max_ts=now_ms
            )
        self._session.tally.expect(SERVE_BATCH, len(page.messages))
        return watch.ms

    def lease(self) -> float:
        """Leases a range; the ack that follows is not in the duration."""
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
        """Looks up the time of the next lease."""
        return timed_ms(lambda: self._store.next_ts(self._topic.uid, self._topic.all_buckets))

    def look_up(self, ids: int) -> float:
        """Looks up random messages of the timeline that have not been acked."""
        numbers = [self._waiting_number() for _ in range(ids)]
        wanted = {self.filling.id(number): self.filling.due(number) for number in numbers}
        watch = Stopwatch()
        with watch.running():
            found = self._store.lookup(self._topic.uid, list(wanted))
        right = sum(each in found and found[each].due == due for each, due in wanted.items())
        self._session.tally.expect(len(wanted), right)
        return watch.ms

    def count(self, first: int, last: int) -> float:
        """Counts the messages with these places."""
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
        """Takes the forecast of the whole day."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeSizes:
    rounds: int
    small: int
    """Half of the messages are due, the other half are counted."""
    large: int

    @property
    def half(self) -> int:
        return self.small // 2


def measure_large(
    session: Session, engine: Engine, sizes: LargeSizes, *, shuffled: bool = True
) -> None:
    """Measures each kind of work on both timelines in turn; then the size and forecast of the large one."""
    order = "shuffled" if shuffled else "in_order"
    case = f"{engine.name}: {sizes.large:,} waiting messages, written {order.replace('_', ' ')}"
    totals = {"small": sizes.small, "large": sizes.large}
    with ExitStack() as stack:
        timelines: dict[str, Timeline] = {}
        for name, total in totals.items():
            database = stack.enter_context(engine.open(f"{name}_{order}"))
            timeline = Timeline(session, database, total=total, due=sizes.half, shuffled=shuffled)
            with session.show.work(f"{engine.name}: filling, {order}", total) as advance:
                timeline.fill(advance)
            timelines[name] = timeline
        _report_size(session, case, timelines["large"])
        for kind in _kinds(sizes.half):
            _report_both(session, case, kind, timelines, sizes)
        _report_forecast(session, case, timelines["large"])


class _Kind(NamedTuple):
    """A kind of work that is measured on both timelines."""

    metric: str
    work: Callable[[Timeline], float]
    wanted: Wanted | None = SAME_TIME

    def on(self, timeline: Timeline) -> Callable[[], float]:
        return lambda: self.work(timeline)


def _kinds(half: int) -> tuple[_Kind, ...]:
    return (
        _Kind(f"fetch of the next due {SERVE_BATCH}", Timeline.fetch),
        _Kind(f"lease of {SERVE_BATCH} by range", Timeline.lease),
        _Kind("when the next falls due", Timeline.next_ts),
        _Kind("look-up of 1", lambda timeline: timeline.look_up(1)),
        # They are random: in a large table each is on another page, which is mostly not cached.
        _Kind(
            f"look-up of {SERVE_BATCH}", lambda timeline: timeline.look_up(SERVE_BATCH), wanted=None
        ),
        _Kind(f"count over {half:,}", lambda timeline: timeline.count(half, 2 * half)),
    )


def _report_both(
    session: Session, case: str, kind: _Kind, timelines: dict[str, Timeline], sizes: LargeSizes
) -> None:
    measures = {name: kind.on(timeline) for name, timeline in timelines.items()}
    ms = medians(in_turn(session, kind.metric, sizes.rounds, measures, warm_ups=WARM_UPS))
    session.add(
        case,
        kind.metric,
        ms["large"],
        "ms",
        beside=(f"among {sizes.small:,}", ms["small"]),
        wanted=kind.wanted,
    )


def _report_size(session: Session, case: str, large: Timeline) -> None:
    given = large.filling.body_bytes + len(large.filling.id(0))
    session.add(
        case,
        "on disk, with indexes",
        large.bytes_per_message,
        "bytes/message",
        beside=("body and id", given),
    )


def _report_forecast(session: Session, case: str, large: Timeline) -> None:
    measures = {"forecast": large.forecast, "raw": large.raw_count}
    ms = medians(in_turn(session, "forecast", _FORECASTS, measures, warm_ups=0))
    session.add(
        case,
        f"forecast of the whole day, {DAY_MS // FORECAST_STEP_MS} steps",
        ms["forecast"],
        "ms",
        beside=("raw count of all", ms["raw"]),
    )
