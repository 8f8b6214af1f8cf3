"""The thread shell of a delivery: the storing thread's side, for firing lanes and publishing lanes.

`changed` guards the delivery, and wakes the firing thread. The storing thread alone calls the methods that
use the store, without holding `changed`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from chronoline.core.change import lease_change
from chronoline.core.delivery import (
    Chore,
    Command,
    Delivery,
    Extend,
    Look,
    Reserve,
    Settle,
    is_unknown,
)
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_HEADER_BYTES, MAX_KEY_BYTES, MIN_LEASE_MS, name_problem
from chronoline.core.message import After, LeasedMessage, Message
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.runtime.log_summary import LogSummary
from chronoline.stores.contract import Notice, Store, Watch

DEFAULT_HOLD_MS = 5_000
DEFAULT_RETRY_MS = 1_000
_SHORTEST_HOLD_MS = 10 * MIN_LEASE_MS
_LOOK_ROWS = 500

logger = logging.getLogger(__name__)
summary = LogSummary(logger)
"""The lines that many messages share, of all lanes."""

Result = TypeVar("Result")


class Lane:
    """Executes the commands of a delivery on the store, and sleeps on the store's watch."""

    rest_ms = 200
    """The wait after a failure of the store."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        delivery: Delivery,
        *,
        ranges: Sequence[BucketRange] | None,
        clock: Clock,
        retry_ms: int,
    ) -> None:
        _check(delivery.consumer, delivery.lease_ms, retry_ms)
        self.store = store
        self.topic = topic
        self.clock = clock
        self.changed = threading.Condition()
        self.delivery = delivery
        settings = topic.settings
        delivery.agenda.largest_bytes = (
            settings.largest_body_bytes + MAX_KEY_BYTES + MAX_HEADER_BYTES
        )
        self.cover(topic.all_buckets if ranges is None else ranges)
        self._retry_ms = retry_ms
        self._watch: Watch | None = None
        self._began_ms: int | None = None  # when the round began, or should have begun

    # Rounds of the storing thread

    def begin_round(self) -> None:
        self._began_ms = self.clock.now_ms()

    def end_round(self) -> int:
        """Tells the delivery how long the round took, with the delay of its start; returns the time."""
        now_ms = self.clock.now_ms()
        with self.changed:
            if self._began_ms is not None and now_ms > self._began_ms:
                self.delivery.took(now_ms - self._began_ms)
        self._began_ms = now_ms
        return now_ms

    # The buckets

    def cover(self, ranges: Sequence[BucketRange]) -> None:
        """Reserves in these buckets from now on."""
        merged = merge_ranges(ranges, self.topic.settings.buckets)
        with self.changed:
            self.delivery.cover(merged)

    # The watch

    def open_watch(self) -> None:
        if self._watch is None:
            self._watch = self.store.watch()
            with self.changed:
                self.delivery.noticed(None)  # there was no watch until now

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
        """Ends a round: sleeps on the watch, and passes its notices to the delivery."""
        slept_ms = self.end_round()
        if self._watch is None or timeout_s <= 0:
            return
        notices = self._watch.wait(timeout_s)
        self._began_ms = min(self.clock.now_ms(), slept_ms + int(timeout_s * 1000))
        for notice in notices:
            if notice.returned is None and notice.topic_uid in (None, self.topic.uid):
                self._notice(notice)

    def _notice(self, notice: Notice) -> None:
        due = notice.due
        if not self.delivery.covers(notice.buckets):
            return
        if due is None:  # an unspecified change: a read costs less than a reservation
            due = self.store.next_ts(self.topic.uid, self.delivery.ranges)
        if due is not None:
            with self.changed:
                self.delivery.noticed(due)

    def rest(self, disturbed: Callable[[], bool]) -> None:
        """Sleeps for a moment, whatever notices come meanwhile."""
        until_ms = self.end_round() + self.rest_ms
        with self.changed:
            self.changed.wait_for(disturbed, self.clock.seconds_until(until_ms))
        self._began_ms = min(self.clock.now_ms(), until_ms)

    # The store

    def do_chores(self, *, at_once: bool = False) -> None:
        """Executes the changes and lookups that are due; with `at_once`, all of them."""
        while True:
            with self.changed:
                chore = self.delivery.next_chore(self.clock.now_ms(), at_once=at_once)
            if chore is None:
                return
            self._carry_out(chore, partial(self._do, chore))

    def reserve(self) -> Sequence[LeasedMessage]:
        """Reserves if it is time; wakes the firing thread before it returns."""
        with self.changed:
            command = self.delivery.reserve(self.clock.now_ms())
        if command is None:
            return ()
        return self._carry_out(command, partial(self._reserve, command))

    def _carry_out(self, command: Command, work: Callable[[], Result]) -> Result:
        try:
            return work()
        except BaseException as error:
            with self.changed:
                self.delivery.failed(
                    command,
                    unknown=is_unknown(error),
                    rest_ms=self.rest_ms,
                    now_ms=self.clock.now_ms(),
                )
            raise

    def _reserve(self, command: Reserve) -> Sequence[LeasedMessage]:
        grant = self.store.reserve(
            self.topic.uid,
            command.ranges,
            consumer=self.delivery.consumer,
            limit=command.limit,
            lease_ms=command.lease_ms,
            reserve_ahead_ms=command.reach_ms,
            session=command.session,
            since_ms=command.since_ms,
            now_ms=command.asked_ms,
        )
        with self.changed:
            self.delivery.reserved(command, grant.leased)
            self.changed.notify_all()
        for outcome in grant.refused:
            summary.warning("message_refused", "message %r was %s", outcome.id, outcome.reason)
        next_ts: int | None = command.asked_ms
        if not grant.leased:  # the next message is probably not far from this one
            next_ts = self.store.next_ts(self.topic.uid, command.ranges)
        with self.changed:
            self.delivery.completed(
                command, next_ts=next_ts, more=grant.more, clear_ms=grant.clear_ms
            )
        return grant.leased

    def _do(self, chore: Chore) -> None:
        if isinstance(chore, Look):
            messages = list(self._held(chore.session))
            with self.changed:
                self.delivery.found(chore, messages)
        elif isinstance(chore, Settle):
            self._settle(chore)
        else:
            self._extend(chore)

    def _held(self, session: str) -> Iterator[Message]:
        """The rows that name one reservation of the lane."""
        look = partial(
            self.store.select_held,
            self.topic.uid,
            self.delivery.consumer,
            session=session,
            limit=_LOOK_ROWS,
        )
        page = look()
        yield from page.messages
        while page.more:
            page = look(after=page.messages[-1].id)
            yield from page.messages

    def _settle(self, settle: Settle) -> None:
        operation = Operation(settle.how)
        to = After(self._retry_ms) if operation is Operation.RETRY else 0
        changes = [lease_change(operation, lease, to) for lease in settle.leases]
        now_ms = self.clock.now_ms()
        outcomes = self.store.apply(self.topic.uid, changes, again=settle.again, now_ms=now_ms)
        refused = {outcome.id: outcome for outcome in outcomes if not outcome.done}
        for outcome in refused.values():
            summary.warning(
                f"{settle.how}_too_late",
                "the %s of message %r came too late: %s",
                settle.how,
                outcome.id,
                outcome.reason,
            )
        with self.changed:
            self.delivery.settled(settle, refused)

    def _extend(self, extend: Extend) -> None:
        to = After(extend.lease_ms)
        changes = [lease_change(Operation.EXTEND, lease, to) for lease in extend.leases]
        outcomes = self.store.apply(
            self.topic.uid, changes, again=extend.again, now_ms=self.clock.now_ms()
        )
        kept = [
            lease.extended(outcome.version, outcome.at)
            for lease, outcome in zip(extend.leases, outcomes, strict=True)
            if outcome.done
        ]
        with self.changed:
            lost = {lease.id for lease in self.delivery.extended(extend, kept)}
        for outcome in outcomes:
            if outcome.id in lost:
                summary.warning(
                    "lease_lost",
                    "the lease of message %r was lost: %s",
                    outcome.id,
                    outcome.reason,
                )


def store_failed(error: Exception) -> None:
    """Logs an error of the store, which a lane survives."""
    summary.warning("store_failed", "the store failed; the lane continues in a moment: %s", error)


def _check(consumer: str, hold_ms: int, retry_ms: int) -> None:
    problem = name_problem("consumer", consumer)
    if hold_ms < _SHORTEST_HOLD_MS:
        problem = f"hold_ms must be at least {_SHORTEST_HOLD_MS}, not {hold_ms}"
    elif retry_ms < MIN_LEASE_MS:
        problem = f"retry_ms must be at least {MIN_LEASE_MS}, not {retry_ms}"
    if problem:
        raise InvalidInput(problem)
