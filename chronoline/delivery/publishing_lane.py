"""A publishing lane: the body of a pipe's lane. It serves a window of time, and publishes without waiting.

Two threads share a `Delivery`. The *storing* thread, one for each window, reserves ahead, deletes
acknowledged messages in batches, and sleeps in between on the store's watch (`delivery.lane`). The *firing*
thread is the one that calls `run`: it sleeps until the next message is due, passes every due message to
`publish`, and sleeps again, in dense traffic for some milliseconds (`core.agenda.gather_ms`). `publish` does
not wait for the acknowledgement, which comes by `confirm`.

Confirmations come from any thread, one for each message, so they take no lock: they are appended to a queue
that the storing thread empties from time to time. Held messages and those in flight are bounded together, in
number and in bytes: a slow output fills the bound, and nothing more is reserved.

Windows. A lane takes no message that falls due at the end of its window or later: that is for the lane of the
next window, which may be another process, and may run already. Both may reserve the same message; the store
gives it to one. At the end the lane stops reserving, publishes the messages that it holds, waits for those in
flight, and acks. When it is stopped, the window ends at that moment. The window of a running lane can be
moved.

An output that fails. `OutputUnavailable` concerns the output as a whole: the message is given back without
counting an attempt, and a `OutputGate` keeps the lane from reserving and publishing for a moment, then lets
one message through. Any other error concerns the message: it is tried again later, which counts an attempt.

An output that is slow. The leases of messages in flight are extended until the output answers. One that
confirms nothing for most of a lease counts as failing, and gets single messages. A message that it has not
answered for `patience_ms` is given back, and may come twice.

A store that fails or is slow. Held messages are published while their leases live; the lane continues in a
moment, and looks up the rows of an unanswered reservation. A message whose ack came after its lease is not
published again if it comes back to this lane: it is acked then.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from chronoline.core.agenda import MOST_GATHER_MS, Agenda, gather_ms
from chronoline.core.delivery import Delivery, DeliveryOptions
from chronoline.core.errors import InvalidInput, OutputUnavailable, StoreClosed, TopicNotFound
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.output_gate import OutputGate
from chronoline.core.ranges import BucketRange
from chronoline.core.session import Session
from chronoline.core.topic import Topic
from chronoline.delivery.lane import Lane, store_failed, summary
from chronoline.delivery.lane_settings import DEFAULT_LANE_SETTINGS, LaneReport, LaneSettings
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import Closable
from chronoline.stores.contract import Store

_AT_ONCE = 500
"""The number of messages that the firing thread publishes before it looks again for due ones."""
_MANY_CONFIRMED = 1_000
"""This many confirmations are processed at once, before their time."""
_LOOK_FOR_STOP_S = 0.25

logger = logging.getLogger(__name__)

Confirm = Callable[[BaseException | None], None]
"""Reports the result of a message: None when the output acknowledged it, else the error."""

Publish = Callable[[LeasedMessage, Confirm], None]
"""Passes a message to the output and does not wait; `confirm` is called exactly once, from any thread.

It may raise, which is the same as `confirm(error)`.
"""

OnFired = Callable[[Sequence[tuple[LeasedMessage, int]]], None]
"""Gets acknowledged messages, each with the time in ms at which the output acknowledged it."""


class Handover:
    """A message under way to the output, and its `confirm`; the first call counts."""

    __slots__ = ("_is_confirmed", "_note", "confirmed_ms", "error", "is_published", "message")

    def __init__(self, message: LeasedMessage, note: Callable[[Handover], None]) -> None:
        self.message = message
        self.is_published = False
        self.confirmed_ms = 0
        """When the output gave its result."""
        self.error: BaseException | None = None
        self._is_confirmed = False
        self._note = note

    def __call__(self, error: BaseException | None) -> None:
        if not self._is_confirmed:
            self._is_confirmed = True
            self.error = error
            self._note(self)


class PublishingLane(Closable):
    """Serves one window after the other, each by `run`; its resources stay open until `close`.

    `consumer` is node + "/" + task attempt, and belongs to one lane: two lanes over the same buckets have two
    names. `gate` is the state of the output that earlier lanes found. `on_fired` gets the messages that the
    output acknowledged, and when it did. The storing thread calls it before it deletes them, so
    that what it writes is not lost; it should be quick.
    """

    def __init__(
        self,
        store: Store,
        topic: Topic,
        publish: Publish,
        *,
        consumer: str,
        ranges: Sequence[BucketRange] | None = None,
        clock: Clock | None = None,
        settings: LaneSettings = DEFAULT_LANE_SETTINGS,
        gate: OutputGate | None = None,
        on_fired: OnFired | None = None,
    ) -> None:
        self._suspects: Counter[str] = Counter()
        self._silence_ms = settings.hold_ms - settings.hold_ms // 10
        self._agenda = Agenda(
            capacity=settings.max_in_flight,
            reserve_ahead_ms=settings.reserve_ahead_ms,
            margin_ms=settings.hold_ms // 10,
            timing_advance_ms=settings.timing_advance_ms,
            poll_ms=settings.poll_ms,
            jitter=random.random,  # lanes that began together must not poll together
        )
        self._gate = gate or OutputGate()
        self._delivery = Delivery(
            self._agenda,
            Session(new_id(), "lane"),
            consumer=consumer,
            lease_ms=settings.hold_ms,
            gate=self._gate,
            options=DeliveryOptions(
                bounds_outstanding=True,
                extends=True,
                # Each is made at half of a lease.
                most_extensions=max(1, 2 * settings.patience_ms // settings.hold_ms),
            ),
        )
        self._lane = Lane(
            store,
            topic,
            self._delivery,
            ranges=ranges,
            clock=clock or SystemClock(),
            retry_ms=settings.retry_ms,
        )
        self._clock = self._lane.clock
        self._publish = publish
        self._on_fired = on_fired
        self._reach_ms = settings.reserve_ahead_ms + settings.timing_advance_ms
        # Acks wait for each other for a small part of a lease.
        self._half_s = min(settings.reserve_ahead_ms / 2000, settings.hold_ms / 8000)
        self._scan_s = settings.hold_ms / 16_000
        self._confirmed: deque[Handover] = deque()
        # Whether each confirmation wakes the storing thread. It is set without a guard too.
        self._impatient = False
        self._changed = self._lane.changed  # guards all below
        self._firing = False  # the firing thread publishes
        self._over = False  # nothing more is published
        self._handed_ms = 0  # when messages were last taken, and until when more gather
        self._gather_until_ms = 0
        self._counts: Counter[str] = Counter()  # for the report on this window
        # Owned by the storing thread; moments in seconds are monotonic.
        self._end_ms = 0
        self._begun_ms = 0
        self._give_up_s = 0.0
        self._settle_at_s = self._scan_at_s = self._ask_at_s = 0.0
        self._heard_ms = 0  # when the output answered last, or was given the first of what it has
        self._error: Exception | None = None

    def run(self, *, start_ms: int, end_ms: int, stopping: Callable[[], bool]) -> LaneReport:
        """Serves the window from `start_ms` until `end_ms`, and returns when none of its messages is held.

        Another thread calls `stopping` several times a second. Raises `TopicNotFound` or `StoreClosed` when
        there is nothing left to serve.
        """
        if start_ms >= end_ms:
            raise InvalidInput(f"the window ends at {end_ms}, before its start at {start_ms}")
        if self._firing:
            raise InvalidInput("the lane runs already")
        if self._clock.now_ms() >= end_ms:
            return LaneReport(skipped=True)
        self._begin(start_ms, end_ms)
        given_back = self._delivery.given_back
        storing = threading.Thread(
            target=self._store_loop, args=(stopping,), name="chronoline-storing", daemon=True
        )
        storing.start()
        try:
            self._fire_loop()
        finally:  # also after an interrupt: then held messages are given back
            with self._changed:
                self._firing = False
                self._changed.notify_all()
            self._lane.wake()
            storing.join()
        if self._error is not None:
            raise self._error
        return LaneReport(
            fired=self._counts["fired"],
            failed=self._counts["failed"],
            given_back=self._delivery.given_back - given_back,
            lapsed=self._counts["lapsed"],
            taken_over=self._counts["taken_over"],
        )

    def close(self) -> None:
        """Closes the watch, which the lane keeps between windows."""
        self._lane.close_watch()

    @property
    def suspects(self) -> dict[str, int]:
        """The number of messages that were taken over, by their earlier holder. Thread-safe."""
        return dict(self._suspects)

    def cover(self, ranges: Sequence[BucketRange]) -> None:
        """Serves these buckets from now on; it serves the messages that it holds of others to the end.

        Any thread may call it, since members come and go while a window is served.
        """
        self._lane.cover(ranges)

    def move_window(self, start_ms: int, end_ms: int) -> None:
        """Serves this window instead, from now on; an end that is past ends it. Any thread may call it."""
        with self._changed:
            if not self._firing or self._delivery.ending:
                return
            self._agenda.serve(start_ms, end_ms)
            self._end_ms = end_ms
        self._lane.wake()

    def _begin(self, start_ms: int, end_ms: int) -> None:
        with self._changed:
            self._agenda.serve(start_ms, end_ms)
            self._delivery.begin()
            self._gate.undecided()
            self._heard_ms = self._clock.now_ms()
            self._impatient = not self._gate.is_open
            self._end_ms = end_ms
            self._begun_ms = self._clock.now_ms()
            self._firing, self._over = True, False
            self._counts, self._error = Counter(), None
            self._ask_at_s = 0.0

    # The firing thread

    def _fire_loop(self) -> None:
        while True:
            with self._changed:
                now_ms = self._clock.now_ms()
                gathers = 0 < self._gather_until_ms - now_ms <= MOST_GATHER_MS
                handovers = [] if gathers else self._take(now_ms)
                self._delivery.handing_since = now_ms if handovers else None
                if not handovers:
                    if self._over:
                        return
                    next_ms = (
                        self._gather_until_ms if gathers else self._delivery.deliver_at(now_ms)
                    )
                    self._changed.wait(
                        None if next_ms is None else self._clock.seconds_until(next_ms)
                    )
                    continue
                self._gather_until_ms = now_ms
                if len(handovers) < _AT_ONCE:  # else more are due
                    self._gather_until_ms += gather_ms(len(handovers), now_ms - self._handed_ms)
                self._handed_ms = now_ms
            self._hand_over(handovers)

    def _take(self, now_ms: int) -> list[Handover]:
        """Takes the messages that may be published now; from here on they are in flight."""
        given_back = self._delivery.given_back
        if not self._delivery.outstanding:
            self._heard_ms = now_ms
        due = self._delivery.deliver(now_ms, _AT_ONCE)
        self._log_lapsed(now_ms)
        if self._delivery.given_back > given_back:
            self._lane.wake()
        return [Handover(message, self._note) for message in due]

    def _hand_over(self, handovers: list[Handover]) -> None:
        now, publish = self._clock.now_ms, self._publish
        agenda, current = self._agenda, self._delivery.current
        for each in handovers:
            message = each.message
            now_ms = now()
            lease = current(message.lease)  # it was extended if the messages before took long
            if lease is None or lease.until - agenda.margin_ms <= now_ms:
                each(_LAPSED)
                continue
            each.is_published = True
            try:
                publish(message, each)
            except Exception as error:
                each(error)
            except BaseException:  # an interrupt of the caller, which gets it
                for left in handovers:
                    if left is each or not left.is_published:
                        left(_INTERRUPTED)
                raise

    def _log_lapsed(self, now_ms: int) -> None:
        lapsed = self._delivery.take_lapsed()
        self._counts["lapsed"] += sum(lease.until <= now_ms for lease in lapsed)
        for lease in lapsed:
            summary.warning(
                "not_published",
                "message %r was not published within its lease; it is served again",
                lease.id,
            )

    # Any thread

    def _note(self, handover: Handover) -> None:
        handover.confirmed_ms = self._clock.now_ms()
        self._confirmed.append(handover)
        if handover.error is not None:
            self._impatient = True  # the sooner it is known, the fewer follow
        if self._impatient or len(self._confirmed) == _MANY_CONFIRMED:
            self._lane.wake()

    # The storing thread

    def _store_loop(self, stopping: Callable[[], bool]) -> None:
        self._lane.begin_round()
        try:
            while not self._is_done():
                try:
                    self._work(stopping)
                except (TopicNotFound, StoreClosed) as error:
                    self._error = error
                    return
                except Exception as error:  # the lane survives every error
                    store_failed(error)
                    self._rest()
        finally:
            self._leave()

    def _rest(self) -> None:
        before = self._firing
        self._lane.rest(lambda: self._firing != before)

    def _work(self, stopping: Callable[[], bool]) -> None:
        self._settle()
        self._check_end(stopping)
        self._lane.open_watch()
        self._keep()
        with self._changed:
            is_last = self._delivery.ending and not self._has_in_hand
        self._lane.do_chores(at_once=is_last)
        self._reserve()
        self._sleep()

    @property
    def _has_in_hand(self) -> bool:
        return bool(self._agenda or self._delivery.outstanding)

    def _check_end(self, stopping: Callable[[], bool]) -> None:
        now_ms = self._clock.now_ms()
        # A clock that was put back makes the window a future one: the next unit finds the present.
        put_back = now_ms < self._begun_ms - self._reach_ms
        over = put_back or now_ms >= self._end_ms or not self._firing
        if not self._delivery.ending and (over or self._is_asked_to_stop(stopping)):
            with self._changed:
                self._delivery.ending = self._impatient = True
            self._renew_patience()
        elif self._delivery.ending:
            self._is_asked_to_stop(stopping)  # which shows that this thread moves
        if self._delivery.ending:
            with self._changed:
                publishes = self._firing and self._gate.is_open
                self._delivery.end(now_ms + self._reach_ms if publishes else None)

    def _renew_patience(self) -> None:
        """After the end of its window a lane waits for a lease, and anew when the output has answered."""
        lasts_ms = self._delivery.lease_span_ms + self._reach_ms
        self._give_up_s = time.monotonic() + lasts_ms / 1000

    def _is_asked_to_stop(self, stopping: Callable[[], bool]) -> bool:
        now_s = time.monotonic()
        if now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + _LOOK_FOR_STOP_S
        return stopping()

    def _settle(self) -> None:
        """Sorts the confirmed messages by their next change, when their time has come."""
        now_s = time.monotonic()
        at_once = self._impatient or len(self._confirmed) >= _MANY_CONFIRMED
        if now_s < self._settle_at_s and not at_once:
            return
        self._settle_at_s = now_s + self._half_s
        take = self._confirmed.popleft
        batch = [take() for _ in range(len(self._confirmed))]
        if not batch:
            return
        now_ms = self._clock.now_ms()
        self._heard_ms = now_ms
        self._renew_patience()
        fired = [each for each in batch if each.error is None]
        current = self._delivery.current
        with self._changed:
            failed = [
                (each, lease)
                for each in batch
                if each.error is not None and (lease := current(each.message.lease)) is not None
            ]
            # One that was given back meanwhile is acked too late, which is logged.
            acked = [current(each.message.lease) or each.message.lease for each in fired]
            self._delivery.settle("ack", acked, now_ms=now_ms)
            if failed:
                self._sort_failed(failed, now_ms)
            self._judge(batch, now_ms)
        self._counts["fired"] += len(fired)
        self._report_fired(fired)

    def _sort_failed(self, failed: Sequence[tuple[Handover, Lease]], now_ms: int) -> None:
        lapsed, unavailable, refused = [], [], []
        for each, lease in failed:
            if each.error is _LAPSED:
                lapsed.append(lease)
            elif isinstance(each.error, OutputUnavailable):
                unavailable.append(lease)
                summary.warning(
                    "output_failed",
                    "the output failed; message %r is given back: %s",
                    lease.id,
                    each.error,
                )
            else:
                refused.append(lease)
                self._log_refused(each)
        self._delivery.too_late(lapsed, now_ms)
        self._log_lapsed(now_ms)
        self._delivery.settle("unreserve", unavailable, now_ms=now_ms)
        self._delivery.settle("retry", refused, now_ms=now_ms)

    def _log_refused(self, handover: Handover) -> None:
        message = handover.message
        last = message.message.attempts + 1 >= self._lane.topic.settings.max_attempts
        summary.warning(
            "dead_letter" if last else "output_refused",
            "publishing message %r failed; it %s: %s",
            message.lease.id,
            "goes to the dead letters" if last else "is tried again",
            handover.error,
        )
        self._counts["failed"] += 1

    def _judge(self, batch: Sequence[Handover], now_ms: int) -> None:
        """The output's state by the confirmations; the last conclusive one counts."""
        for each in reversed(batch):
            if each.error is None:
                if not self._gate.is_open:
                    self._gate.succeeded()
                    self._agenda.noticed(None)
                break
            if isinstance(each.error, OutputUnavailable):
                self._gate.failed(now_ms)
                break
        else:
            self._gate.undecided()
        self._heed_gate()

    def _heed_gate(self) -> None:
        self._impatient = self._delivery.ending or not self._gate.is_open
        self._changed.notify_all()

    def _report_fired(self, fired: Sequence[Handover]) -> None:
        if self._on_fired is None or not fired:
            return
        try:
            self._on_fired([(each.message, each.confirmed_ms) for each in fired])
        except Exception:
            logger.exception("the receipts of %d messages failed", len(fired))

    def _keep(self) -> None:
        """Gives back held messages whose leases end soon, and those that the output does not answer."""
        now_s = time.monotonic()
        if now_s < self._scan_at_s:
            return
        self._scan_at_s = now_s + self._scan_s
        now_ms = self._clock.now_ms()
        with self._changed:
            self._delivery.give_back_waiting(now_ms)
            in_flight = len(self._delivery.outstanding)
            is_silent = bool(in_flight) and now_ms - self._heard_ms >= self._silence_ms
            overdue = self._delivery.unanswered_by(now_ms + self._agenda.margin_ms)
            self._delivery.settle("unreserve", overdue, now_ms=now_ms)
            if is_silent or overdue:
                self._heard_ms = now_ms
                self._gate.failed(now_ms)
                self._heed_gate()
        if is_silent:
            summary.warning(
                "output_silent",
                "the output has confirmed nothing for %d ms, and %d messages wait for it",
                self._silence_ms,
                in_flight,
            )
        if overdue:
            summary.warning(
                "output_unanswered",
                "the output did not confirm message %r; it is given back, and may come twice",
                overdue[0].id,
                count=len(overdue),
            )

    def _reserve(self) -> None:
        for leased in self._lane.reserve():
            if leased.taken_from is not None and leased.taken_from != self._delivery.consumer:
                self._counts["taken_over"] += 1
                self._suspects[leased.taken_from] += 1
                summary.warning(
                    "suspected",
                    "suspected failure of %s for message %s",
                    leased.taken_from,
                    leased.lease.id,
                )

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            moments = [self._delivery.reserve_at(now_ms), self._delivery.chore_at(now_ms)]
            if not self._delivery.ending:
                moments.append(self._end_ms)
            busy = bool(self._has_in_hand or self._confirmed)
        waits_s = [self._clock.seconds_until(each) for each in moments if each is not None]
        waits_s.append(_LOOK_FOR_STOP_S)
        if busy:
            waits_s.append(self._settle_at_s - time.monotonic())
        if not self._is_done():
            self._lane.sleep(min(waits_s))

    def _is_done(self) -> bool:
        if not self._delivery.ending:
            return False
        with self._changed:
            in_hand = self._has_in_hand or self._confirmed
            if not in_hand and self._delivery.is_settled:
                return True
            is_over = time.monotonic() >= self._give_up_s
            return is_over and not self._delivery.keeps_any(self._clock.now_ms())

    def _leave(self) -> None:
        """Ends the storing thread, and with it the firing thread; the remaining messages lapse."""
        with self._changed:
            left = self._delivery.abandon()
            self._over = True
            self._changed.notify_all()
        if left:
            logger.warning("%d messages are served again when their leases lapse", left)


class _Lapsed(Exception):
    """The lease was over before the message could be handed over."""


_LAPSED = _Lapsed()
_INTERRUPTED = OutputUnavailable("publishing was interrupted")
