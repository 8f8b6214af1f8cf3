"""Storage threads: group commit for callers with few messages each.

`runtime.group_commit` says how calls are grouped.

There are three queues: reservations, other deadline work (acks and the like), and bulk work (creates,
owners' changes). On an engine whose writers run beside each other each queue has a thread, so that none
stands in the way of another; on an engine with a single writer one thread serves them all, with one commit
for all that waits, which is cut to about `commit_ms` of work from each queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from concurrent.futures import Future
from contextlib import suppress
from itertools import chain
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.core.message import Lease, LeaseTime, NewMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.ranges import BucketRange
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.group_commit import (
    DEFAULT_MOST_BYTES,
    Committer,
    Queue,
    Result,
    Write,
    only,
)
from chronoline.runtime.service import Closing
from chronoline.stores.contract import IfExists, Store


class StorageThreads(Closing):
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

    # Bulk work

    def create(
        self, topic_uid: int, messages: Sequence[NewMessage], *, if_exists: IfExists = "refuse"
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[NewMessage], now_ms: int) -> list[Outcome]:
            return self._store.create(topic_uid, items, if_exists=if_exists, now_ms=now_ms)

        kind = ("create", topic_uid, if_exists)
        return self._submit(self._bulk, kind, write, messages, _message_bytes)

    def reschedule(
        self,
        topic_uid: int,
        moves: Sequence[tuple[str, int]],
        *,
        producer_group: str,
        again: bool = False,
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[tuple[str, int]], now_ms: int) -> list[Outcome]:
            return self._store.reschedule(
                topic_uid, items, producer_group=producer_group, again=again, now_ms=now_ms
            )

        kind = ("reschedule", topic_uid, producer_group, again)
        return self._submit(self._bulk, kind, write, moves)

    def cancel(
        self, topic_uid: int, ids: Sequence[str], *, producer_group: str, again: bool = False
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[str], now_ms: int) -> list[Outcome]:
            return self._store.cancel(
                topic_uid, items, producer_group=producer_group, again=again, now_ms=now_ms
            )

        return self._submit(self._bulk, ("cancel", topic_uid, producer_group, again), write, ids)

    # Deadline work

    def ack(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(self._store.ack, topic_uid, leases, again=again)

    def unreserve(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(self._store.unreserve, topic_uid, leases, again=again)

    def extend(
        self, topic_uid: int, leases: Sequence[tuple[Lease, LeaseTime]], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(self._store.extend, topic_uid, leases, again=again)

    def release(
        self, topic_uid: int, leases: Sequence[tuple[Lease, LeaseTime]], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(self._store.release, topic_uid, leases, again=again)

    def retry(
        self, topic_uid: int, leases: Sequence[tuple[Lease, LeaseTime]], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(self._store.retry, topic_uid, leases, again=again)

    def bury(
        self, topic_uid: int, leases: Sequence[tuple[Lease, str]], *, again: bool = False
    ) -> Future[list[Outcome]]:
        return self._on_leases(
            self._store.bury, topic_uid, leases, again=again, item_bytes=_reason_bytes
        )

    def reserve(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        consumer: str,
        limit: int,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        session: str = "",
    ) -> Future[Grant]:
        """A reservation in its turn. It is not grouped: each is one statement already."""

        def write(_: Sequence[None], now_ms: int) -> list[Grant]:
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
            ]

        return only(self._submit(self._reserving, object(), write, [None]))

    def resume(
        self, topic_uid: int, consumer: str, *, after: str = "", limit: int, session: str = ""
    ) -> Future[Grant]:
        """What `Store.resume` answers, in its turn."""

        def write(_: Sequence[None], now_ms: int) -> list[Grant]:
            return [
                self._store.resume(
                    topic_uid, consumer, after=after, limit=limit, session=session, now_ms=now_ms
                )
            ]

        return only(self._submit(self._deadline, object(), write, [None]))

    def close(self) -> None:
        """Finishes what waits, then ends the threads. May be called twice."""
        for committer in self._committers:
            committer.close()

    def _on_leases(
        self,
        method: Callable[..., list[Outcome]],
        topic_uid: int,
        leases: Sequence[Any],
        *,
        again: bool,
        item_bytes: Callable[[Any], int] = lambda _: 0,
    ) -> Future[list[Outcome]]:
        def write(items: Sequence[Any], now_ms: int) -> list[Outcome]:
            return method(topic_uid, items, again=again, now_ms=now_ms)

        kind = (method.__name__, topic_uid, again)
        return self._submit(self._deadline, kind, write, leases, item_bytes)

    @staticmethod
    def _submit(
        where: tuple[Committer, Queue],
        kind: Any,
        write: Write[Result],
        items: Sequence[Any],
        item_bytes: Callable[[Any], int] = lambda _: 0,
    ) -> Future[list[Result]]:
        committer, queue = where
        if isinstance(items, str | bytes) or not isinstance(items, Sized):
            raise InvalidInput(f"a batch must be a list or a tuple, not {type(items).__name__}")
        if not items:
            done: Future[list[Result]] = Future()
            done.set_result([])
            return done
        return committer.submit(queue, kind, write, list(items), item_bytes=item_bytes)


def _message_bytes(message: NewMessage) -> int:
    """Body, key and headers. Nothing has been checked yet: what can have no size weighs nothing."""
    if not isinstance(message, NewMessage):
        return 0
    parts: list[object] = [message.body, message.key]
    if message.headers:
        with suppress(TypeError):
            parts += chain.from_iterable(message.headers)
    return sum(len(part) for part in parts if isinstance(part, (bytes, str)))


def _reason_bytes(item: object) -> int:
    """The reason of a (lease, reason); like a message, it has not been checked yet."""
    match item:
        case (_, str() | bytes() as reason):
            return len(reason)
    return 0
