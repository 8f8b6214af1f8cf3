"""A publishing lane: the body of a pipe's lane. It serves a window of time, and publishes without waiting.

Two threads share a `Holding`. The *storing* thread, which lives as long as a window, reserves ahead, deletes
what was acknowledged in batches, and sleeps in between on the store's watch. The *firing* thread is the one
that calls `run`: it sleeps until the next message is due, hands everything that is due to `publish`, and
sleeps again. `publish` does not wait for the output's acknowledgement, which comes by `confirm`.

State of a message: held in the agenda, then in flight (`Flight`), then waiting for its ack, its retry or its
return. Those held and those in flight are bounded together, in number and in bytes: a slow output fills the
bound, and nothing more is reserved.

Windows. A lane takes nothing that falls due at the end of its window or later: that is for the lane of the
next window, which may be another process, and may be up already. Both may reach for the same message; the
store gives it to one. At the end the lane stops reserving, publishes what it holds, waits for what is in
flight, and acks. When it is told to stop, the window ends at that moment.

An output that fails. `OutputUnavailable` concerns the output as a whole: the message is given back without
counting an attempt, and a `Gate` keeps the lane from reserving and publishing for a moment, then lets one
message through. Any other error concerns the message: it is tried again later, which counts an attempt. What
is not confirmed until shortly before its lease ends is given back too, and may come twice: the output is
taken for failing.

A store that fails. What is held is published as long as its leases live; the lane goes on in a moment, and
finds out what became of an unanswered reservation. Acks that come after the lease are refused with a
warning, and those messages come again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chronoline.core.agenda import Agenda
from chronoline.core.closing import Closing
from chronoline.core.errors import InvalidInput, OutputUnavailable, StoreClosed, TopicNotFound
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.flight import Flight, Handover
from chronoline.delivery.lane_settings import DEFAULT_LANE_SETTINGS, LaneReport, LaneSettings
from chronoline.delivery.output_gate import Gate
from chronoline.delivery.reservations import RESERVE_ROWS, Holding
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store

_AT_ONCE = 500
"""So many are handed over before the firing thread looks again at what is due."""
_STORE_FAILED_MS = 200
_LOOK_FOR_STOP_S = 0.25
_SAY_EVERY_S = 1.0

logger = logging.getLogger(__name__)

Confirm = Callable[[BaseException | None], None]
"""Tells what became of a message: None when the output acknowledged it, else why it did not."""

Publish = Callable[[LeasedMessage, Confirm], None]
"""Hands a message to the output and does not wait; `confirm` is called exactly once, from any thread.

It may raise, which is the same as `confirm(error)`.
"""


class PublishingLane(Closing):
    """Serves one window after the other, each by `run`; what it needs for that stays open until `close`.

    `consumer` is node + "/" + task attempt, and belongs to one lane: two of them over the same buckets have
    two names. `gate` is what is known of the output from lanes before it. `on_fired` hears of each message
    that the output acknowledged, and when it was handed over; it is called by the storing thread and should
    be quick.
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
        gate: Gate | None = None,
        on_fired: Callable[[LeasedMessage, int], None] | None = None,
    ) -> None:
        self._margin_ms = settings.hold_ms // 10
        self._agenda = Agenda(
            capacity=settings.max_in_flight,
            reserve_ahead_ms=settings.reserve_ahead_ms,
            margin_ms=self._margin_ms,
            timing_advance_ms=settings.timing_advance_ms,
            poll_ms=settings.poll_ms,
            jitter=random.random,  # so that lanes that began together do not go on asking together
        )
        self._holding = Holding(
            store,
            topic,
            self._agenda,
            consumer=consumer,
            ranges=ranges,
            clock=clock,
            hold_ms=settings.hold_ms,
            retry_ms=settings.retry_ms,
            rest_ms=_STORE_FAILED_MS,
        )
        self._clock = self._holding.clock
        self._publish = publish
        self._consumer = consumer
        self._on_fired = on_fired
        self._reach_ms = settings.reserve_ahead_ms + settings.timing_advance_ms
        self._half_s = settings.reserve_ahead_ms / 2000
        self._scan_s = settings.hold_ms / 16_000
        self._changed = self._holding.changed  # guards all below
        self._flight = Flight(self._agenda, self._holding.wake)
        self._gate = gate or Gate()
        self._handing_ms: int | None = None  # since when the firing thread hands over
        self._firing = False  # somebody publishes
        self._ending = False  # nothing more is reserved
        self._over = False  # nothing more is published
        self._counts = _Counts()
        # The storing thread's own; moments in seconds are monotonic.
        self._end_ms = 0
        self._begun_ms = 0
        self._give_up_s = 0.0
        self._settle_at_s = self._scan_at_s = self._ask_at_s = self._say_at_s = 0.0
        self._unsaid = 0  # messages that the output failed for, since the log was told
        self._error: Exception | None = None

    def run(self, *, start_ms: int, end_ms: int, stopping: Callable[[], bool]) -> LaneReport:
        """Serves the window from `start_ms` until `end_ms`, and answers when nothing of it is in hand.

        `stopping` is asked several times a second, by another thread. Raises `TopicNotFound` or `StoreClosed`
        when there is nothing to serve any more.
        """
        if start_ms >= end_ms:
            raise InvalidInput(f"the window ends at {end_ms}, before its start at {start_ms}")
        if self._firing:
            raise InvalidInput("the lane runs already")
        if self._clock.now_ms() >= end_ms:
            return LaneReport(skipped=True)
        self._begin(start_ms, end_ms)
        given_back = self._holding.given_back
        storing = threading.Thread(
            target=self._store_loop, args=(stopping,), name="chronoline-storing", daemon=True
        )
        storing.start()
        try:
            self._fire_loop()
        finally:  # also when an interrupt came through: then what is held is given back
            with self._changed:
                self._firing = False
                self._changed.notify_all()
            self._holding.wake()
            storing.join()
        if self._error is not None:
            raise self._error
        return self._counts.report(self._holding.given_back - given_back)

    def close(self) -> None:
        """Between windows: gives back what the lane keeps for the next one."""
        self._holding.close_watch()

    def cover(self, ranges: Sequence[BucketRange]) -> None:
        """From now on serves these buckets; what it holds of others it serves to the end.

        `stopping` may call it, since members come and go while a window is served.
        """
        self._holding.cover(ranges)

    def _begin(self, start_ms: int, end_ms: int) -> None:
        with self._changed:
            self._agenda.serve(start_ms, end_ms)
            self._gate.undecided()
            self._flight.impatient = not self._gate.is_open
            self._end_ms = end_ms
            self._begun_ms = self._clock.now_ms()
            self._firing, self._ending, self._over = True, False, False
            self._counts, self._error = _Counts(), None
            self._ask_at_s = 0.0

    # The firing thread

    def _fire_loop(self) -> None:
        while True:
            with self._changed:
                now_ms = self._clock.now_ms()
                handovers = self._take(now_ms)
                self._handing_ms = now_ms if handovers else None
                if not handovers:
                    if self._over:
                        return
                    self._changed.wait(self._seconds_to_next(now_ms))
                    continue
            self._hand_over(handovers)

    def _take(self, now_ms: int) -> list[Handover]:
        """Takes what may be published now; from here on it is in flight."""
        allowed = self._gate.allows(now_ms)
        due = self._agenda.deliver(now_ms, _AT_ONCE if allowed is None else allowed)
        lapsed, expired = self._agenda.lapsed(), self._agenda.expired()
        if lapsed or expired:
            self._holding.give_back(expired)
            self._lapse(lapsed, now_ms)
            self._holding.wake()
        if not due:
            return []
        self._gate.passed()
        return self._flight.start(due)

    def _seconds_to_next(self, now_ms: int) -> float | None:
        next_due = self._agenda.deliver_at()
        opens_at = self._gate.opens_at(now_ms)
        if next_due is None or opens_at is None:
            return None  # until there is news
        return self._clock.seconds_until(max(next_due, opens_at))

    def _hand_over(self, handovers: list[Handover]) -> None:
        now, margin_ms, publish = self._clock.now_ms, self._margin_ms, self._publish
        for each in handovers:
            message = each.message
            now_ms = now()
            if message.lease.until - margin_ms <= now_ms:  # those before it took too long
                each(_LAPSED)
                continue
            each.fired_ms = now_ms
            try:
                publish(message, each)
            except Exception as error:
                each(error)
            except BaseException:  # an interrupt of the caller, who hears of it
                for left in handovers:
                    if left is each or not left.fired_ms:
                        left(_INTERRUPTED)
                raise

    def _lapse(self, leases: Sequence[Lease], now_ms: int) -> None:
        """Too late to be published: what still lives is given back, so that no attempt is counted."""
        alive = [lease for lease in leases if lease.until > now_ms]
        self._holding.give_back(alive)
        self._counts.lapsed += len(leases) - len(alive)
        for lease in leases:
            logger.warning(
                "message %r was not published within its lease; it is served again", lease.id
            )

    # The storing thread

    def _store_loop(self, stopping: Callable[[], bool]) -> None:
        try:
            while not self._is_done():
                try:
                    self._work(stopping)
                except (TopicNotFound, StoreClosed) as error:
                    self._error = error
                    return
                except Exception as error:  # whatever it is, the lane goes on
                    logger.warning("the store failed, going on in a moment: %s", error)
                    self._rest()
        finally:
            self._leave()

    def _rest(self) -> None:
        before = self._firing
        self._holding.rest(lambda: self._firing != before)

    def _work(self, stopping: Callable[[], bool]) -> None:
        self._settle()
        self._look_for_the_end(stopping)
        self._holding.open_watch()
        self._holding.recover()
        self._keep()
        with self._changed:
            last = self._ending and not self._agenda and not self._flight
        self._holding.flush(at_once=last)
        self._reserve()
        self._sleep()

    def _look_for_the_end(self, stopping: Callable[[], bool]) -> None:
        now_ms = self._clock.now_ms()
        # A clock that was put back makes the window one of the future: the next unit finds the present.
        put_back = now_ms < self._begun_ms - self._reach_ms
        over = put_back or now_ms >= self._end_ms or not self._firing
        if not self._ending and (over or self._is_told_to_stop(stopping)):
            with self._changed:
                self._ending = self._flight.impatient = True
            self._give_up_s = time.monotonic() + (self._holding.hold_ms + self._reach_ms) / 1000
        if self._ending:
            with self._changed:
                publishes = self._firing and self._gate.is_open
                latest_ms = now_ms + self._reach_ms
                agenda = self._agenda
                self._holding.give_back(
                    agenda.beyond(latest_ms) if publishes else agenda.give_back()
                )

    def _is_told_to_stop(self, stopping: Callable[[], bool]) -> bool:
        now_s = time.monotonic()
        if now_s < self._ask_at_s:
            return False
        self._ask_at_s = now_s + _LOOK_FOR_STOP_S
        return stopping()

    def _settle(self) -> None:
        """Sorts what was confirmed by what is to be said of it, when its time has come."""
        now_s = time.monotonic()
        at_once = self._flight.impatient or self._flight.many_confirmed
        if now_s < self._settle_at_s and not at_once:
            return
        self._settle_at_s = now_s + self._half_s
        batch = self._flight.take_confirmed()
        if not batch:
            return
        now_ms = self._clock.now_ms()
        fired = [each for each in batch if each.error is None]
        with self._changed:
            failed = [each for each in batch if each.error is not None and each in self._flight]
            self._flight.end(batch)
            self._holding.to_ack += [each.message.lease for each in fired]
            self._holding.flush_at = 0
            if failed:
                self._sort_failed(failed, now_ms)
            self._judge(batch, now_ms)
        self._counts.fired += len(fired)
        self._tell(fired)

    def _sort_failed(self, failed: Sequence[Handover], now_ms: int) -> None:
        unavailable = [each for each in failed if isinstance(each.error, OutputUnavailable)]
        self._holding.give_back([each.message.lease for each in unavailable])
        if unavailable:
            self._say_unavailable(unavailable)
            self._agenda.noticed(None)  # they are due, or will be soon
        self._lapse([each.message.lease for each in failed if each.error is _LAPSED], now_ms)
        for each in failed:
            if each.error is not _LAPSED and not isinstance(each.error, OutputUnavailable):
                self._fail(each)

    def _say_unavailable(self, unavailable: Sequence[Handover]) -> None:
        """Once a second at most: while an output is away, nothing else happens."""
        self._unsaid += len(unavailable)
        now_s = time.monotonic()
        if now_s >= self._say_at_s:
            logger.warning(
                "the output failed, %d messages are given back: %s",
                self._unsaid,
                unavailable[-1].error,
            )
            self._unsaid, self._say_at_s = 0, now_s + _SAY_EVERY_S

    def _fail(self, handover: Handover) -> None:
        message = handover.message
        last = message.message.attempts + 1 >= self._holding.topic.settings.max_attempts
        logger.warning(
            "publishing message %r failed; it %s: %s",
            message.lease.id,
            "goes to the dead letters" if last else "is tried again",
            handover.error,
        )
        self._counts.failed += 1
        self._holding.to_retry.append(message.lease)

    def _judge(self, batch: Sequence[Handover], now_ms: int) -> None:
        """What the confirmations say about the output; the last one that says something is right."""
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
        self._flight.impatient = self._ending or not self._gate.is_open
        self._changed.notify_all()

    def _tell(self, fired: Sequence[Handover]) -> None:
        if self._on_fired is None:
            return
        for each in fired:
            try:
                self._on_fired(each.message, each.fired_ms)
            except Exception:
                logger.exception("the receipt of message %r failed", each.message.lease.id)

    def _keep(self) -> None:
        """Gives back what is held or in flight for so long that its lease ends soon."""
        now_s = time.monotonic()
        if now_s < self._scan_at_s:
            return
        self._scan_at_s = now_s + self._scan_s
        now_ms = self._clock.now_ms()
        with self._changed:
            self._holding.give_back(self._agenda.ending(now_ms + self._holding.hold_ms // 2))
            overdue = self._flight.ending(now_ms + self._margin_ms)
            if not overdue:
                return
            self._flight.end(overdue)
            self._holding.give_back([each.message.lease for each in overdue])
            self._gate.failed(now_ms)
            self._heed_gate()
        logger.warning(
            "the output did not answer for %d messages; they are given back, and may come twice",
            len(overdue),
        )

    def _reserve(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            reserve_at = self._reserve_at(now_ms)
            most = RESERVE_ROWS if self._gate.is_open else 1
        if reserve_at is None or reserve_at > now_ms:
            return
        for leased in self._holding.reserve(now_ms, most=most).leased:
            if leased.taken_from is not None and leased.taken_from != self._consumer:
                self._counts.taken_over += 1
                node, _, _ = leased.taken_from.partition("/")
                logger.warning("suspected failure of %s for message %s", node, leased.lease.id)

    def _reserve_at(self, now_ms: int) -> int | None:
        """When to reserve next; not while the output cannot keep up, and one at a time while it fails."""
        stuck_ms = self._holding.hold_ms // 4
        if self._ending or (self._handing_ms is not None and now_ms - self._handing_ms >= stuck_ms):
            return None
        reserve_at = self._agenda.reserve_at(now_ms)
        if self._gate.is_open or reserve_at is None:
            return reserve_at
        opens_at = self._gate.opens_at(now_ms)
        return None if opens_at is None or self._agenda else max(reserve_at, opens_at)

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            moments = [self._reserve_at(now_ms), self._holding.flush_at]
            if not self._ending:
                moments.append(self._end_ms)
            busy = bool(self._agenda or self._flight or self._flight.confirmed)
        waits_s = [self._clock.seconds_until(each) for each in moments if each is not None]
        waits_s.append(_LOOK_FOR_STOP_S)
        if busy:
            waits_s.append(self._settle_at_s - time.monotonic())
        if not self._is_done():
            self._holding.sleep(min(waits_s))

    def _is_done(self) -> bool:
        if not self._ending:
            return False
        with self._changed:
            in_hand = self._agenda or self._flight or self._flight.confirmed
            if not in_hand and self._holding.settled:
                return True
        return time.monotonic() >= self._give_up_s

    def _leave(self) -> None:
        """The storing thread ends, and so does the firing thread; what is left is left to its leases."""
        with self._changed:
            left = len(self._agenda.give_back()) + len(self._flight)
            self._flight.end_all()
            self._over = True
            self._changed.notify_all()
        if left:
            logger.warning("%d messages are left to their leases; they are served again", left)


@dataclass(slots=True)
class _Counts:
    """What happened in one window so far."""

    fired: int = 0
    failed: int = 0
    lapsed: int = 0
    taken_over: int = 0

    def report(self, given_back: int) -> LaneReport:
        return LaneReport(
            fired=self.fired,
            failed=self.failed,
            given_back=given_back,
            lapsed=self.lapsed,
            taken_over=self.taken_over,
        )


class _Lapsed(Exception):
    """The lease was over before the message could be handed over."""


_LAPSED = _Lapsed()
_INTERRUPTED = OutputUnavailable("publishing was interrupted")
