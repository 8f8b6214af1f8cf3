"""A firing lane: serves the due messages of some buckets, each at its millisecond.

Two threads share a `Delivery`. The *storing* thread reserves ahead, deletes delivered messages in batches,
and sleeps in between on the store's watch (`delivery.lane`). The *firing* thread sleeps until a message is
due and passes it to `deliver`. Neither polls at regular intervals: the agenda decides when.

Delivering. `deliver` gets one message at a time. When it returns, the message is acked; when it raises, the
message is given back by `retry`, `retry_ms` into the future. So a message is delivered at least once: if the
process dies in between, or the ack comes too late, its lease lapses and it is served again.

A slow `deliver`. The lane extends the lease of the message in delivery until the delivery is over. It gives
back the messages that wait behind it before their leases end, without counting an attempt, so that others can
serve them; and it reserves nothing more until the delivery is over.

Failures. If the store fails, the lane waits a moment and continues; it delivers the messages that it holds
while their leases live. `core.delivery` decides about changes without an answer. If the topic is deleted, the
lane ends.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Sequence

from chronoline.core.agenda import Agenda
from chronoline.core.delivery import RESERVE_ROWS, Delivery, DeliveryOptions
from chronoline.core.errors import InvalidInput, StoreClosed, TopicNotFound
from chronoline.core.message import LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.delivery.lane import DEFAULT_HOLD_MS, DEFAULT_RETRY_MS, Lane, store_failed, summary
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import Service
from chronoline.stores.contract import Store

_MOST_OVERDUE = 4 * RESERVE_ROWS
"""With this many messages held and due, the lane reserves no more."""

logger = logging.getLogger(__name__)

Deliver = Callable[[LeasedMessage], object]
"""Handles one message; its result is ignored."""


class FiringLane(Service):
    """Serves messages between `start` and `stop`, or inside a `with` block.

    `hold_ms` is the duration of its leases: after a crash others serve its messages that much later. Stopping
    twice, or before the start, is fine, and a lane that was stopped can be started again.

    A consumer's name belongs to one lane: two lanes over the same buckets have two names.
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
        agenda = Agenda() if agenda is None else agenda  # an empty agenda is false
        # Acks wait for each other for a small part of a lease.
        gather_ms = min(agenda.reserve_ahead_ms // 2, hold_ms // 8)
        options = DeliveryOptions(most_overdue=_MOST_OVERDUE, extends=True, gather_ms=gather_ms)
        self._delivery = Delivery(
            agenda, Session(new_id(), "lane"), consumer=consumer, lease_ms=hold_ms, options=options
        )
        self._lane = Lane(
            store,
            topic,
            self._delivery,
            ranges=ranges,
            clock=clock or SystemClock(),
            retry_ms=retry_ms,
        )
        self._clock = self._lane.clock
        self._deliver = deliver
        self._changed = self._lane.changed  # guards all below too
        self._tries_left = 0  # set at the stop; after that all leases are over
        self._stopped = True
        self._storing: threading.Thread | None = None
        self._firing: threading.Thread | None = None

    def start(self) -> None:
        if self._stopped:
            self.stop()  # threads that ended by themselves, or by a delivery, are still set
        if self._storing is not None:
            raise InvalidInput("the lane runs already")
        self._lane.open_watch()
        self._delivery.begin()
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
        """Acks delivered messages, gives back the others, and ends the threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._lane.wake()
        if threading.current_thread() is self._firing:
            return  # called from inside a delivery: the threads end when it is over
        for thread in (self._storing, self._firing):
            if thread is not None:
                thread.join()
        self._lane.close_watch()
        self._storing = self._firing = None

    # The firing thread

    def _fire_loop(self) -> None:
        delivery = self._delivery
        while True:
            with self._changed:
                if self._stopped:
                    return
                now_ms = self._clock.now_ms()
                given_back = delivery.given_back
                due = delivery.deliver(now_ms, 1)
                if delivery.given_back > given_back:
                    self._lane.wake()
                if not due:
                    next_due = delivery.deliver_at(now_ms)
                    self._changed.wait(
                        None if next_due is None else self._clock.seconds_until(next_due)
                    )
                    continue
                delivery.handing_since = now_ms
            is_delivered = self._fire(due[0])
            with self._changed:
                self._fired(due[0].lease.id, is_delivered)

    def _fire(self, message: LeasedMessage) -> bool:
        try:
            answer = self._deliver(message)
            if inspect.isawaitable(answer):
                raise InvalidInput("deliver returned an awaitable, which the lane does not await")
        except BaseException:  # also an exit: this thread must continue, for the other messages
            last = message.message.attempts + 1 >= self._lane.topic.settings.max_attempts
            logger.exception(
                "delivering message %r failed; it %s",
                message.lease.id,
                "goes to the dead letters" if last else "is tried again",
            )
            return False
        return True

    def _fired(self, message_id: str, is_delivered: bool) -> None:
        delivery, now_ms = self._delivery, self._clock.now_ms()
        sleeps_until = delivery.chore_at(now_ms)
        lease = delivery.outstanding.get(message_id)
        if lease is not None:  # otherwise its lease was lost meanwhile
            delivery.settle("ack" if is_delivered else "retry", [lease], now_ms=now_ms)
        delivery.handing_since = None
        is_running_low = len(delivery.agenda) == _MOST_OVERDUE // 2
        if is_running_low or delivery.chore_at(now_ms) != sleeps_until:
            self._lane.wake()  # the storing thread must sleep until then, not longer

    # The storing thread

    def _store_loop(self) -> None:
        self._lane.begin_round()
        while True:
            with self._changed:
                stopped = self._stopped
            try:
                if stopped:
                    self._finish()
                    return
                self._work()
                self._sleep()
            except (TopicNotFound, StoreClosed) as error:
                logger.warning("the lane of topic %r has ended: %s", self._lane.topic.name, error)
                self._end()
                return
            except Exception as error:  # the lane survives every error
                store_failed(error)
                self._rest(stopped)
                self._tries_left -= stopped
                if not self._tries_left:
                    return

    def _rest(self, stopped: bool) -> None:
        self._lane.rest(lambda: self._stopped != stopped)

    def _renew_tries(self) -> None:
        self._tries_left = self._delivery.lease_ms // self._lane.rest_ms + 1

    def _work(self) -> None:
        with self._changed:
            self._delivery.give_back_waiting(self._clock.now_ms())
        self._lane.do_chores()
        self._lane.reserve()
        with self._changed:
            lapsed = self._delivery.take_lapsed()
        for lease in lapsed:
            summary.warning(
                "not_delivered",
                "message %r was not delivered within its lease; it is served again",
                lease.id,
            )

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            if self._stopped:
                return
            moments = [self._delivery.reserve_at(now_ms), self._delivery.chore_at(now_ms)]
        # Without room to reserve, the next delivery or a notice brings news.
        longest_ms = now_ms + self._delivery.lease_ms // 4
        wake_ms = min([*(each for each in moments if each is not None), longest_ms])
        self._lane.sleep(self._clock.seconds_until(wake_ms))

    def _end(self) -> None:
        """There is nothing left to serve: the firing thread ends too."""
        with self._changed:
            self._stopped = True
            self._delivery.abandon()
            self._changed.notify_all()

    def _finish(self) -> None:
        """Gives back held messages; keeps the last delivery alive until it is over, then settles it too."""
        with self._changed:
            self._delivery.end()
        self._lane.do_chores(at_once=True)
        while self._firing is not None and self._firing.is_alive():
            self._lane.do_chores()
            self._renew_tries()
            self._lane.end_round()
            self._firing.join(self._delivery.lease_ms / 4000)
            self._lane.begin_round()
        self._lane.do_chores(at_once=True)
