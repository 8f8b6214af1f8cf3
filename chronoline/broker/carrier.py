"""The carrier: what producers and consumers ask for, whatever the wire on which they ask.

Everything is answered with an outcome for each id, or raises one error for all of it. Who may do what is the
store's to check, in the write itself; here a producer acts for its group and a consumer for its name, as the
edge found out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from operator import attrgetter
from typing import Any, Literal

from chronoline.broker.loader_registry import Loaders
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import Result, StoreAccess
from chronoline.broker.topics import Topics
from chronoline.core.change import LEASE_OPERATIONS, Change, lease_change
from chronoline.core.errors import StoreError, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import (
    After,
    DeadLetter,
    Lease,
    LeaseTime,
    Message,
    NewMessage,
)
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Actor, Operation
from chronoline.core.topic import Topic
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Bodies, Counts, ForecastStep, Notice, Store

Move = Literal["extend", "release", "retry"]


class Carrier:
    """One for each node."""

    def __init__(
        self,
        access: StoreAccess,
        topics: Topics,
        loaders: Loaders,
        clock: Clock,
        metrics: BrokerMetrics,
    ) -> None:
        self._access = access
        self._topics = topics
        self._loaders = loaders
        self._clock = clock
        self._metrics = metrics

    # Producers

    async def create(
        self, topic_uid: int, messages: Sequence[NewMessage], *, replace: bool = False
    ) -> list[Outcome]:
        outcomes = await self._change(
            "create",
            topic_uid,
            lambda threads: threads.create(
                topic_uid, messages, if_exists="replace" if replace else "refuse"
            ),
        )
        self._loaders.created(topic_uid, messages, outcomes)
        return outcomes

    async def change(
        self, topic_uid: int, changes: Sequence[Change], *, again: bool = False
    ) -> list[Outcome]:
        """Make changes, all of one operation. With `again` an earlier attempt was not answered.

        The outcome of a change that sets a time says which it is.
        """
        if not changes:
            return []
        operation = changes[0].operation
        if operation in LEASE_OPERATIONS:
            return await self._change_leases(operation, topic_uid, changes, again=again)
        group = changes[0].name
        items: list[Any] = [each.id for each in changes]
        if operation is Operation.RESCHEDULE:
            items = list(zip(items, self._dues(changes), strict=True))
        return await self._change(
            operation,
            topic_uid,
            lambda lanes: getattr(lanes, operation)(
                topic_uid, items, producer_group=group, again=again
            ),
        )

    async def _change_leases(
        self, operation: Operation, topic_uid: int, changes: Sequence[Change], *, again: bool
    ) -> list[Outcome]:
        leases = [each.lease for each in changes]
        items: list[Any] = self._loaders.with_sessions(topic_uid, leases)
        detail = _DETAILS.get(operation)
        if detail is not None:
            items = list(zip(items, map(detail, changes), strict=True))
        outcomes = await self._change(
            operation,
            topic_uid,
            lambda lanes: getattr(lanes, operation)(topic_uid, items, again=again),
        )
        if operation is Operation.EXTEND:
            self._loaders.extended(topic_uid, leases, outcomes)
        else:
            self._loaders.settled(topic_uid, leases, outcomes)
        if operation is Operation.UNRESERVE:
            self._loaders.noticed([Notice(topic_uid=topic_uid)])  # no store tells of it
        return outcomes

    def _dues(self, changes: Sequence[Change]) -> list[int]:
        """Their new times; delays begin at the clock of the store's writes."""
        now_ms = self._access.clock.now_ms()
        return [
            now_ms + each.to.delay_ms if isinstance(each.to, After) else each.to for each in changes
        ]

    # The same by name, as HTTP asks for it

    async def reschedule(
        self,
        topic_uid: int,
        moves: Sequence[tuple[str, int]],
        *,
        producer_group: str,
        again: bool = False,
    ) -> list[Outcome]:
        changes = [
            Change(Operation.RESCHEDULE, each, producer_group, to=due) for each, due in moves
        ]
        return await self.change(topic_uid, changes, again=again)

    async def cancel(
        self, topic_uid: int, ids: Sequence[str], *, producer_group: str, again: bool = False
    ) -> list[Outcome]:
        changes = [Change(Operation.CANCEL, each, producer_group) for each in ids]
        return await self.change(topic_uid, changes, again=again)

    async def ack(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False
    ) -> list[Outcome]:
        changes = [lease_change(Operation.ACK, each) for each in leases]
        return await self.change(topic_uid, changes, again=again)

    async def move(
        self,
        move: Move,
        topic_uid: int,
        moves: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
    ) -> list[Outcome]:
        changes = [lease_change(Operation(move), lease, to) for lease, to in moves]
        return await self.change(topic_uid, changes, again=again)

    async def bury(
        self, topic_uid: int, burials: Sequence[tuple[Lease, str]], *, again: bool = False
    ) -> list[Outcome]:
        changes = [lease_change(Operation.BURY, each, reason=reason) for each, reason in burials]
        return await self.change(topic_uid, changes, again=again)

    # Looking

    async def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        return await self._look("lookup", topic_uid, lambda store: store.lookup(topic_uid, ids))

    async def bodies(self, topic_uid: int, ids: Sequence[str], actor: Actor) -> Bodies:
        now_ms = self._clock.now_ms()
        return await self._look(
            "bodies",
            topic_uid,
            lambda store: store.bodies(topic_uid, ids, actor=actor, now_ms=now_ms),
        )

    async def count(self, topic_uid: int, *, start: int, end: int | None) -> Counts:
        topic = await self._topics.get(topic_uid)
        now_ms = self._clock.now_ms()
        return await self._look(
            "count",
            topic_uid,
            lambda store: store.count(
                topic_uid,
                topic.all_buckets,
                start=start,
                end=MAX_TIME_MS if end is None else end,
                now_ms=now_ms,
            ),
        )

    async def forecast(
        self, topic_uid: int, *, start: int, end: int, step_ms: int
    ) -> list[ForecastStep]:
        topic = await self._topics.get(topic_uid)
        now_ms = self._clock.now_ms()
        return await self._look(
            "forecast",
            topic_uid,
            lambda store: store.forecast(
                topic_uid, topic.all_buckets, start=start, end=end, step_ms=step_ms, now_ms=now_ms
            ),
        )

    async def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        return await self._look(
            "dead_letters",
            topic_uid,
            lambda store: store.dead_letters(topic_uid, after=after, limit=limit),
        )

    async def redrive(self, topic_uid: int, ids: Sequence[str], due: int) -> list[Outcome]:
        now_ms = self._access.clock.now_ms()
        return await self._look(
            "redrive",
            topic_uid,
            lambda store: store.redrive(topic_uid, ids, due=due, now_ms=now_ms),
            changes=True,
        )

    async def discard(self, topic_uid: int, ids: Sequence[str]) -> list[Outcome]:
        now_ms = self._access.clock.now_ms()
        return await self._look(
            "discard",
            topic_uid,
            lambda store: store.discard(topic_uid, ids, now_ms=now_ms),
            changes=True,
        )

    async def _change(
        self,
        command: str,
        topic_uid: int,
        submit: Callable[[StorageThreads], Future[list[Outcome]]],
    ) -> list[Outcome]:
        topic = await self._topics.get(topic_uid)
        with self._metrics.command(command, topic.name):
            try:
                outcomes = await self._access.change(command, submit, topic=topic.name)
            except TopicNotFound:
                self._topics.forget(topic_uid)
                raise
            except StoreError as error:
                if error.answered is None:
                    raise
                outcomes = list(error.answered)  # those that other transactions hold are busy
        self._metrics.changed(command, topic.name, outcomes)
        return outcomes

    async def _look(
        self,
        command: str,
        topic_uid: int,
        read: Callable[[Store], Result],
        *,
        changes: bool = False,
    ) -> Result:
        topic: Topic = await self._topics.get(topic_uid)
        with self._metrics.command(command, topic.name):
            return await self._access.look(command, read, topic=topic.name, changes=changes)


_DETAILS: dict[Operation, Callable[[Change], LeaseTime | str]] = {
    Operation.EXTEND: attrgetter("to"),
    Operation.RELEASE: attrgetter("to"),
    Operation.RETRY: attrgetter("to"),
    Operation.BURY: attrgetter("reason"),
}
"""The part of a change that the store takes beside the lease."""
