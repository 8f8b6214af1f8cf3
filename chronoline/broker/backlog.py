"""The backlog of each topic: its available messages, and those of the next windows."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from chronoline.broker.metrics import BrokerMetrics, Sample
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topics import Topics
from chronoline.core.errors import ChronolineError, TopicNotFound
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Counts, ForecastStep, Store

logger = logging.getLogger(__name__)

_EVERY_S = 10.0
_PATIENCE_S = 2.0
"""The longest wait of a scrape for a count; then it shows the last one."""
_WINDOWS = 4
_MOST_DEAD_LETTERS = 1_000
"""More are not counted: the store has no count of them, and an operator looks long before."""


class Backlog:
    """Counts in the read threads, at most every ten seconds. Owned by the event loop."""

    def __init__(
        self, access: StoreAccess, topics: Topics, clock: Clock, metrics: BrokerMetrics
    ) -> None:
        self._access = access
        self._topics = topics
        self._clock = clock
        self._metrics = metrics
        self._counted_s = -_EVERY_S
        self._counting: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Counts, unless the last count is younger than ten seconds."""
        if self._counting is None:
            if time.monotonic() - self._counted_s < _EVERY_S:
                return
            self._counting = asyncio.create_task(self._count())
        await asyncio.wait([self._counting], timeout=_PATIENCE_S)

    def stop(self) -> None:
        """May be called twice."""
        if self._counting is not None:
            self._counting.cancel()

    async def _count(self) -> None:
        counted: dict[str, list[Sample]] = {}
        try:
            for topic in await self._topics.list():
                with suppress(TopicNotFound):  # it was deleted meanwhile
                    counted[topic.name] = await self._count_topic(topic)
            self._metrics.show_backlog(counted)
        except ChronolineError as error:
            self._metrics.show_backlog({})
            logger.warning("counting the messages of the topics failed: %s", error)
        finally:
            self._counted_s = time.monotonic()
            self._counting = None

    async def _count_topic(self, topic: Topic) -> list[Sample]:
        now_ms = self._clock.now_ms()
        window_ms = topic.settings.window_ms

        def count(store: Store) -> tuple[Counts, list[ForecastStep], int]:
            start_ms = now_ms + 1
            overdue = store.count(
                topic.uid, topic.all_buckets, start=0, end=start_ms, now_ms=now_ms
            )
            ahead = store.forecast(
                topic.uid,
                topic.all_buckets,
                start=start_ms,
                end=start_ms + _WINDOWS * window_ms,
                step_ms=window_ms,
                now_ms=now_ms,
            )
            return overdue, ahead, len(store.dead_letters(topic.uid, limit=_MOST_DEAD_LETTERS))

        overdue, ahead, dead = await self._access.call("count", count, topic=topic.name)
        samples: list[Sample] = [
            ("topic_available_messages_count", (topic.name,), overdue.available),
            ("topic_dead_letters_count", (topic.name,), dead),
        ]
        waiting = 0
        for number, step in enumerate(ahead, 1):
            waiting += step.counts.waiting
            bound = str(number * window_ms / 1000)
            samples.append(("topic_waiting_messages_count_bucket", (topic.name, bound), waiting))
        return samples
