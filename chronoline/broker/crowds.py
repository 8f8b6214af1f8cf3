"""Warnings for producers whose messages fall due in a second that is fuller than their topic can deliver.

Only a topic with `most_per_s` says what it can deliver. For each second in which messages of such a topic
are put, the broker keeps their number: those that it creates itself, and those that the store had before,
which it counts once in a while. It begins at most a few counts a second, so a topic whose messages are
scattered over years costs no more: most of its seconds are never counted in the store. A second that many
creates name soon is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import ChronolineError
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.core.token_bucket import TokenBucket
from chronoline.core.topic import Topic
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.clock import Clock
from chronoline.runtime.tasks import TaskSet
from chronoline.runtime.timestamps import show_moment

_MOST_SECONDS = 20_000
"""The seconds of all topics that are remembered."""
_COUNTS_PER_S = 5
_COUNT_LIVES_MS = 30_000
_PATIENCE_S = 0.2
"""The longest time for which a create waits for a count. The count goes on."""


@dataclass(slots=True)
class _Second:
    """The messages that fall due within one second."""

    created: int = 0
    """By this broker, since the count."""
    counted: int = 0
    counted_ms: int | None = None

    @property
    def messages(self) -> int:
        return self.counted + self.created

    def needs_count(self, now_ms: int) -> bool:
        at_ms = self.counted_ms
        return at_ms is None or not at_ms <= now_ms < at_ms + _COUNT_LIVES_MS


class Crowds:
    """One for each node. Owned by the event loop."""

    def __init__(self, access: StoreAccess, clock: Clock, metrics: BrokerMetrics) -> None:
        self._access = access
        self._clock = clock
        self._metrics = metrics
        self._seconds = BoundedCache[tuple[int, int], _Second](_MOST_SECONDS)
        self._may_count = TokenBucket(_COUNTS_PER_S, _COUNTS_PER_S)
        self._counts = TaskSet()

    async def warn(
        self, topic: Topic, messages: Sequence[NewMessage], outcomes: list[Outcome]
    ) -> list[Outcome]:
        """The outcomes, with a warning for the first message of each second that is too full."""
        most = topic.settings.most_per_s
        if most is None:
            return outcomes
        now_ms = self._clock.now_ms()
        dues = [
            (outcome.at or message.due) // 1_000 if outcome.done else None
            for message, outcome in zip(messages, outcomes, strict=True)
        ]
        added = Counter(each for each in dues if each is not None and each >= now_ms // 1_000)
        if not added:
            return outcomes
        await self._add(topic, added, now_ms)
        full = {
            each: second.messages
            for each in added
            if (second := self._seconds.get((topic.uid, each))) and second.messages > most
        }
        if not full:
            return outcomes
        self._metrics.add("topic_crowded_count", (topic.name,), sum(added[each] for each in full))
        warned = list(outcomes)
        for place, second_at in enumerate(dues):
            if second_at is not None and (count := full.pop(second_at, None)) is not None:
                warning = _warning(topic.name, second_at, count, most)
                warned[place] = replace(outcomes[place], warning=warning)
        return warned

    async def _add(self, topic: Topic, added: Counter[int], now_ms: int) -> None:
        """Adds created messages. Counts the second that most of them are in, if that is not known."""
        for each, count in added.items():
            second = self._seconds.get((topic.uid, each))
            if second is None:
                second = _Second()
                self._seconds.put((topic.uid, each), second)
            second.created += count
        ((fullest, _),) = added.most_common(1)
        second = self._seconds.get((topic.uid, fullest))
        if second is None or not second.needs_count(now_ms):
            return
        if self._may_count.tokens(now_ms) >= 1:
            self._may_count.take(1, now_ms)
            second.counted_ms = now_ms  # others do not count it meanwhile
            count_task = self._counts.start(self._count(topic, fullest, second, now_ms))
            await asyncio.wait([count_task], timeout=_PATIENCE_S)

    async def _count(self, topic: Topic, at_s: int, second: _Second, now_ms: int) -> None:
        with suppress(ChronolineError):  # it is only a warning
            found = await self._access.call(
                "count",
                lambda store: store.count(
                    topic.uid,
                    topic.all_buckets,
                    start=at_s * 1_000,
                    end=(at_s + 1) * 1_000,
                    now_ms=now_ms,
                ),
                topic=topic.name,
            )
            second.counted, second.created = found.total, 0

    async def stop(self) -> None:
        """May be called twice."""
        await self._counts.end()


def _warning(topic: str, at_s: int, count: int, most: int) -> str:
    late_s = max(1, count // most - 1)
    return (
        f"{count:,} messages of topic {topic!r} fall due in the second of {show_moment(at_s * 1_000)}, and "
        f"it delivers {most:,} a second (most_per_s): the last of them will be about {late_s:,} s late. "
        "Spread their dues, or have the topic spread them (spread_ms)"
    )
