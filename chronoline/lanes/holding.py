"""What a lane holds, and what it says to the store: the side of the storing thread, for every kind of lane.

State. The agenda holds what was reserved and has not left it. What left it is the lane's, until the lane
says what is to become of it: acked, tried again (`retry`), or given back (`unreserve`). That waits here for
the next `flush`, which says it in batches.

Threads. `changed` guards the agenda and everything that waits, and tells the firing thread of news. The
methods that talk to the store are called by the storing thread alone, and without `changed`.

Failures. Whatever a flush could not say is said again: a repeated ack changes nothing. A reservation that was
not answered may have leased messages that nobody knows of; `recover` looks them up and gives them back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from chronoline.clock import Clock, SystemClock
from chronoline.core.agenda import Agenda
from chronoline.core.errors import InvalidInput, OutcomeUnknown
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES, MIN_LEASE_MS, name_problem
from chronoline.core.message import Lease, Message
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import Topic
from chronoline.stores.contract import MAX_BATCH, Store, Watch

DEFAULT_HOLD_MS = 5_000
DEFAULT_RETRY_MS = 1_000
RESERVE_ROWS = 500
_SHORTEST_HOLD_MS = 10 * MIN_LEASE_MS

logger = logging.getLogger(__name__)


class Holding:
    """The leases of one lane, from their reservation to the last word about them.

    `rest_ms` is how long it leaves a store alone that failed.
    """

    def __init__(
        self,
        store: Store,
        topic: Topic,
        agenda: Agenda,
        *,
        consumer: str,
        ranges: Sequence[BucketRange] | None,
        clock: Clock | None,
        hold_ms: int,
        retry_ms: int,
        rest_ms: int,
    ) -> None:
        _check(consumer, hold_ms, retry_ms)
        self.store = store
        self.topic = topic
        self.clock = clock or SystemClock()
        self.hold_ms = hold_ms
        self.changed = threading.Condition()
        self.agenda = agenda
        agenda.largest_bytes = topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        self.to_ack: list[Lease] = []
        self.to_retry: list[Lease] = []
        self.unwanted: list[Lease] = []  # to be given back
        self.flush_at: int | None = None
        self.given_back = 0  # so many were ever unwanted
        self._consumer = consumer
        wanted = topic.all_buckets if ranges is None else ranges
        self._ranges = merge_ranges(wanted, topic.settings.buckets)
        self._retry_ms = retry_ms
        self._rest_ms = rest_ms
        # When a reservation was asked for that the store did not answer.
        self._unanswered: tuple[int, Sequence[BucketRange]] | None = (
            None  # when, and of which buckets
        )
        self._watch: Watch | None = None

    def cover(self, ranges: Sequence[BucketRange]) -> None:
        """Reserves in these buckets from now on."""
        merged = merge_ranges(ranges, self.topic.settings.buckets)
        if merged != self._ranges:
            self._ranges = merged
            with self.changed:
                self.agenda.noticed(None)

    # The watch

    def open_watch(self) -> None:
        if self._watch is None:
            self._watch = self.store.watch()
            with self.changed:
                self.agenda.noticed(None)  # nobody was watching

    def close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def wake(self) -> None:
        """Ends the sleep of the storing thread, or its next one."""
        watch = self._watch
        if watch is not None:
            watch.wake()

    def sleep(self, timeout_s: float) -> None:
        """Sleeps on the watch, and tells the agenda what was noticed."""
        if self._watch is None or timeout_s <= 0:
            return
        for notice in self._watch.wait(timeout_s):
            if notice.topic_uid in (None, self.topic.uid):
                self._notice(notice.due)

    def _notice(self, due: int | None) -> None:
        if due is None:  # someone changed something: looking costs less than reserving
            due = self.store.next_ts(self.topic.uid, self._ranges)
        if due is not None:
            with self.changed:
                self.agenda.noticed(due)

    def rest(self, disturbed: Callable[[], bool]) -> None:
        """Sleeps for a moment, whatever is noticed meanwhile, and looks again."""
        now_ms = self.clock.now_ms()
        until_ms = now_ms + self._rest_ms
        with self.changed:
            self.agenda.postponed(until_ms, now_ms=now_ms)
            self.changed.wait_for(disturbed, self.clock.seconds_until(until_ms))

    # What is to be said

    def give_back(self, leases: Sequence[Lease]) -> None:
        """To be called with `changed`."""
        if leases:
            self.unwanted += leases
            self.given_back += len(leases)
            self.flush_at = 0

    def flush(self, *, at_once: bool = False) -> None:
        """Says what waits to be said, if its time has come."""
        now_ms = self.clock.now_ms()
        with self.changed:
            soon_ms = now_ms + max(self._rest_ms, self.agenda.reserve_ahead_ms)
            if self.flush_at is None or (now_ms < self.flush_at <= soon_ms and not at_once):
                return  # a moment that lies further ahead is from before the clock was put back
            acks, self.to_ack = self.to_ack, []
            retries, self.to_retry = self.to_retry, []
            unwanted, self.unwanted = self.unwanted, []
            self.flush_at = None
        try:
            _say("ack", acks, partial(self.store.ack, self.topic.uid, now_ms=now_ms))
            _say("retry", retries, partial(self._retry, now_ms=now_ms))
            _say(
                "unreserve", unwanted, partial(self.store.unreserve, self.topic.uid, now_ms=now_ms)
            )
        except BaseException:
            with self.changed:  # all can be said again: a repeated ack changes nothing
                self.to_ack[:0] = acks
                self.to_retry[:0] = retries
                self.unwanted[:0] = unwanted
                self.flush_at = now_ms + self._rest_ms
            raise

    def _retry(self, leases: Sequence[Lease], *, now_ms: int) -> list[Outcome]:
        moves = [(lease, now_ms + self._retry_ms) for lease in leases]
        return self.store.retry(self.topic.uid, moves, now_ms=now_ms)

    # Reserving

    def reserve(self, now_ms: int, *, most: int = RESERVE_ROWS) -> Grant:
        """Reserves what the agenda has room for; the firing thread hears of it before this returns."""
        with self.changed:
            room = self.agenda.room()
            reach_ms = self.agenda.reach_ms(now_ms)
        try:
            grant = self.store.reserve(
                self.topic.uid,
                self._ranges,
                consumer=self._consumer,
                limit=min(room, most),
                lease_ms=self.hold_ms,
                reserve_ahead_ms=reach_ms,
                now_ms=now_ms,
            )
        except OutcomeUnknown:
            self._unanswered = now_ms, self._ranges
            raise
        with self.changed:
            # At once: a message that is due already must not wait for the next look-up.
            self.agenda.reserved(grant.leased, next_ts=None, more=True, now_ms=now_ms)
            self.changed.notify_all()
        for outcome in grant.refused:
            logger.warning("message %r was %s", outcome.id, outcome.reason)
        next_ts = None if grant.more else self.store.next_ts(self.topic.uid, self._ranges)
        with self.changed:
            self.agenda.reserved((), next_ts=next_ts, more=grant.more, now_ms=now_ms)
        return grant

    def recover(self, in_hand: Callable[[], Iterable[Lease]]) -> None:
        """Gives back what an unanswered reservation took, to be reserved again.

        Its leases are those that the lane does not know, with the end that was asked for; their versions
        fence whatever happened to them since. `in_hand` is called with `changed`: the leases that have
        left the agenda, and of which nothing waits to be said.
        """
        if self._unanswered is None:
            return
        asked_ms, ranges = self._unanswered
        with self.changed:
            leases = [*self.agenda.leases(), *self.to_ack, *self.to_retry, *self.unwanted]
            known = {lease.id for lease in (*leases, *in_hand())}
        found = [
            Lease(id=each.id, consumer=self._consumer, version=each.version, until=each.ts)
            for each in self._held()
            if each.id not in known
            and each.ts == max(each.due, asked_ms) + self.hold_ms
            and any(start <= each.bucket < stop for start, stop in ranges)
        ]
        with self.changed:
            self.give_back(found)
        self._unanswered = None

    def _held(self) -> Iterator[Message]:
        """Everything that names the lane as its holder."""
        look = partial(self.store.select_held, self.topic.uid, self._consumer, limit=RESERVE_ROWS)
        page = look()
        yield from page.messages
        while page.more:
            page = look(after=page.messages[-1].id)
            yield from page.messages

    @property
    def settled(self) -> bool:
        """Nothing waits to be said or found out. To be read with `changed`."""
        waits = self.to_ack or self.to_retry or self.unwanted
        return not waits and self._unanswered is None


def _check(consumer: str, hold_ms: int, retry_ms: int) -> None:
    problem = name_problem("consumer", consumer)
    if hold_ms < _SHORTEST_HOLD_MS:
        problem = f"hold_ms must be at least {_SHORTEST_HOLD_MS}, not {hold_ms}"
    elif retry_ms < MIN_LEASE_MS:
        problem = f"retry_ms must be at least {MIN_LEASE_MS}, not {retry_ms}"
    if problem:
        raise InvalidInput(problem)


def _say(what: str, leases: list[Lease], change: Callable[[list[Lease]], list[Outcome]]) -> None:
    """Says it in batches that a store takes; what was said leaves the list."""
    while leases:
        for outcome in change(leases[:MAX_BATCH]):
            if not outcome.done:
                logger.warning(
                    "the %s of message %r came too late: %s", what, outcome.id, outcome.reason
                )
        del leases[:MAX_BATCH]
