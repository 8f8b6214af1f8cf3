"""A timeline, as tests of the format `chronoline` work on it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from chronoline.core.message import Message, NewMessage
from chronoline.core.permissions import System
from chronoline.core.topic import Topic
from chronoline.stores.contract import Store

HOUR_MS = 3_600_000
HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


@dataclass(frozen=True)
class Timeline:
    """A topic of a store."""

    url: str
    topic: Topic
    store: Store
    now: int
    """When it was made."""

    @property
    def options(self) -> dict[str, Any]:
        return {"store": self.url, "topic": self.topic.name}

    def put(self, *new: NewMessage) -> None:
        outcomes = self.store.create(self.topic.uid, new, now_ms=self.now)
        assert all(each.done for each in outcomes)

    def put_many(self, count: int, *, every_ms: int = 1_000) -> list[str]:
        """Messages m0, m1, … that wait, one after the other, from an hour ahead."""
        dues = {f"m{n}": self.now + HOUR_MS + n * every_ms for n in range(count)}
        self.put(*(NewMessage(id=each, due=due, body=each.encode()) for each, due in dues.items()))
        return list(dues)

    def read(self, spark: SparkSession, **options: Any) -> DataFrameReader:
        return spark.read.format("chronoline").options(**self.options).options(**options)

    def write(self, frame: DataFrame, **options: Any) -> None:
        writer = frame.write.format("chronoline").options(**self.options).options(**options)
        writer.mode("append").save()

    def message(self, message_id: str) -> Message:
        return self.store.lookup(self.topic.uid, [message_id])[message_id]

    def body(self, message_id: str) -> bytes | None:
        found = self.store.bodies(self.topic.uid, [message_id], actor=System(), now_ms=self.now)
        return found.found[message_id]

    def ids(self) -> set[str]:
        """Of at most 10,000 messages."""
        page = self.store.scan(self.topic.uid, self.topic.all_buckets, limit=10_000)
        assert not page.more
        return {each.id for each in page.messages}


def moment(ms: int, us: int = 0) -> datetime:
    """As Spark takes it."""
    return datetime.fromtimestamp(ms // 1_000, UTC).replace(microsecond=ms % 1_000 * 1_000 + us)
