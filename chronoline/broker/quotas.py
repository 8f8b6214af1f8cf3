"""The quotas of producer groups, where messages are created.

A topic's settings have the quotas of every group, the node's settings those of some groups by name
(`core.quotas`). They bound creates alone, those of schedules too (`occurrences`): a message that is put back,
or moved, was created before. Topics and groups without a quota cost two look-ups in a dictionary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import OutcomeUnknown
from chronoline.core.limits import name_problem
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.quotas import GroupLimits, GroupOverrides, GroupQuota, QuotaRefusal
from chronoline.core.topic import Topic
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.clock import Clock

_MOST_GROUPS = 10_000
"""The groups whose use is remembered; others are counted again."""
_MOST_SHOWN = 200
"""The groups with series of their own; further ones are counted as one."""
_OTHERS = "(others)"

Create = Callable[[Sequence[NewMessage]], Awaitable[list[Outcome]]]


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """The number of messages of a batch that a quota admits, and why not more."""

    allowed: int
    refusal: QuotaRefusal | None = None
    quota: GroupQuota | None = None

    def settle(self, created: int) -> None:
        """The store has answered for the admitted messages."""
        if self.quota is not None:
            self.quota.created(self.allowed, created)


class Quotas:
    """One for each node. Owned by the event loop."""

    def __init__(
        self,
        access: StoreAccess,
        clock: Clock,
        metrics: BrokerMetrics,
        overrides: GroupOverrides,
    ) -> None:
        self._access = access
        self._clock = clock
        self._metrics = metrics
        self._overrides = overrides
        self._quotas = BoundedCache[tuple[int, str], GroupQuota](_MOST_GROUPS)
        self._counts: dict[tuple[int, str], asyncio.Task[None]] = {}
        self._shown: set[str] = set()

    async def create(
        self, topic: Topic, messages: Sequence[NewMessage], create: Create
    ) -> list[Outcome]:
        """Creates the messages that are within their quotas, and refuses the others."""
        group = getattr(messages[0], "producer_group", None) if messages else None
        if self._limits(topic, group) is None or not isinstance(group, str):
            return await create(messages)
        if any(each.producer_group != group for each in messages):
            return await self._create_by_group(topic, messages, create)
        admission = await self.admit(topic, group, len(messages))
        allowed, refusal = admission.allowed, admission.refusal
        outcomes: list[Outcome] = []
        created = 0
        try:
            if allowed:
                outcomes = await create(messages[:allowed])
            created = sum(each.done or each.unknown for each in outcomes)
        except (OutcomeUnknown, asyncio.CancelledError):
            created = allowed  # they may be; the next count tells
            raise
        finally:
            admission.settle(created)
        if refusal is not None:
            left = messages[allowed:]
            self._count_refused(topic, group, refusal, len(left))
            outcomes = [*outcomes, *(_refused(each, topic, group, refusal) for each in left)]
        return outcomes

    async def _create_by_group(
        self, topic: Topic, messages: Sequence[NewMessage], create: Create
    ) -> list[Outcome]:
        """No edge sends several groups in a batch; each of them is a batch of its own then."""
        outcomes: list[Outcome | None] = [None] * len(messages)
        for group in dict.fromkeys(each.producer_group for each in messages):
            places = [at for at, each in enumerate(messages) if each.producer_group == group]
            of_group = await self.create(topic, [messages[at] for at in places], create)
            for at, outcome in zip(places, of_group, strict=True):
                outcomes[at] = outcome
        return [each for each in outcomes if each is not None]

    def _limits(self, topic: Topic, group: object) -> GroupLimits | None:
        settings, overrides = topic.settings, self._overrides
        if (
            settings.group_waiting is None
            and settings.group_creates_per_s is None
            and not overrides.waiting
            and not overrides.creates_per_s
        ):
            return None
        if not isinstance(group, str) or name_problem("producer group", group):
            return None  # the store refuses it
        limits = overrides.limits(settings, group)
        return limits if limits.are_set else None

    async def admit(self, topic: Topic, group: str, wanted: int) -> QuotaRoom:
        """Takes room for messages out of the group's quota. Each admission has to be settled."""
        limits = self._limits(topic, group)
        if limits is None:
            return QuotaRoom(wanted)
        key = topic.uid, group
        quota = self._quotas.get(key)
        if quota is None:
            quota = GroupQuota()
            self._quotas.put(key, quota)
        if quota.must_count(wanted, limits, self._clock.now_ms()):
            await asyncio.shield(self._count(topic, group, quota, limits))
        elif quota.should_count(limits, self._clock.now_ms()):
            self._count(topic, group, quota, limits)
        return QuotaRoom(*quota.admit(wanted, limits, self._clock.now_ms()), quota)

    def _count(
        self, topic: Topic, group: str, quota: GroupQuota, limits: GroupLimits
    ) -> asyncio.Task[None]:
        """The count of a group's messages that is under way, or a new one."""
        key = topic.uid, group
        task = self._counts.get(key)
        if task is None:
            task = asyncio.create_task(self._count_now(topic, group, quota, limits))
            self._counts[key] = task
            task.add_done_callback(lambda done: self._count_ended(key, done))
        return task

    def _count_ended(self, key: tuple[int, str], task: asyncio.Task[None]) -> None:
        del self._counts[key]
        if not task.cancelled():
            task.exception()  # a create that waits for it has it, and the next create counts again

    async def _count_now(
        self, topic: Topic, group: str, quota: GroupQuota, limits: GroupLimits
    ) -> None:
        assert limits.waiting is not None
        most = limits.waiting + 1
        begun, started_s = quota.count_begins(), time.monotonic()
        count = await self._access.call(
            "count_owned",
            lambda store: store.count_owned(topic.uid, group, most=most),
            topic=topic.name,
        )
        took_ms = int((time.monotonic() - started_s) * 1000)
        quota.counted(count, most=most, begun=begun, took_ms=took_ms, now_ms=self._clock.now_ms())

    def _count_refused(
        self, topic: Topic, group: str, refusal: QuotaRefusal, messages: int
    ) -> None:
        if len(self._shown) < _MOST_SHOWN:
            self._shown.add(group)
        shown = group if group in self._shown else _OTHERS
        self._metrics.add("topic_quota_refused_count", (shown, refusal.type, topic.name), messages)

    async def stop(self) -> None:
        """May be called twice."""
        counts = list(self._counts.values())
        for each in counts:
            each.cancel()
        await asyncio.gather(*counts, return_exceptions=True)


def _refused(message: NewMessage, topic: Topic, group: str, refusal: QuotaRefusal) -> Outcome:
    return Outcome(
        id=message.id,
        refusal=Refusal.QUOTA,
        detail=f"quota of producer group {group!r} on topic {topic.name!r}: {refusal.reason}",
        retry_after_ms=refusal.retry_after_ms,
    )
