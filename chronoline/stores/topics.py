"""The topics of a store, with a cache of those that it has met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chronoline.core.errors import InvalidInput, StoreBusy, TopicChanged, TopicExists, TopicNotFound
from chronoline.core.ids import MAX_UID, UID_ENTROPY_BYTES, make_topic_uid
from chronoline.core.limits import name_problem
from chronoline.core.topic import Topic, TopicSettings, check_topic_name
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.stores.checks import check_time, check_uid
from chronoline.stores.contract import Notice
from chronoline.stores.engine import Engine

_UID_TRIES = 10
_MOST_KNOWN_TOPICS = 10_000
_FRESH_MS = 2_000
_CHANGE_TRIES = 10


class TopicCatalog:
    """Makes, finds and deletes topics."""

    def __init__(self, engine: Engine[Any], random_bytes: Callable[[int], bytes]) -> None:
        self._engine = engine
        self._random_bytes = random_bytes
        # Topics by uid, each with when a caller last wanted it fresh. A uid is never used again, and every
        # write, and `get` before a read, checks whether the topic still lives. Settings can change.
        self._known = BoundedCache[int, tuple[Topic, int]](_MOST_KNOWN_TOPICS)

    def create(self, name: str, settings: TopicSettings, now_ms: int) -> Topic:
        check_topic_name(name)
        check_time("now_ms", now_ms)
        if not isinstance(settings, TopicSettings):
            raise InvalidInput(f"settings must be TopicSettings, not {type(settings).__name__}")
        for _ in range(_UID_TRIES):
            uid = make_topic_uid(now_ms, self._random_bytes(UID_ENTROPY_BYTES))
            topic = Topic(uid=uid, name=name, settings=settings)
            if self._engine.insert_topic(topic):
                return self._remember(topic, now_ms)
            if self._engine.is_name_taken(name):
                self._engine.await_durable(None)
                raise TopicExists(self._why_taken(name))
        raise StoreBusy(f"no uid was free for topic {name!r}; nothing was changed. Try again")

    def _why_taken(self, name: str) -> str:
        if self.find(name) is not None:
            return f"a topic named {name!r} exists"
        return (
            f"the topic named {name!r} was deleted, and its messages are still being removed; its name is "
            "free when that is done"
        )

    def ensure(self, name: str, settings: TopicSettings, now_ms: int) -> Topic:
        found = self.find(name)
        if found is not None:
            self._engine.await_durable(None)
            return found
        try:
            return self.create(name, settings, now_ms)
        except TopicExists:
            found = self.find(name)  # another may have been faster
            if found is None:
                raise
            return found

    def find(self, name: str) -> Topic | None:
        return self._engine.find_topic(name) if name_problem("topic name", name) is None else None

    def delete(self, uid: int, now_ms: int) -> bool:
        check_time("now_ms", now_ms)
        check_uid(uid)
        if not 0 <= uid <= MAX_UID:
            return False
        done = self._engine.delete_topic(uid, now_ms)
        if not done:
            self._engine.await_durable(None)
        return done

    def get(self, uid: int, connection: Any = None) -> Topic:
        """The topic as the engine has it now; raises `TopicNotFound` if it was deleted."""
        check_uid(uid)
        topic = self._engine.fetch_topic(connection, uid) if 0 <= uid <= MAX_UID else None
        if topic is None:
            raise TopicNotFound.with_uid(uid)
        return topic

    def known(self, uid: int, connection: Any = None, *, now_ms: int | None = None) -> Topic:
        """The topic from the cache, which may have been deleted since, or as the engine has it.

        With `now_ms` its settings were current at most two seconds ago.
        """
        check_uid(uid)
        topic, read_ms = self._known.get(uid) or (None, 0)
        if topic is not None and (now_ms is None or 0 <= now_ms - read_ms < _FRESH_MS):
            return topic
        return self._remember(self.get(uid, connection), now_ms or 0)

    def change(
        self, uid: int, change: Callable[[Topic], Topic], *, revision: int | None, now_ms: int
    ) -> Topic:
        """Writes what `change` makes of the topic. Raises `TopicChanged` if it has another revision."""
        check_time("now_ms", now_ms)
        for _ in range(_CHANGE_TRIES):
            topic = self.get(uid)
            if revision is not None and topic.revision != revision:
                raise TopicChanged(
                    f"topic {topic.name!r} has revision {topic.revision}, not {revision}: another changed "
                    "it meanwhile; nothing was changed. Look at it, and try again"
                )
            changed = change(topic)
            if changed == topic:
                self._engine.await_durable(None)
                return topic
            if self._engine.change_topic(changed):
                made = replace(changed, revision=changed.revision + 1)
                self._engine.announce(None, Notice(topic_uid=uid, topic_changed=True))
                return self._remember(made, now_ms)
        raise StoreBusy(
            "the topic is changed by others all the time; nothing was changed. Try again"
        )

    def _remember(self, topic: Topic, now_ms: int) -> Topic:
        self._known.put(topic.uid, (topic, now_ms))
        return topic
