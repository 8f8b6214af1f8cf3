"""Topics, as all engines know them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from chronoline.core.errors import InvalidInput, StoreBusy, TopicExists, TopicNotFound
from chronoline.core.ids import MAX_UID, UID_ENTROPY_BYTES, make_topic_uid
from chronoline.core.limits import name_problem
from chronoline.core.topic import DEFAULT_SETTINGS, Topic, TopicSettings, check_topic_name
from chronoline.stores.batch import check_time, check_uid
from chronoline.stores.contract import Store
from chronoline.stores.primitives import Primitives

_UID_TRIES = 10
_MOST_KNOWN_TOPICS = 10_000


class KnowsTopics(Primitives, Store):
    """The contract's methods on topics."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        # Topics by uid. A uid is never used again and settings are fixed, so this cannot be wrong;
        # whether the topic still lives is checked by every write, and before every look.
        self._known_topics: dict[int, Topic] = {}
        self._known_topics_lock = threading.Lock()

    def create_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        check_topic_name(name)
        check_time("now_ms", now_ms)
        if not isinstance(settings, TopicSettings):
            raise InvalidInput(f"settings must be TopicSettings, not {type(settings).__name__}")
        for _ in range(_UID_TRIES):
            uid = make_topic_uid(now_ms, self._random_bytes(UID_ENTROPY_BYTES))
            topic = Topic(uid=uid, name=name, settings=settings)
            if self._insert_topic(topic):
                return self._remember(topic)
            if self._is_name_taken(name):
                raise TopicExists(self._why_taken(name))
        raise StoreBusy(f"no uid was free for topic {name!r}; nothing was changed. Try again")

    def _why_taken(self, name: str) -> str:
        if self.find_topic(name) is not None:
            return f"a topic named {name!r} exists"
        return (
            f"the topic named {name!r} was dropped, and its messages are still being removed; its name is "
            "free when that is done"
        )

    def ensure_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        found = self.find_topic(name)
        if found is not None:
            return found
        try:
            return self.create_topic(name, settings, now_ms=now_ms)
        except TopicExists:
            found = self.find_topic(name)  # another may have been faster
            if found is None:
                raise
            return found

    def get_topic(self, uid: int) -> Topic:
        check_uid(uid)
        topic = self._fetch_topic(uid) if 0 <= uid <= MAX_UID else None
        if topic is None:
            raise TopicNotFound(f"there is no topic with uid {uid}; it may have been dropped")
        return topic

    def find_topic(self, name: str) -> Topic | None:
        return self._find_topic(name) if name_problem("topic name", name) is None else None

    def delete_topic(self, uid: int, *, now_ms: int) -> bool:
        check_time("now_ms", now_ms)
        check_uid(uid)
        return self._drop_topic(uid, now_ms) if 0 <= uid <= MAX_UID else False

    def _topic(self, uid: int) -> Topic:
        check_uid(uid)
        return self._known_topics.get(uid) or self._remember(self.get_topic(uid))

    def _remember(self, topic: Topic) -> Topic:
        with self._known_topics_lock:
            if len(self._known_topics) >= _MOST_KNOWN_TOPICS:
                self._known_topics.clear()
            self._known_topics[topic.uid] = topic
        return topic
