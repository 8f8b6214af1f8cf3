"""What the SQL engines share: looks whose queries have the same names, values and columns in both."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from chronoline.core.message import DeadLetter, Message
from chronoline.core.topic import Topic
from chronoline.stores.base import EngineStore
from chronoline.stores.rows import MESSAGE_WIDTH, pack_settings, read_message, unpack_settings


class SqlStore(EngineStore):
    """Looks by named queries."""

    @abstractmethod
    def _read(self, query: str, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a query that changes nothing, by its name."""

    # Topics

    def _is_name_taken(self, name: str) -> bool:
        return bool(self._read("name_taken", {"name": name}))

    def _fetch_topic(self, uid: int) -> Topic | None:
        return next(iter(self._read_topics("topic", {"uid": uid})), None)

    def _find_topic(self, name: str) -> Topic | None:
        return next(iter(self._read_topics("topic_named", {"name": name})), None)

    def list_topics(self) -> list[Topic]:
        return self._read_topics("topics", {})

    def _read_topics(self, query: str, values: dict[str, Any]) -> list[Topic]:
        return [
            Topic(uid=uid, name=name, settings=unpack_settings(settings))
            for uid, name, settings in self._read(query, values)
        ]

    # Pages

    def _select_held(self, topic: Topic, consumer: str, after: str, limit: int) -> list[Message]:
        values = {"topic": topic.uid, "consumer": consumer, "after": after, "limit": limit}
        return [read_message(row) for row in self._read("select_held", values)]

    def _select_owned(
        self, topic: Topic, producer_group: str, after: str, limit: int
    ) -> list[Message]:
        values = {
            "topic": topic.uid,
            "producer_group": producer_group,
            "after": after,
            "limit": limit,
        }
        return [read_message(row) for row in self._read("select_owned", values)]

    def _dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        died, last_id = after
        values = {"topic": topic.uid, "died": died, "after": last_id, "limit": limit}
        return [
            DeadLetter(message=read_message(row), reason=row[MESSAGE_WIDTH], died=row[1])
            for row in self._read("dead_letters", values)
        ]


def topic_values(topic: Topic) -> dict[str, Any]:
    """What the query `insert_topic` wants to know."""
    return {"uid": topic.uid, "name": topic.name, "settings": pack_settings(topic.settings)}
