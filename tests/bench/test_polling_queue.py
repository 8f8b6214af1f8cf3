"""The polling queue on real servers, and a scene around it: messages come out, and are counted."""

import itertools
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from chronoline.testing.postgres import PostgresServer
from chronoline_bench.harness.passage import take_pairs
from chronoline_bench.harness.stage import Stage
from chronoline_bench.pipe.agent import Load, Loader, as_deadline
from chronoline_bench.pipe.polling_queue import (
    DEADLINE_HEADER,
    ID_HEADER,
    Node,
    NodeSettings,
    create_table,
)
from chronoline_bench.pipe.scene import Scene
from chronoline_bench.pipe.sides import PollingQueueSide
from chronoline_bench.pipe.transport import KafkaPlace
from chronoline_bench.servers.kafka import KafkaServer
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally
from tests.conftest import consume

_numbers = itertools.count()
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Place:
    """Two topics and a table, for one test."""

    settings: NodeSettings

    def send(self, message_id: str, due_ms: int, key: str, **headers: str) -> None:
        producer = Producer({"bootstrap.servers": self.settings.bootstrap})
        own = {ID_HEADER: message_id, DEADLINE_HEADER: as_deadline(due_ms)}
        producer.produce(
            self.settings.input_topic, key=key, value=b"\0body", headers={**headers, **own}
        )
        assert producer.flush(_PATIENCE_S) == 0

    def receive(self, count: int) -> list[Message]:
        """Waits for this number of messages on the output."""
        consumer = Consumer({"bootstrap.servers": self.settings.bootstrap, "group.id": "test"})
        try:
            consumer.assign([TopicPartition(self.settings.output_topic, 0, 0)])
            found = consumer.consume(count, timeout=_PATIENCE_S)
        finally:
            consumer.close()
        assert len(found) == count
        assert all(each.error() is None for each in found)
        return found

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.settings.database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def place(kafka_server: KafkaServer, postgres_server: PostgresServer) -> Place:
    name = f"polling_queue_{next(_numbers)}"
    for topic in (f"{name}.in", f"{name}.out"):
        kafka_server.create_topic(topic)
    database = postgres_server.create_database(name)
    create_table(database)
    return Place(
        NodeSettings(
            database=database,
            bootstrap=kafka_server.bootstrap,
            input_topic=f"{name}.in",
            output_topic=f"{name}.out",
            hold_ms=1_000,
            failure_detection_interval_ms=50,
        )
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_message_comes_at_its_deadline_without_control_headers(place: Place) -> None:
    due_ms = now_ms() + 1_500
    place.send("m", due_ms, "k", color="blue")
    with Node(place.settings) as node:
        assert node.ready.wait(_PATIENCE_S)
        (message,) = place.receive(1)
        assert now_ms() >= due_ms
    assert (message.key(), message.value()) == (b"k", b"\0body")
    assert message.headers() == [("color", b"blue")]
    assert place.query("SELECT id FROM messages") == []


def test_waiting_id_is_ignored_and_late_one_comes_at_once(place: Place) -> None:
    due_ms = now_ms() + 1_500
    place.send("twice", due_ms, "first")
    place.send("twice", due_ms, "second")
    place.send("late", now_ms() - 1, "late")
    with Node(place.settings):
        keys = {message.key() for message in place.receive(2)}
    assert keys == {b"first", b"late"}


def test_messages_of_a_dead_node_are_taken_over(place: Place) -> None:
    place.query(
        "INSERT INTO messages VALUES ('m', now(), now() - interval '1 minute', %s, '[]', 'k', 'v')",
        uuid.uuid4(),
    )
    with Node(place.settings):
        (message,) = place.receive(1)
    assert message.value() == b"v"
    assert place.query("SELECT id FROM messages") == []


def test_loader_writes_what_it_published(
    place: Place, tmp_path: Path, kafka_server: KafkaServer
) -> None:
    load = Load(
        place=KafkaPlace(kafka_server).url,
        topic=place.settings.input_topic,
        path=str(tmp_path / "load"),
        first=40,
        count=30,
        rate=1_000,
        shortest_ms=3_000,
        longest_ms=4_000,
        scene="s",
    )
    loaded = Loader(load).run()
    assert loaded["failed"] == 0
    due_ms = {number: due // 1_000 for number, due in take_pairs(tmp_path / "load")}
    assert list(due_ms) == list(range(40, 70))
    started_ms = loaded["started_us"] // 1_000
    assert all(3_000 <= due - started_ms <= 4_000 + 60_000 for due in due_ms.values())
    for message in consume(kafka_server, place.settings.input_topic):
        headers = dict(cast("list[tuple[str, bytes]]", message.headers()))
        number = int(message.key() or b"")
        assert headers[ID_HEADER].decode() == f"s-{number}"
        assert headers[DEADLINE_HEADER].decode() == as_deadline(due_ms[number])


def test_deadline_is_written_to_the_millisecond() -> None:
    assert as_deadline(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"


def test_scene_counts_all_its_messages(
    kafka_server: KafkaServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    tally = Tally()
    name = f"scene_{next(_numbers)}"
    side = PollingQueueSide(postgres_server, name)
    with (
        Stage(Session(folder=tmp_path)) as stage,
        Scene(stage, KafkaPlace(kafka_server), side, name, tally) as scene,
    ):
        with scene.serving():
            passage = scene.run(count=300, rate=300, shortest_ms=500, longest_ms=1_000)
            due_ms = now_ms() + 500
            first = stage.reserve(50)
            scene.side.fill(first, 50, due_ms)
            assert scene.side.stored(due_ms) == 50
            filled = dict.fromkeys(range(first, first + 50), due_ms * 1_000)
            arrivals = scene.expect(filled).of(filled)
        # A message that was never sent is missing at the end.
        scene.expect_later({stage.reserve(1): due_ms * 1_000})
    assert passage.whole.count == len(passage.due_us) == 300
    assert passage.tally == Tally()
    assert passage.control.count > 0
    assert passage.steady.count > 0
    assert len(arrivals.first_us) == 50
    assert arrivals.earliest_us >= due_ms * 1_000
    assert tally == Tally(lost=1)
