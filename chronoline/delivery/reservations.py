"""What a lane holds, and what it says to the store: the side of the storing thread, for every kind of lane.

State. The agenda holds what was reserved and has not left it. What left it is the lane's, until the lane
says what is to become of it: acked, tried again (`retry`), or given back (`unreserve`). That waits here for
the next `flush`, which says it in batches.

Threads. `changed` guards the agenda and everything that waits, and tells the firing thread of news. The
methods that talk to the store are called by the storing thread alone, and without `changed`.

Failures. Whatever a flush could not say is said again, and the store recognizes it. A reservation that was
not answered may have leased messages that nobody knows of: `recover` finds them by the session that their
rows name, and gives them back. It looks at once, and again when the server can no longer carry it out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from chronoline.core.agenda import Agenda
from chronoline.core.errors import InvalidInput, OutcomeUnknown
from chronoline.core.limits import (
    MAX_HEADER_BYTES,
    MAX_KEY_BYTES,
    MIN_LEASE_MS,
    WRITE_BOUND_MS,
    name_problem,
)
from chronoline.core.message import After, Lease, Message
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import MAX_BATCH, Store, Watch

DEFAULT_HOLD_MS = 5_000
DEFAULT_RETRY_MS = 1_000
RESERVE_ROWS = 500
_SHORTEST_HOLD_MS = 10 * MIN_LEASE_MS

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Unanswered:
    """A reservation of unknown outcome."""

    session: str
    asked_ms: int
    looked: bool = False


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
        self._session = Session(new_id(), "lane")
        self._unanswered: list[_Unanswered] = []
        # A flush was not answered: what it said is said again.
        self._again = False
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
            if notice.returned is None and notice.topic_uid in (None, self.topic.uid):
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
        uid, again = self.topic.uid, self._again
        ack = partial(self.store.ack, uid, again=again, now_ms=now_ms)
        unreserve = partial(self.store.unreserve, uid, again=again, now_ms=now_ms)
        try:
            _say("ack", acks, ack)
            _say("retry", retries, partial(self._retry, again=again, now_ms=now_ms))
            _say("unreserve", unwanted, unreserve)
            self._again = False
        except BaseException as error:
            self._again = self._again or isinstance(error, OutcomeUnknown)
            with self.changed:  # all can be said again: the store recognizes what it has done
                self.to_ack[:0] = acks
                self.to_retry[:0] = retries
                self.unwanted[:0] = unwanted
                self.flush_at = now_ms + self._rest_ms
            raise

    def _retry(self, leases: Sequence[Lease], *, again: bool, now_ms: int) -> list[Outcome]:
        moves = [(lease, After(self._retry_ms)) for lease in leases]
        return self.store.retry(self.topic.uid, moves, again=again, now_ms=now_ms)

    # Reserving

    def reserve(self, now_ms: int, *, most: int = RESERVE_ROWS) -> Grant:
        """Reserves what the agenda has room for; the firing thread hears of it before this returns."""
        with self.changed:
            room = self.agenda.room()
            reach_ms = self.agenda.reach_ms(now_ms)
        session = self._session.new_grant()
        try:
            grant = self.store.reserve(
                self.topic.uid,
                self._ranges,
                consumer=self._consumer,
                limit=min(room, most),
                lease_ms=self.hold_ms,
                reserve_ahead_ms=reach_ms,
                session=session,
                now_ms=now_ms,
            )
        except OutcomeUnknown:
            self._unanswered.append(_Unanswered(session, now_ms))
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

    def recover(self) -> None:
        """Gives back what unanswered reservations took, to be reserved again."""
        for each in list(self._unanswered):
            now_ms = self.clock.now_ms()
            last = not each.asked_ms <= now_ms < each.asked_ms + WRITE_BOUND_MS
            if each.looked and not last:
                continue
            found = [
                Lease(
                    id=message.id,
                    consumer=self._consumer,
                    version=message.version,
                    until=message.ts,
                    session=each.session,
                    since=message.version,
                )
                for message in self._held(each.session)
            ]
            with self.changed:
                self.give_back([lease for lease in found if lease not in self.unwanted])
            each.looked = True
            if last:
                self._unanswered.remove(each)

    def _held(self, session: str) -> Iterator[Message]:
        """Everything that names one reservation of the lane."""
        look = partial(
            self.store.select_held,
            self.topic.uid,
            self._consumer,
            session=session,
            limit=RESERVE_ROWS,
        )
        page = look()
        yield from page.messages
        while page.more:
            page = look(after=page.messages[-1].id)
            yield from page.messages

    @property
    def settled(self) -> bool:
        """Nothing waits to be said or found out. To be read with `changed`."""
        waits = self.to_ack or self.to_retry or self.unwanted
        return not waits and all(each.looked for each in self._unanswered)


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
