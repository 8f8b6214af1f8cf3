"""Storage threads: group commit for callers with few messages each.

`runtime.group_commit` says how calls are grouped.

There are three queues: reservations, other deadline work (changes of leases), and bulk work (creates, changes
by owners, changes of dead letters). On an engine with concurrent writers each queue has a thread, so that
none delays another. On an engine with a single writer one thread serves all of them, with one commit for
everything that waits, which is cut to about `commit_ms` of work from each queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from sys import maxsize
from typing import TypeVar

from chronoline.core.change import LEASE_OPERATIONS, Change, check_batch_size, operation_of
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.group_commit import DEFAULT_MOST_BYTES, Committer
from chronoline.runtime.service import Closable
from chronoline.stores.contract import IfExists, Recipient, Store

Item = TypeVar("Item")


class StorageThreads(Closable):
    """The changes of a store, answered by futures and committed in groups."""

    def __init__(
        self,
        store: Store,
        clock: Clock | None = None,
        *,
        commit_ms: float = 5.0,
        most_waiting: int = 100_000,
        most_bytes: int = DEFAULT_MOST_BYTES,
    ) -> None:
        self._store = store
        beside = store.capabilities.concurrent_writers

        def open_committer(name: str) -> Committer:
            return Committer(
                name,
                clock or SystemClock(),
                commit_ms=commit_ms,
                most_items=most_waiting,
                most_bytes=most_bytes,
                together=None if beside else store.together,
            )

        deadline = reserving = bulk = open_committer("chronoline-deadline")
        self._committers = [deadline]
        if beside:
            reserving = open_committer("chronoline-reserving")
            bulk = open_committer("chronoline-bulk")
            self._committers += [reserving, bulk]
        self._deadline = (deadline, deadline.open_queue())
        self._reserving = (reserving, reserving.open_queue())
        self._bulk = (bulk, bulk.open_queue())

    def create(
        self, topic_uid: int, messages: Sequence[NewMessage], *, if_exists: IfExists = "refuse"
    ) -> Future[list[Outcome]]:
        """Puts messages on the timeline, as bulk work."""
        items = _batch(messages)
        if not items:
            return _answered()

        def write(some: Sequence[NewMessage], now_ms: int) -> list[Outcome]:
            return self._store.create(topic_uid, some, if_exists=if_exists, now_ms=now_ms)

        committer, queue = self._bulk
        kind = ("create", topic_uid, if_exists)
        return committer.submit(queue, kind, write, items, item_bytes=_message_bytes)

    def apply(
        self, topic_uid: int, changes: Sequence[Change], *, again: bool = False
    ) -> Future[list[Outcome]]:
        """Makes changes, all of one operation: those of leases as deadline work, others as bulk work."""
        items = _batch(changes)
        if not items:
            return _answered()
        operation = operation_of(items)

        def write(some: Sequence[Change], now_ms: int) -> list[Outcome]:
            return self._store.apply(topic_uid, some, again=again, now_ms=now_ms)

        committer, queue = self._deadline if operation in LEASE_OPERATIONS else self._bulk
        kind = (operation, topic_uid, again)
        return committer.submit(queue, kind, write, items, item_bytes=_reason_bytes)

    def reserve(
        self,
        topic_uid: int,
        recipients: Sequence[Recipient],
        *,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
    ) -> Future[list[Grant]]:
        """Makes the reservations of one or several consumers by one write, in a queue of their own."""

        def write(now_ms: int) -> list[Grant]:
            if len(recipients) > 1:
                return self._store.reserve_for(
                    topic_uid,
                    recipients,
                    lease_ms=lease_ms,
                    reserve_ahead_ms=reserve_ahead_ms,
                    now_ms=now_ms,
                )
            return [
                self._store.reserve(
                    topic_uid,
                    ranges,
                    consumer=consumer,
                    limit=limit,
                    lease_ms=lease_ms,
                    reserve_ahead_ms=reserve_ahead_ms,
                    session=session,
                    now_ms=now_ms,
                )
                for consumer, session, ranges, limit in recipients
            ]

        committer, queue = self._reserving
        return committer.submit_one(queue, write)

    def resume(
        self, topic_uid: int, consumer: str, *, after: str = "", limit: int, session: str = ""
    ) -> Future[Grant]:
        """Gives a returning consumer its live leases back, as deadline work."""
        committer, queue = self._deadline
        return committer.submit_one(
            queue,
            lambda now_ms: self._store.resume(
                topic_uid, consumer, after=after, limit=limit, session=session, now_ms=now_ms
            ),
        )

    def close(self) -> None:
        """Finishes all work that waits, then ends the threads. May be called twice."""
        for committer in self._committers:
            committer.close()


def _batch(items: Sequence[Item]) -> list[Item]:
    """A copy of a batch of any size: a commit takes as much of it as it has room for."""
    check_batch_size(items, most=maxsize)
    return list(items)


def _answered() -> Future[list[Outcome]]:
    """The answer to an empty batch."""
    answer: Future[list[Outcome]] = Future()
    answer.set_result([])
    return answer


def _message_bytes(message: NewMessage) -> int:
    """The size of body, key and headers. They are not checked yet: a part without a size counts as empty."""
    if not isinstance(message, NewMessage):
        return 0
    parts: list[object] = [message.body, message.key]
    if message.headers:
        with suppress(TypeError):
            parts += chain.from_iterable(message.headers)
    return sum(len(part) for part in parts if isinstance(part, (bytes, str)))


def _reason_bytes(change: Change) -> int:
    """The size of the reason of a burial, which is not checked yet."""
    reason = getattr(change, "reason", "")
    return len(reason) if isinstance(reason, (bytes, str)) else 0
