"""The topics that a broker has met. Their settings never change: what was read is true until a drop."""

from __future__ import annotations

from collections.abc import Callable

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.core.errors import TopicNotFound
from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.clock import Clock

_MOST_KNOWN = 10_000


class Topics:
    """By uid, which every request names, and by name, with which clients begin."""

    def __init__(
        self,
        access: StoreAccess,
        clock: Clock,
        metrics: BrokerMetrics,
        *,
        dropped: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`dropped` is told the uids of topics that were dropped, here or elsewhere."""
        self._dropped = dropped
        self._access = access
        self._clock = clock
        self._metrics = metrics
        self._known: dict[int, Topic] = {}

    async def get(self, uid: int) -> Topic:
        """Raises `TopicNotFound`. A topic that was dropped meanwhile may still be answered."""
        topic = self._known.get(uid)
        if topic is None:
            topic = self._learn(
                await self._access.look("topic", lambda store: store.get_topic(uid))
            )
        return topic

    async def find(self, name: str) -> Topic:
        """Raises `TopicNotFound`, which says how to make it."""
        topic = await self._access.look("topic", lambda store: store.find_topic(name))
        if topic is None:
            raise TopicNotFound(
                f"there is no topic {name!r}; make it with `chronoline topic create {name}`"
            )
        return self._learn(topic)

    async def list(self) -> list[Topic]:
        """All that live. Others are forgotten, with their metrics, at whichever broker they were dropped."""
        shown, known = self._metrics.topics, set(self._known)
        topics = await self._access.look("topics", lambda store: store.list_topics())
        for uid in known - {topic.uid for topic in topics}:
            self.forget(uid)
        for name in shown - {topic.name for topic in topics}:
            self._metrics.forget_topic(name)
        return topics

    async def create(self, name: str, settings: TopicSettings, *, if_missing: bool) -> Topic:
        now_ms = self._clock.now_ms()
        topic = await self._access.look(
            "create_topic",
            lambda store: (
                store.ensure_topic(name, settings, now_ms=now_ms)
                if if_missing
                else store.create_topic(name, settings, now_ms=now_ms)
            ),
            changes=True,
        )
        return self._learn(topic)

    async def drop(self, uid: int) -> bool:
        now_ms = self._clock.now_ms()
        dropped = await self._access.look(
            "drop_topic", lambda store: store.delete_topic(uid, now_ms=now_ms), changes=True
        )
        self.forget(uid)
        return dropped

    def forget(self, uid: int) -> None:
        """It was dropped, as someone found out."""
        self._known.pop(uid, None)
        self._dropped(uid)

    def _learn(self, topic: Topic) -> Topic:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[topic.uid] = topic
        return topic
