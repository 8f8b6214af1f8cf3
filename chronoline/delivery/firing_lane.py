"""A firing lane: serves the due messages of some buckets, each at its millisecond.

Two threads share a `Holding`. The *storing* thread reserves ahead, deletes what was delivered in batches, and
sleeps in between on the store's watch. The *firing* thread sleeps until the next message is due and hands it
to `deliver`. Neither looks at regular intervals: the agenda says when.

Delivering. `deliver` gets one message at a time. When it returns, the message is acked; when it raises, the
message is given back by `retry`, `retry_ms` into the future. So a message is delivered at least once: if the
process dies in between, or the ack comes too late, its lease lapses and it is served again.

A slow `deliver`. The lease of the message that is being delivered is extended for as long as it takes. What
waits behind it is given back before its lease ends, without counting an attempt, so that others can serve
it; and nothing more is reserved until the delivery is over.

Failures. If the store fails, the lane waits a moment and goes on; what it holds is delivered as long as its
leases live. If a reservation is not answered, the lane gives back what it took; if an extension is not, it
asks for it again, and the store recognizes it. If the topic is dropped, the lane ends.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from chronoline.core.agenda import Agenda
from chronoline.core.errors import InvalidInput, StoreClosed, StoreUnavailable, TopicNotFound
from chronoline.core.message import After, Lease, LeasedMessage
from chronoline.core.outcome import Outcome
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.reservations import (
    DEFAULT_HOLD_MS,
    DEFAULT_RETRY_MS,
    RESERVE_ROWS,
    Holding,
)
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store

_MOST_OVERDUE = 4 * RESERVE_ROWS
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
        if inspect.iscoroutinefunction(deliver):
            raise InvalidInput(
                "deliver must be a plain function; an async one would never be awaited"
            )
        self._holding = Holding(
            store,
            topic,
            Agenda() if agenda is None else agenda,  # an empty one is false
            consumer=consumer,
            ranges=ranges,
            clock=clock,
            hold_ms=hold_ms,
            retry_ms=retry_ms,
            rest_ms=_STORE_FAILED_MS,
        )
        self._agenda = self._holding.agenda
        self._clock = self._holding.clock
        self._deliver = deliver
        self._changed = self._holding.changed  # guards all below too
        self._delivering: Lease | None = None  # of the message in delivery, unless it was lost
        self._begun_ms: int | None = None  # since when something is in delivery
        # The storing thread's own: the lease whose extension was not answered.
        self._unanswered_extension: Lease | None = None
        self._tries_left = 0  # to finish; after that all leases are over
        self._stopped = True
        self._storing: threading.Thread | None = None
        self._firing: threading.Thread | None = None

    def start(self) -> None:
        if self._stopped:
            self.stop()  # what ended by itself, or by a delivery, has not been cleared away
        if self._storing is not None:
            raise InvalidInput("the lane runs already")
        self._holding.open_watch()
        self._renew_tries()
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
        self._holding.wake()
        if threading.current_thread() is self._firing:
            return  # called from inside a delivery: the threads end when it is over
        for thread in (self._storing, self._firing):
            if thread is not None:
                thread.join()
        self._holding.close_watch()
        self._storing = self._firing = None

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
                    self._holding.give_back(expired)
                    self._holding.wake()
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
            last = message.message.attempts + 1 >= self._holding.topic.settings.max_attempts
            logger.exception(
                "delivering message %r failed; it %s",
                message.lease.id,
                "goes to the dead letters" if last else "is tried again",
            )
            return False
        return True

    def _fired(self, delivered: bool) -> None:
        if self._delivering is not None:  # else its lease was lost meanwhile
            said = self._holding.to_ack if delivered else self._holding.to_retry
            said.append(self._delivering)
        self._delivering = self._begun_ms = None
        running_low = len(self._agenda) == _MOST_OVERDUE // 2
        if running_low:
            self._holding.wake()
        if self._holding.flush_at is None:
            self._holding.flush_at = self._clock.now_ms() + self._agenda.reserve_ahead_ms // 2
            self._holding.wake()  # so that the storing thread sleeps until then, not longer

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
                self._holding.flush()
                self._reserve()
                self._sleep()
            except (TopicNotFound, StoreClosed) as error:
                logger.warning(
                    "the lane of topic %r has ended: %s", self._holding.topic.name, error
                )
                self._end()
                return
            except Exception as error:  # whatever it is, the lane goes on
                logger.warning("the store failed, going on in a moment: %s", error)
                self._rest()
                self._tries_left -= stopped
                if not self._tries_left:
                    return

    def _renew_tries(self) -> None:
        self._tries_left = self._holding.hold_ms // _STORE_FAILED_MS + 1

    def _keep(self) -> None:
        """Extends the lease of a slow delivery, and gives back what waits behind it."""
        now_ms = self._clock.now_ms()
        half_ms = now_ms + self._holding.hold_ms // 2
        with self._changed:
            lease = self._delivering
            self._holding.give_back(self._agenda.ending(half_ms))
        if lease is None or lease.until > half_ms:
            return
        outcome = self._extend(lease, now_ms)
        if outcome.done:
            return
        with self._changed:
            if self._delivering is lease:  # else it was over before we were
                logger.warning("the lease of message %r was lost: %s", lease.id, outcome.reason)
                self._delivering = None

    def _extend(self, lease: Lease, now_ms: int, *, again: bool = False) -> Outcome:
        store, topic = self._holding.store, self._holding.topic
        self._unanswered_extension = lease
        try:
            (outcome,) = store.extend(
                topic.uid, [(lease, After(self._holding.hold_ms))], again=again, now_ms=now_ms
            )
        except StoreUnavailable:
            if not again:
                self._unanswered_extension = None  # nothing was changed
            raise
        self._unanswered_extension = None
        if outcome.done:
            self._rename(lease, lease.extended(outcome.version, outcome.at))
        return outcome

    def _rename(self, old: Lease, new: Lease) -> None:
        """A lease was extended: what is to be said of its delivery, under way or over, names the new one."""
        with self._changed:
            if self._delivering is old:
                self._delivering = new
            for said in (self._holding.to_ack, self._holding.to_retry):
                said[:] = [new if each is old else each for each in said]

    def _recover(self) -> None:
        """Finds out what became of changes that were not answered."""
        if self._unanswered_extension is not None:
            self._extend(self._unanswered_extension, self._clock.now_ms(), again=True)
        self._holding.recover()

    def _reserve(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            reserve_at = self._reserve_at(now_ms)
        if reserve_at is None or reserve_at > now_ms:
            return
        self._holding.reserve(now_ms)
        with self._changed:
            lapsed = self._agenda.lapsed()
        for lease in lapsed:
            logger.warning(
                "message %r was not delivered within its lease; it is served again", lease.id
            )

    def _reserve_at(self, now_ms: int) -> int | None:
        """When to reserve next; not while deliveries cannot keep up: others should serve the rest."""
        next_due = self._agenda.deliver_at()
        if self._begun_ms is not None and now_ms - self._begun_ms >= self._holding.hold_ms // 4:
            return None
        if next_due is not None and next_due <= now_ms and len(self._agenda) >= _MOST_OVERDUE:
            return None
        return self._agenda.reserve_at(now_ms)

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            if self._stopped:
                return
            moments = [self._reserve_at(now_ms), self._holding.flush_at]
            if self._delivering is not None:
                moments.append(self._delivering.until - self._holding.hold_ms // 2)
            known = [moment for moment in moments if moment is not None]
        # Without room to reserve, the next delivery or a notice brings news.
        longest_ms = now_ms + self._holding.hold_ms // 4
        wake_ms = min([*known, longest_ms])
        self._holding.sleep(self._clock.seconds_until(wake_ms))

    def _rest(self) -> None:
        before = self._stopped
        self._holding.rest(lambda: self._stopped != before)

    def _end(self) -> None:
        """There is nothing to serve any more: the firing thread ends too."""
        with self._changed:
            self._stopped = True
            self._agenda.give_back()
            self._changed.notify_all()

    def _finish(self) -> None:
        """Gives back what is held; the last delivery is kept alive until it is over, and then said too."""
        with self._changed:
            self._holding.give_back(self._agenda.give_back())
        self._recover()
        self._holding.flush(at_once=True)
        while self._firing is not None and self._firing.is_alive():
            self._keep()
            self._renew_tries()
            self._firing.join(self._holding.hold_ms / 4000)
        self._holding.flush(at_once=True)
