"""A firing lane: serves the due messages of some buckets, each at its millisecond.

Two threads share an agenda. The *storing* thread reserves ahead, deletes what was delivered in batches, and
sleeps in between on the store's watch. The *firing* thread sleeps until the next message is due and
delivers it. Neither looks at regular intervals: the agenda says when.

What is delivered is acked after `deliver` returned, so a message is delivered at least once: if the
process dies in between, or the ack comes too late, its lease lapses and it is served again. If `deliver`
raises, the batch is given back by `retry` with `retry_ms`. If the store fails, the lane waits
`_STORE_FAILED_MS` and goes on; what it holds is delivered as long as its leases live.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from chronoline.clock import Clock, SystemClock
from chronoline.core.agenda import Agenda
from chronoline.core.errors import StoreError, TopicNotFound
from chronoline.core.message import Lease, LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.stores.contract import MAX_BATCH, Store, Watch

DEFAULT_HOLD_MS = 5_000
DEFAULT_RETRY_MS = 1_000
_RESERVE_ROWS = 500
_STORE_FAILED_MS = 200

logger = logging.getLogger(__name__)

Deliver = Callable[[Sequence[LeasedMessage]], None]


class FiringLane:
    """Starts and stops like every service: stopping twice, or before the start, is fine."""

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
        self._store = store
        self._topic = topic
        self._deliver = deliver
        self._consumer = consumer
        self._ranges = topic.all_buckets if ranges is None else tuple(ranges)
        self._clock = clock or SystemClock()
        self._hold_ms = hold_ms
        self._retry_ms = retry_ms
        # Guards the agenda, the lists below and `_stopped`; tells the firing thread of news.
        self._changed = threading.Condition()
        self._agenda = Agenda() if agenda is None else agenda  # an empty one is false
        self._delivered: list[Lease] = []
        self._failed: list[Lease] = []
        self._flush_at: int | None = None
        self._stopped = False
        self._watch: Watch | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._watch = self._store.watch()
        self._threads = [
            threading.Thread(target=self._store_loop, name="chronoline-storing", daemon=True),
            threading.Thread(target=self._fire_loop, name="chronoline-firing", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Acks what was delivered, gives back what was not, and ends the threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._watch is not None:
            self._watch.wake()
        for thread in reversed(self._threads):
            thread.join()
        if self._watch is not None:
            self._watch.close()
        self._threads, self._watch = [], None

    # The firing thread

    def _fire_loop(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                due = self._agenda.deliver(self._clock.now_ms())
                if not due:
                    next_due = self._agenda.deliver_at()
                    self._changed.wait(
                        None if next_due is None else self._clock.seconds_until(next_due)
                    )
                    continue
            self._fire(due)

    def _fire(self, due: Sequence[LeasedMessage]) -> None:
        leases = [message.lease for message in due]
        try:
            self._deliver(due)
        except Exception:
            logger.exception("delivering %d messages failed; they are tried again", len(due))
            delivered = False
        else:
            delivered = True
        with self._changed:
            (self._delivered if delivered else self._failed).extend(leases)
            if self._flush_at is None:
                self._flush_at = self._clock.now_ms() + self._agenda.reserve_ahead_ms // 2
                if self._watch is not None:
                    self._watch.wake()  # so that the storing thread sleeps until then, not longer

    # The storing thread

    def _store_loop(self) -> None:
        while True:
            with self._changed:
                stopped = self._stopped
            try:
                if stopped:
                    self._threads[1].join()  # what is being delivered is acked below
                    self._finish()
                    return
                self._flush()
                self._reserve()
                self._sleep()
            except TopicNotFound:
                logger.warning("the topic %r was dropped; its lane has ended", self._topic.name)
                return
            except Exception as error:  # whatever it is, the lane goes on
                logger.warning("the store failed, going on in a moment: %s", error)
                if stopped:
                    return
                self._rest()

    def _flush(self, *, at_once: bool = False) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            if self._flush_at is None or (now_ms < self._flush_at and not at_once):
                return
            delivered, self._delivered = self._delivered, []
            failed, self._failed = self._failed, []
            self._flush_at = None
        try:
            while delivered:
                self._store.ack(self._topic.uid, delivered[:MAX_BATCH], now_ms=now_ms)
                del delivered[:MAX_BATCH]
            while failed:
                moves = [(lease, now_ms + self._retry_ms) for lease in failed[:MAX_BATCH]]
                self._store.retry(self._topic.uid, moves, now_ms=now_ms)
                del failed[:MAX_BATCH]
        except StoreError:
            with self._changed:  # both can be said again: a repeated ack changes nothing
                self._delivered[:0] = delivered
                self._failed[:0] = failed
                self._flush_at = now_ms + _STORE_FAILED_MS
            raise

    def _reserve(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            reserve_at = self._agenda.reserve_at(now_ms)
            room = self._agenda.room()
        if reserve_at is None or reserve_at > now_ms:
            return
        grant = self._store.reserve(
            self._topic.uid,
            self._ranges,
            consumer=self._consumer,
            limit=min(room, _RESERVE_ROWS),
            lease_ms=self._hold_ms,
            reserve_ahead_ms=self._agenda.reserve_ahead_ms,
            now_ms=now_ms,
        )
        with self._changed:
            # At once: a message that is due already must not wait for the next look-up.
            self._agenda.reserved(grant.leased, next_ts=None, more=True, now_ms=now_ms)
            self._changed.notify_all()
        for outcome in grant.refused:
            logger.warning("message %r was %s", outcome.id, outcome.reason)
        next_ts = None if grant.more else self._store.next_ts(self._topic.uid, self._ranges)
        with self._changed:
            self._agenda.reserved((), next_ts=next_ts, more=grant.more, now_ms=now_ms)
            for message in self._agenda.lapsed():
                logger.warning(
                    "message %r was not delivered within its lease; it is served again",
                    message.lease.id,
                )

    def _sleep(self) -> None:
        now_ms = self._clock.now_ms()
        with self._changed:
            if self._stopped or self._watch is None:
                return
            reserve_at = self._agenda.reserve_at(now_ms)
            moments = [m for m in (reserve_at, self._flush_at) if m is not None]
        # Without room to reserve, the next flush or a wake-up brings news.
        timeout_s = self._clock.seconds_until(min(moments)) if moments else self._hold_ms / 1000
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
        until_ms = self._clock.now_ms() + _STORE_FAILED_MS
        with self._changed:
            self._agenda.postponed(until_ms)
            self._changed.wait_for(lambda: self._stopped, self._clock.seconds_until(until_ms))

    def _finish(self) -> None:
        self._flush(at_once=True)
        with self._changed:
            held = [message.lease for message in self._agenda.give_back()]
        while held:
            self._store.unreserve(self._topic.uid, held[:MAX_BATCH], now_ms=self._clock.now_ms())
            del held[:MAX_BATCH]
