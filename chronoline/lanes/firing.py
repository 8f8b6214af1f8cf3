"""A firing lane: serves the due messages of some buckets, each at its millisecond.

Two threads share an agenda. The *storing* thread reserves ahead, deletes what was delivered in batches, and
sleeps in between on the store's watch. The *firing* thread sleeps until the next message is due and hands it
to `deliver`. Neither looks at regular intervals: the agenda says when.

Delivering. `deliver` gets one message at a time. When it returns, the message is acked; when it raises, the
message is given back by `retry`, `retry_ms` into the future. So a message is delivered at least once: if the
process dies in between, or the ack comes too late, its lease lapses and it is served again.

A slow `deliver`. The lease of the message that is being delivered is extended for as long as it takes. What
waits behind it is given back before its lease ends, without counting an attempt, so that others can serve
it; and nothing more is reserved until the delivery is over.

Failures. If the store fails, the lane waits a moment and goes on; what it holds is delivered as long as its
leases live. If a reservation is not answered, the lane asks what it holds and gives back what it did not know
of; if an extension is not, it looks the message up. If the topic is dropped, the lane ends.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from chronoline.clock import Clock, SystemClock
from chronoline.core.agenda import Agenda
from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreClosed,
    TopicNotFound,
)
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES, MIN_LEASE_MS, name_problem
from chronoline.core.message import Lease, LeasedMessage, Message
from chronoline.core.outcome import Outcome
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import Topic
from chronoline.stores.contract import MAX_BATCH, Store, Watch

DEFAULT_HOLD_MS = 5_000
DEFAULT_RETRY_MS = 1_000
_SHORTEST_HOLD_MS = 10 * MIN_LEASE_MS
_RESERVE_ROWS = 500
_MOST_OVERDUE = 4 * _RESERVE_ROWS
"""With so many held and waiting to be delivered, no more are reserved."""
_STORE_FAILED_MS = 200

logger = logging.getLogger(__name__)

Deliver = Callable[[LeasedMessage], object]
"""Handles one message; what it returns is ignored."""


class FiringLane:
    """Serves messages between `start` and `stop`, or inside a `with` block.

    `hold_ms` is how long it holds what it reserved: after a crash others serve it that much later. Stopping
    twice, or before the start, is fine, and a lane that was stopped can be started again.

    A name of a consumer belongs to one lane: two of them over the same buckets have two names.
    """

    def __init__(
        self,
        store: Store,
        topic: Topic,
        deliver: Deliver,
        *,
        consumer: str,
        ranges: Sequence[BucketRange] | None = None,
        agenda: Agenda | None = None,
        clock: Clock | None = None,
        hold_ms: int = DEFAULT_HOLD_MS,
        retry_ms: int = DEFAULT_RETRY_MS,
    ) -> None:
        _check(deliver, consumer, hold_ms, retry_ms)
        self._store = store
        self._topic = topic
        self._deliver = deliver
        self._consumer = consumer
        wanted = topic.all_buckets if ranges is None else ranges
        self._ranges = merge_ranges(wanted, topic.settings.buckets)
        self._clock = clock or SystemClock()
        self._hold_ms = hold_ms
        self._retry_ms = retry_ms
        # Guards the agenda and all below; tells the firing thread of news.
        self._changed = threading.Condition()
        self._agenda = Agenda() if agenda is None else agenda  # an empty one is false
        self._agenda.largest_bytes = (
            topic.settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        )
        self._delivering: Lease | None = None  # of the message in delivery, unless it was lost
        self._begun_ms: int | None = None  # since when something is in delivery
        self._delivered: list[Lease] = []
        self._failed: list[Lease] = []
        self._unwanted: list[Lease] = []  # to be given back
        self._flush_at: int | None = None
        # The storing thread's own: when a reservation was asked for that the store did not answer, and
        # which lease should have got which end when an extension was not answered.
        self._unanswered_ms: int | None = None
        self._unanswered_extension: tuple[Lease, int] | None = None
        self._tries_left = 0  # to finish; after that all leases are over
        self._stopped = True
        self._watch: Watch | None = None
        self._storing: threading.Thread | None = None
        self._firing: threading.Thread | None = None

    def start(self) -> None:
        if self._stopped:
            self.stop()  # what ended by itself, or by a delivery, has not been cleared away
        if self._storing is not None:
            raise InvalidInput("the lane runs already")
        self._watch = self._store.watch()
        self._renew_tries()
        self._agenda.noticed(None)  # nobody was watching
        self._stopped = False
        self._storing = threading.Thread(
            target=self._store_loop, name="chronoline-storing", daemon=True
        )
        self._firing = threading.Thread(
            target=self._fire_loop, name="chronoline-firing", daemon=True
        )
        self._firing.start()
        self._storing.start()

    def stop(self) -> None:
        """Acks what was delivered, gives back what was not, and ends the threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._wake()
        if threading.current_thread() is self._firing:
            return  # called from inside a delivery: the threads end when it is over
        for thread in (self._storing, self._firing):
            if thread is not None:
                thread.join()
        if self._watch is not None:
            self._watch.close()
        self._storing = self._firing = self._watch = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # The firing thread

    def _fire_loop(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now_ms = self._clock.now_ms()
                due = self._agenda.deliver(now_ms, 1)
                expired = self._agenda.expired()
                if expired:
                    self._give_back(expired)
                    self._wake()
                if not due:
                    next_due = self._agenda.deliver_at()
                    self._changed.wait(
                        None if next_due is None else self._clock.seconds_until(next_due)
                    )
                    continue
                self._delivering, self._begun_ms = due[0].lease, now_ms
            delivered = self._fire(due[0])
            with self._changed:
                self._fired(delivered)

    def _fire(self, message: LeasedMessage) -> bool:
        try:
            answer = self._deliver(message)
            if inspect.isawaitable(answer):
                raise InvalidInput("deliver answered something to await, which nobody does here")
        except BaseException:  # also an exit: this thread must go on, for the others
            last = message.message.attempts + 1 >= self._topic.settings.max_attempts
            logger.exception(
                "delivering message %r failed; it %s",
                message.lease.id,
                "goes to the dead letters" if last else "is tried again",
            )
            return False
        return True

    def _fired(self, delivered: bool) -> None:
        if self._delivering is not None:  # else its lease was lost meanwhile
            (self._delivered if delivered else self._failed).append(self._delivering)
        self._delivering = self._begun_ms = None
        running_low = len(self._agenda) == _MOST_OVERDUE // 2
        if running_low:
            self._wake()
        if self._flush_at is None:
            self._flush_at = self._clock.now_ms() + self._agenda.reserve_ahead_ms // 2
            self._wake()  # so that the storing thread sleeps until then, not longer

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    # The storing thread

    def _store_loop(self) -> None:
        while True:
            with self._changed:
                stopped = self._stopped
            try:
                if stopped:
                    self._finish()
                    return
                self._recover()
                self._keep()
                self._flush()
                self._reserve()
                self._sleep()
            except (TopicNotFound, StoreClosed) as error:
                logger.warning("the lane of topic %r has ended: %s", self._topic.name, error)
                self._end()
                return
            except Exception as error:  # whatever it is, the lane goes on
                logger.warning("the store failed, going on in a moment: %s", error)
                self._rest()
                self._tries_left -= stopped
                if not self._tries_left:
                    return

    def _renew_tries(self) -> None:
        self._tries_left = self._hold_ms // _STORE_FAILED_MS + 1

    def _keep(self) -> None:
        """Extends the lease of a slow delivery, and gives back what waits behind it."""
        now_ms = self._clock.now_ms()
        half_ms = now_ms + self._hold_ms // 2
        with self._changed:
            lease = self._delivering
            self._give_back(self._agenda.ending(half_ms))
        if lease is None or lease.until > half_ms:
            return
        until_ms = now_ms + self._hold_ms
        try:
            (outcome,) = self._store.extend(self._topic.uid, [(lease, until_ms)], now_ms=now_ms)
        except OutcomeUnknown:
            self._unanswered_extension = (lease, until_ms)
            raise
        if outcome.done:
            self._rename(lease, lease.extended(outcome.version, until_ms))
            return
        with self._changed:
            if self._delivering is lease:  # else it was over before we were
                logger.warning("the lease of message %r was lost: %s", lease.id, outcome.reason)
                self._delivering = None

    def _rename(self, old: Lease, new: Lease) -> None:
        """A lease was extended: what is to be said of its delivery, under way or over, names the new one."""
        with self._changed:
            if self._delivering is old:
                self._delivering = new
            self._delivered = [new if each is old else each for each in self._delivered]
            self._failed = [new if each is old else each for each in self._failed]

    def _give_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._unwanted += leases
            self._flush_at = 0

    def _recover(self) -> None:
        """Finds out what became of changes that were not answered."""
        if self._unanswered_extension is not None:
            self._recover_extension(*self._unanswered_extension)
            self._unanswered_extension = None
        if self._unanswered_ms is not None:
            self._recover_reservation(self._unanswered_ms)
            self._unanswered_ms = None

    def _recover_extension(self, lease: Lease, until_ms: int) -> None:
        """Goes by the lease that the extension made, if it did."""
        version = lease.version + 1
        for found in self._store.lookup(self._topic.uid, [lease.id]).values():
            if (found.lock_consumer, found.version, found.ts) == (
                lease.consumer,
                version,
                until_ms,
            ):
                self._rename(lease, lease.extended(version, until_ms))

    def _recover_reservation(self, asked_ms: int) -> None:
        """Gives back what the reservation took, to be reserved again.

        Its leases are those that the lane does not know, with the end that was asked for; their versions
        fence whatever happened to them since.
        """
        with self._changed:
            leases = [*self._agenda.leases(), *self._delivered, *self._failed, *self._unwanted]
            known = {lease.id for lease in leases}
            if self._delivering is not None:
                known.add(self._delivering.id)
        found = [
            Lease(id=each.id, consumer=self._consumer, version=each.version, until=each.ts)
            for each in self._held()
            if each.id not in known
            and each.ts == max(each.due, asked_ms) + self._hold_ms
            and any(start <= each.bucket < stop for start, stop in self._ranges)
        ]
        with self._changed:
            self._give_back(found)

    def _held(self) -> Iterator[Message]:
        """Everything that names the lane as its holder."""
        look = partial(
            self._store.select_held, self._topic.uid, self._consumer, limit=_RESERVE_ROWS
        )
        page = look()
        yield from page.messages
        while page.more:
            page = look(after=page.messages[-1].id)
            yield from page.messages

    def _flush(self, *, at_once: bool = False) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            soon_ms = now_ms + max(_STORE_FAILED_MS, self._agenda.reserve_ahead_ms)
            if self._flush_at is None or (now_ms < self._flush_at <= soon_ms and not at_once):
                return  # a moment that lies further ahead is from before the clock was put back
            delivered, self._delivered = self._delivered, []
            failed, self._failed = self._failed, []
            unwanted, self._unwanted = self._unwanted, []
            self._flush_at = None
        try:
            _say("ack", delivered, partial(self._store.ack, self._topic.uid, now_ms=now_ms))
            _say("retry", failed, partial(self._retry, now_ms=now_ms))
            _say(
                "unreserve",
                unwanted,
                partial(self._store.unreserve, self._topic.uid, now_ms=now_ms),
            )
        except BaseException:
            with self._changed:  # all can be said again: a repeated ack changes nothing
                self._delivered[:0] = delivered
                self._failed[:0] = failed
                self._unwanted[:0] = unwanted
                self._flush_at = now_ms + _STORE_FAILED_MS
            raise

    def _retry(self, leases: Sequence[Lease], *, now_ms: int) -> list[Outcome]:
        moves = [(lease, now_ms + self._retry_ms) for lease in leases]
        return self._store.retry(self._topic.uid, moves, now_ms=now_ms)

    def _reserve(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            reserve_at = self._reserve_at(now_ms)
            room = self._agenda.room()
        if reserve_at is None or reserve_at > now_ms:
            return
        try:
            grant = self._store.reserve(
                self._topic.uid,
                self._ranges,
                consumer=self._consumer,
                limit=min(room, _RESERVE_ROWS),
                lease_ms=self._hold_ms,
                reserve_ahead_ms=self._agenda.reserve_ahead_ms,
                now_ms=now_ms,
            )
        except OutcomeUnknown:
            self._unanswered_ms = now_ms
            raise
        with self._changed:
            # At once: a message that is due already must not wait for the next look-up.
            self._agenda.reserved(grant.leased, next_ts=None, more=True, now_ms=now_ms)
            self._changed.notify_all()
        for outcome in grant.refused:
            logger.warning("message %r was %s", outcome.id, outcome.reason)
        next_ts = None if grant.more else self._store.next_ts(self._topic.uid, self._ranges)
        with self._changed:
            self._agenda.reserved((), next_ts=next_ts, more=grant.more, now_ms=now_ms)
            for lease in self._agenda.lapsed():
                logger.warning(
                    "message %r was not delivered within its lease; it is served again", lease.id
                )

    def _reserve_at(self, now_ms: int) -> int | None:
        """When to reserve next; not while deliveries cannot keep up: others should serve the rest."""
        next_due = self._agenda.deliver_at()
        if self._begun_ms is not None and now_ms - self._begun_ms >= self._hold_ms // 4:
            return None
        if next_due is not None and next_due <= now_ms and len(self._agenda) >= _MOST_OVERDUE:
            return None
        return self._agenda.reserve_at(now_ms)

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            if self._stopped or self._watch is None:
                return
            moments = [self._reserve_at(now_ms), self._flush_at]
            if self._delivering is not None:
                moments.append(self._delivering.until - self._hold_ms // 2)
            known = [moment for moment in moments if moment is not None]
        # Without room to reserve, the next delivery or a notice brings news.
        wake_ms = min(known, default=now_ms + self._hold_ms // 4)
        timeout_s = self._clock.seconds_until(min(wake_ms, now_ms + self._hold_ms // 4))
        for notice in self._watch.wait(timeout_s) if timeout_s > 0 else ():
            if notice.topic_uid in (None, self._topic.uid):
                self._notice(notice.due)

    def _notice(self, due: int | None) -> None:
        if due is None:  # someone changed something: looking costs less than reserving
            due = self._store.next_ts(self._topic.uid, self._ranges)
        if due is not None:
            with self._changed:
                self._agenda.noticed(due)

    def _rest(self) -> None:
        """Sleeps for a moment, whatever is noticed meanwhile, and looks again."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + _STORE_FAILED_MS
        with self._changed:
            self._agenda.postponed(until_ms, now_ms=now_ms)
            before = self._stopped
            self._changed.wait_for(
                lambda: self._stopped != before, self._clock.seconds_until(until_ms)
            )

    def _end(self) -> None:
        """There is nothing to serve any more: the firing thread ends too."""
        with self._changed:
            self._stopped = True
            self._agenda.give_back()
            self._changed.notify_all()

    def _finish(self) -> None:
        """Gives back what is held; the last delivery is kept alive until it is over, and then said too."""
        with self._changed:
            self._give_back(self._agenda.give_back())
        self._recover()
        self._flush(at_once=True)
        while self._firing is not None and self._firing.is_alive():
            self._keep()
            self._renew_tries()
            self._firing.join(self._hold_ms / 4000)
        self._flush(at_once=True)


def _check(deliver: Deliver, consumer: str, hold_ms: int, retry_ms: int) -> None:
    problem = name_problem("consumer", consumer)
    if inspect.iscoroutinefunction(deliver):
        problem = "deliver must be a plain function; an async one would never be awaited"
    elif hold_ms < _SHORTEST_HOLD_MS:
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
