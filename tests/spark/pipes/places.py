"""The two places on which a pipe is shown to be right: embedded, and on Kafka with PostgreSQL."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from chronoline.log import Log, NewEvent
from chronoline.runtime.service import Closable
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.kafka import KafkaServer

Header = tuple[str, bytes | None]

PATIENCE_S = 100

numbers = itertools.count()


class Record(NamedTuple):
    """A record at the input or at the output."""

    headers: tuple[Header, ...] = ()
    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None


class Reader(Closable):
    """Reads a topic from its beginning, bit by bit."""

    @abstractmethod
    def poll(self) -> list[Record]:
        """Returns the new records; waits a moment if there are none."""


class Place(Closable):
    """Where a pipe has its topics and its store."""

    store: str
    """A store in which there is nothing yet."""

    @abstractmethod
    def create_topic(self, name: str, partitions: int, **settings: str) -> None: ...

    @abstractmethod
    def table(self, topic: str) -> dict[str, Any]:
        """A topic, as the settings of a pipe name it."""

    @abstractmethod
    def publish(self, topic: str, records: Sequence[Record]) -> None:
        """They are durable when it returns."""

    @abstractmethod
    def reader(self, topic: str) -> Reader: ...

    @abstractmethod
    def truncate(self, topic: str, partition: int) -> None:
        """Deletes all that a partition has, as retention does."""


class Embedded(Place):
    """A log in a folder, and SQLite."""

    def __init__(self, folder: Path) -> None:
        self.store = f"sqlite:///{folder}/pipe.db"
        self._url = (folder / "log").as_uri()
        self._log = Log(self._url)

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        self._log.create_topic(name, partitions=partitions)

    def table(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "log": self._url}

    def publish(self, topic: str, records: Sequence[Record]) -> None:
        events = [
            NewEvent(key=key, value=value, headers=headers, partition=partition)
            for headers, key, value, partition in records
        ]
        self._log.append_many(topic, events)

    def reader(self, topic: str) -> Reader:
        return _LogReader(self._log, topic)

    def truncate(self, topic: str, partition: int) -> None:
        def has_events() -> bool:
            head = self._log.heads(topic)[partition]
            return head.first_sequence < head.next_sequence

        while has_events():  # they must be a millisecond old
            self._log.retain(topic, max_age_ms=0)

    def close(self) -> None:
        self._log.close()


class _LogReader(Reader):
    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._next = [0] * log.topic(topic).partitions

    def poll(self) -> list[Record]:
        found = []
        for head in self._log.heads(self._topic):
            start, self._next[head.partition] = self._next[head.partition], head.next_sequence
            for events in self._log.read_range(
                self._topic, head.partition, start, head.next_sequence
            ):
                found += [Record(e.headers, e.key, e.value, e.partition) for e in events]
        return found

    def close(self) -> None:
        """The log is the place's."""


class OnServers(Place):
    """Kafka and PostgreSQL."""

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer) -> None:
        self.store = postgres.create_database(f"pipe-{next(numbers)}")
        self._kafka = kafka
        self._client: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        self._admin = AdminClient(self._client)
        self._producer = Producer(self._client | {"reconnect.backoff.max.ms": 200})

    def create_topic(self, name: str, partitions: int, **settings: str) -> None:
        if settings:
            config = {setting.replace("_", "."): value for setting, value in settings.items()}
            topics = [NewTopic(name, partitions, 1, config=config)]
            self._admin.create_topics(topics)[name].result(PATIENCE_S)
        else:
            self._kafka.create_topic(name, partitions)

    def table(self, topic: str) -> dict[str, Any]:
        return {"topic": topic, "kafka": {"bootstrap.servers": self._kafka.bootstrap}}

    def publish(self, topic: str, records: Sequence[Record]) -> None:
        for headers, key, value, partition in records:
            placed: dict[str, Any] = {} if partition is None else {"partition": partition}
            self._producer.produce(topic, value, key, headers=list(headers), **placed)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def reader(self, topic: str) -> Reader:
        return _KafkaReader(self._client, topic)

    def truncate(self, topic: str, partition: int) -> None:
        # All that it has; this library says that with -1.
        asked = [TopicPartition(topic, partition, -1)]
        for answer in self._admin.delete_records(asked).values():
            answer.result(PATIENCE_S)

    def close(self) -> None:
        """Its server is everybody's."""


class _KafkaReader(Reader):
    def __init__(self, client: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer(
            client
            | {
                "group.id": "reader",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 200,
            }
        )
        known = self._consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, each, 0) for each in known])

    def poll(self) -> list[Record]:
        try:
            found = self._consumer.consume(1_000, timeout=0.1)
        except KafkaException:  # its server is away
            return []
        return [
            Record(tuple(_headers(each.headers())), each.key(), each.value(), each.partition())
            for each in found
            if each.error() is None
        ]

    def close(self) -> None:
        self._consumer.close()


def _headers(found: Any) -> list[Header]:
    return [(name, value) for name, value in found or ()]
