"""The topics that a broker knows. A topic is cached until it is deleted; `topic_watch` tells what changed.

The lifecycle (`topic_lifecycle`) makes and deletes them, together with other brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import TypeVar

from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.topic_lifecycle import TopicLifecycle
from chronoline.core.errors import InvalidInput, TopicChanged, TopicNotFound
from chronoline.core.limits import MAX_NAME_BYTES
from chronoline.core.topic import Topic, TopicSettings, check_topic_name
from chronoline.runtime import audit
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.stores.contract import Store

_MOST_KNOWN = 10_000
_CHANGE_TRIES = 5

Result = TypeVar("Result")


class Topics:
    """Topics by uid, which every request names, and by name, with which clients begin."""

    def __init__(
        self,
        access: StoreAccess,
        lifecycle: TopicLifecycle,
        metrics: BrokerMetrics,
        *,
        frame_bytes: int,
        deleted: Callable[[int], None] = lambda _: None,
        learned: Callable[[Topic], None] = lambda _: None,
        latest: Callable[[Topic], Topic] = lambda topic: topic,
        target_refusal: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """`deleted` is called with the uid of each topic that was deleted, here or at another broker.

        `learned` is called with each topic that was changed here. `latest` answers a topic as it is known by
        now: it can change while it is read.

        `frame_bytes` is the largest frame: it bounds the bodies of new topics. `target_refusal` answers why
        a target can never be called here.
        """
        self._deleted = deleted
        self._learned = learned
        self._latest = latest
        self._access = access
        self._lifecycle = lifecycle
        lifecycle.on_deleted = self._deleted_in_cluster
        self._metrics = metrics
        self._largest_body_bytes = frame_bytes // 2
        self._target_refusal = target_refusal
        self._known = BoundedCache[int, Topic](_MOST_KNOWN)
        self.target_changed = Alarm()
        """Rings when a topic with a target was created here, or changed."""

    def check_able(self) -> None:
        """Raises the reason for which this broker can change no topics and schedules now; at once."""
        self._lifecycle.check_able()

    async def get(self, uid: int) -> Topic:
        """Raises `TopicNotFound`, `TopicNotReady`. The result can be a topic that was deleted meanwhile."""
        topic = self._known.get(uid)
        if topic is None:
            topic = self._learn(
                await self._access.call("topic", lambda store: store.get_topic(uid))
            )
        return topic

    def known(self, uid: int) -> Topic | None:
        """A topic that was read before."""
        return self._known.get(uid)

    def name_of(self, uid: int) -> str:
        """The name of a topic, without a call of the store; empty if it is not known."""
        topic = self.known(uid)
        return self._lifecycle.name_of(uid) if topic is None else topic.name

    async def find(self, name: str) -> Topic:
        """Raises `TopicNotFound` with the command that creates it, and `TopicNotReady`."""
        topic = await self._access.call("topic", lambda store: store.find_topic(name))
        self._lifecycle.check(name, topic)
        if topic is None:
            name = name[:MAX_NAME_BYTES]
            raise TopicNotFound(
                f"there is no topic {name!r}; create it with `chronoline topic create {name}`"
            )
        return self._learn(topic)

    async def list(self) -> list[Topic]:
        """All live topics. Deleted ones are forgotten, with their metrics, whichever broker deleted them."""
        shown, known = self._metrics.topics, set(self._known)
        stored = await self._access.call("topics", lambda store: store.list_topics())
        self._lifecycle.listed(stored)
        topics = [topic for topic in stored if self._lifecycle.is_open(topic)]
        for uid in known - {topic.uid for topic in topics}:
            self.forget(uid)
        for name in shown - {topic.name for topic in topics}:
            self._metrics.forget_topic(name)
        return topics

    async def create(self, name: str, settings: TopicSettings, *, if_missing: bool) -> Topic:
        """Raises `InvalidInput`, also for bodies that do not fit into a frame and for targets at a forbidden
        address, `TopicExists` and so on."""
        check_topic_name(name)
        self._check_size(settings)
        self._check_target(settings)
        with self._metrics.command("create", name, family="topic_commands"):
            topic = await self._lifecycle.create(name, settings, if_missing=if_missing)
        if topic.settings.target is not None:
            self.target_changed.ring()
        return self._learn(topic)

    async def change(
        self, uid: int, changes: Callable[[TopicSettings], TopicSettings], *, revision: int | None
    ) -> Topic:
        """Changes settings: `changes` gets those of now. Raises `InvalidInput`, `TopicChanged`."""
        self.check_able()
        for tries_left in reversed(range(_CHANGE_TRIES)):
            before = await self._access.call("topic", lambda store: store.get_topic(uid))
            settings = changes(before.settings)
            self._check_size(settings)
            if settings.target != before.settings.target:
                self._check_target(settings)
            now, then = asdict(settings), asdict(before.settings)
            audit.note(before.name, changed=[name for name in now if now[name] != then[name]])
            # Settings that the caller did not name must not be those of an earlier revision.
            expected = before.revision if revision is None else revision
            change = partial(_change_settings, uid, settings, expected)
            try:
                return await self._changed("change", uid, change)
            except TopicChanged:
                if revision is not None or not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def pause(self, uid: int, *, by: str, reason: str) -> Topic:
        audit.note(**({"reason": reason} if reason else {}))
        return await self._changed(
            "pause",
            uid,
            lambda store, now_ms: store.pause_topic(uid, by=by, reason=reason, now_ms=now_ms),
        )

    async def resume(self, uid: int) -> Topic:
        return await self._changed(
            "resume", uid, lambda store, now_ms: store.resume_topic(uid, now_ms=now_ms)
        )

    async def _changed(
        self, command: str, uid: int, change: Callable[[Store, int], Topic]
    ) -> Topic:
        self.check_able()
        name = (await self.get(uid)).name
        now_ms = self._access.clock.now_ms()
        with self._metrics.command(command, name, family="topic_commands"):
            try:
                topic = await self._access.call(
                    f"{command}_topic", lambda store: change(store, now_ms), changes=True
                )
            except TopicNotFound:
                self.forget(uid)
                raise
        self._learned(topic)
        return topic

    def refresh(self, topic: Topic) -> None:
        """A topic was changed, here or elsewhere."""
        if topic.uid in self._known:
            self._known.put(topic.uid, topic)
        if topic.settings.target is not None:
            self.target_changed.ring()

    def _check_size(self, settings: TopicSettings) -> None:
        if settings.largest_body_bytes > self._largest_body_bytes:
            raise InvalidInput(
                f"bodies of {settings.largest_body_bytes} bytes do not fit into this broker's frames; at "
                f"most {self._largest_body_bytes}: raise frame_bytes in its settings"
            )

    def _check_target(self, settings: TopicSettings) -> None:
        if settings.target is not None and (refusal := self._target_refusal(settings.target)):
            raise InvalidInput(f"target: {refusal}")

    async def delete(self, uid: int) -> bool:
        """False if it was deleted already. Raises `TopicNotFound`."""
        self.check_able()
        topic = await self.get(uid)
        with self._metrics.command("delete", topic.name, family="topic_commands"):
            deleted = await self._lifecycle.delete(topic)
        if deleted:
            self._metrics.forget_topic(topic.name)
        return deleted

    def forget(self, uid: int) -> None:
        """Forgets a deleted topic."""
        self._known.pop(uid)
        self._deleted(uid)

    def _deleted_in_cluster(self, uid: int, name: str) -> None:
        self.forget(uid)
        self._metrics.forget_topic(name)

    def _learn(self, topic: Topic) -> Topic:
        self._lifecycle.check(topic.name, topic)
        topic = self._latest(topic)
        self._known.put(topic.uid, topic)
        return topic


def _change_settings(
    uid: int, settings: TopicSettings, revision: int, store: Store, now_ms: int
) -> Topic:
    return store.change_topic(uid, settings, revision=revision, now_ms=now_ms)


class TopicsByName:
    """A cache of uids by name, for clients that know none.

    A deleted topic can have been created again: the name then means the new one.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._known = BoundedCache[str, int](_MOST_KNOWN)

    async def find(self, name: str) -> Topic:
        """The topic as the store has it now. Raises `TopicNotFound`."""
        self._known.pop(name)
        topic = await self._topics.find(name)
        self._known.put(name, topic.uid)
        return topic

    async def on(self, name: str, work: Callable[[Topic], Awaitable[Result]]) -> Result:
        """The result of `work` with the topic. Raises `TopicNotFound`."""
        uid = self._known.get(name)
        known = None if uid is None else self._topics.known(uid)
        if known is not None:
            try:
                return await work(known)
            except TopicNotFound:  # nothing was changed
                self._topics.forget(known.uid)
        return await work(await self.find(name))
