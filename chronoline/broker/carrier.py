"""The carrier: the requests of producers and consumers, for gRPC, HTTP and targets alike.

A batch is answered with an outcome for each id, or raises one error for all of it. The store checks who may
do what, in the write itself. Each change names the producer group or the consumer that asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from chronoline.broker.crowds import Crowds
from chronoline.broker.loaders import Loaders
from chronoline.broker.message_spans import record_created
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.quotas import Quotas
from chronoline.broker.store_access import Result, StoreAccess
from chronoline.broker.topics import Topics
from chronoline.core.change import LEASE_OPERATIONS, Change
from chronoline.core.errors import StoreError, TopicNotFound
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import After, DeadLetter, Message, NewMessage, SavedMessage
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Actor, NewTime, changes_with
from chronoline.core.quotas import GroupOverrides
from chronoline.core.topic import Topic
from chronoline.delivery.storage_threads import StorageThreads
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Bodies, Counts, ForecastStep, Store

_AT_THE_BROKER = changes_with(NewTime.ANY)
"""Changes whose delays begin at the broker. The delays of other changes begin at the store's write."""


class Carrier:
    """One for each node."""

    def __init__(
        self,
        access: StoreAccess,
        topics: Topics,
        loaders: Loaders,
        clock: Clock,
        metrics: BrokerMetrics,
        *,
        overrides: GroupOverrides | None = None,
    ) -> None:
        """`overrides` are the quotas of producer groups that the node's settings have."""
        self._access = access
        self._topics = topics
        self._loaders = loaders
        self._clock = clock
        self._metrics = metrics
        self.quotas = Quotas(access, clock, metrics, overrides or GroupOverrides())
        self._crowds = Crowds(access, clock, metrics)

    async def stop(self) -> None:
        """Ends counts that are under way. May be called twice."""
        await self.quotas.stop()
        await self._crowds.stop()

    # Changes

    async def create(
        self, topic_uid: int, messages: Sequence[NewMessage], *, replace: bool = False
    ) -> list[Outcome]:
        """Creates messages; those beyond the quota of their producer group are refused."""

        async def create(within: Sequence[NewMessage]) -> list[Outcome]:
            return await self._change(
                "create",
                topic_uid,
                lambda threads: threads.create(
                    topic_uid, within, if_exists="replace" if replace else "refuse"
                ),
            )

        begin_ms = self._clock.now_ms()
        topic = await self._topics.get(topic_uid)
        outcomes = await self.quotas.create(topic, messages, create)
        now_ms = self._clock.now_ms()
        record_created(topic.name, messages, outcomes, begin_ms=begin_ms, end_ms=now_ms)
        loader = self._loaders.of(topic_uid)
        if loader is not None:
            loader.created(messages, outcomes)
        return await self._crowds.warn(topic, messages, outcomes)

    async def change(
        self, topic_uid: int, changes: Sequence[Change], *, again: bool = False
    ) -> list[Outcome]:
        """Makes changes, all of one operation. With `again` an earlier attempt was not answered.

        The outcome of a change that sets a time names that time.
        """
        if not changes:
            await self._topics.get(topic_uid)  # which raises for a topic that does not exist
            return []
        operation = changes[0].operation
        of_leases = operation in LEASE_OPERATIONS
        complete = changes
        if of_leases and (loader := self._loaders.of(topic_uid)) is not None:
            complete = loader.with_sessions(changes)
        elif operation in _AT_THE_BROKER:
            complete = self._with_times(changes)
        outcomes = await self._change(
            operation,
            topic_uid,
            lambda threads: threads.apply(topic_uid, complete, again=again),
        )
        if of_leases and (loader := self._loaders.of(topic_uid)) is not None:
            loader.leases_changed(changes, outcomes)
        return outcomes

    def _with_times(self, changes: Sequence[Change]) -> list[Change]:
        """The changes with absolute times. Delays begin now, by the clock of the store's writes."""
        now_ms = self._access.clock.now_ms()
        return [
            each._replace(to=now_ms + each.to.delay_ms) if isinstance(each.to, After) else each
            for each in changes
        ]

    # Reads

    async def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        return await self._read("lookup", topic_uid, lambda store: store.lookup(topic_uid, ids))

    async def bodies(self, topic_uid: int, ids: Sequence[str], actor: Actor) -> Bodies:
        now_ms = self._clock.now_ms()
        return await self._read(
            "bodies",
            topic_uid,
            lambda store: store.bodies(topic_uid, ids, actor=actor, now_ms=now_ms),
        )

    async def count(self, topic_uid: int, *, start: int, end: int | None) -> Counts:
        topic = await self._topics.get(topic_uid)
        now_ms = self._clock.now_ms()
        return await self._read(
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
        return await self._read(
            "forecast",
            topic_uid,
            lambda store: store.forecast(
                topic_uid, topic.all_buckets, start=start, end=end, step_ms=step_ms, now_ms=now_ms
            ),
        )

    async def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None, limit: int
    ) -> list[DeadLetter]:
        return await self._read(
            "dead_letters",
            topic_uid,
            lambda store: store.dead_letters(topic_uid, after=after, limit=limit),
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
                outcomes = list(error.answered)  # `busy` where other transactions hold the message
        self._metrics.changed(command, topic.name, outcomes)
        return outcomes

    async def restore(self, topic_uid: int, messages: Sequence[SavedMessage]) -> list[Outcome]:
        """Creates messages as an export saved them. Quotas of producer groups do not count."""
        topic = await self._topics.get(topic_uid)
        now_ms = self._access.clock.now_ms()
        with self._metrics.command("import", topic.name):
            return await self._access.call(
                "restore",
                lambda store: store.restore(topic_uid, messages, now_ms=now_ms),
                topic=topic.name,
                changes=True,
            )

    async def read(self, command: str, topic_uid: int, read: Callable[[Store], Result]) -> Result:
        """A read of other modules; `command` names it in the metrics."""
        return await self._read(command, topic_uid, read)

    async def _read(
        self,
        command: str,
        topic_uid: int,
        read: Callable[[Store], Result],
    ) -> Result:
        topic: Topic = await self._topics.get(topic_uid)
        with self._metrics.command(command, topic.name):
            return await self._access.call(command, read, topic=topic.name)
