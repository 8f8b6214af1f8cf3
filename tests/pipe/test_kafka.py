"""Requests to a real Kafka."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.pipe.kafka import KafkaTopic, KafkaUnavailable, TopicRights
from chronoline.pipe.places import Place
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import running
from tests.pipe.conftest import NewKafkaTopic


@pytest.fixture
def place(kafka_server: KafkaServer, new_topic: NewKafkaTopic) -> Place:
    """A topic of three partitions, with five records in the second."""
    place = Place.of_kafka(new_topic(3), kafka_server.bootstrap)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap})
    for _ in range(5):
        producer.produce(place.topic, b"v", partition=1)
    assert producer.flush(60) == 0
    return place


def test_partitions_offsets_and_rights(place: Place) -> None:
    with KafkaTopic(place) as topic:
        assert topic.partitions() == [0, 1, 2]
        assert topic.earliest() == {0: 0, 1: 0, 2: 0}
        assert topic.latest() == {0: 0, 1: 5, 2: 0}
        assert topic.rights() == TopicRights(may_read=True, may_write=True)


def test_group_positions_are_visible_to_kafka_clients(place: Place) -> None:
    with KafkaTopic(place) as topic:
        assert topic.committed("group-1") == {}
        topic.commit("group-1", {0: 0, 1: 3})
        topic.commit("group-1", {1: 4})
        topic.commit("group-1", {})
        assert topic.committed("group-1") == {0: 0, 1: 4}
        with pytest.raises(TopicNotFound, match="no such partition"):
            topic.commit("group-1", {9: 1})
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": "group-1"})
    try:
        (found,) = consumer.committed([TopicPartition(place.topic, 1)], timeout=60)
    finally:
        consumer.close()
    assert found.offset == 4


def test_group_with_other_readers_is_refused(place: Place) -> None:
    consumer = Consumer(
        {"bootstrap.servers": place.bootstrap, "group.id": "busy", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([place.topic])
        assert consumer.consume(1, timeout=60)
        with KafkaTopic(place) as topic, pytest.raises(InvalidInput, match="group of its own"):
            topic.commit("busy", {1: 3})
    finally:
        consumer.close()


def test_read_committed_ends_before_an_open_transaction(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(place.topic, b"v", partition=1)
    assert producer.flush(60) == 0
    level = {"isolation.level": "read_committed"}
    assert KafkaTopic(place).latest()[1] == 6
    for committed in (
        Place.of_kafka(place.topic, place.bootstrap, level),
        Place.of_kafka(place.topic, place.bootstrap, producer=level),
    ):
        assert KafkaTopic(committed).latest()[1] == 5
    producer.abort_transaction(60)


def test_missing_topic_names_the_create_command(
    kafka_server: KafkaServer,
) -> None:
    topic = KafkaTopic(Place.of_kafka("nowhere", kafka_server.bootstrap))
    command = f"--bootstrap-server {kafka_server.bootstrap} --create --topic nowhere"
    for ask in (topic.partitions, topic.latest, topic.rights):
        with pytest.raises(TopicNotFound, match=command):
            ask()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[KafkaServer]:
    yield from running(KafkaServer(tmp_path / "kafka"))


def test_silent_server_times_out(own_server: KafkaServer) -> None:
    own_server.create_topic("t")
    command = [sys.executable, "-m", "tests.pipe.kafka_probe", own_server.bootstrap, "t"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "[0]\n"
        own_server.pause()
        said, _ = process.communicate("go on\n", timeout=60)
        own_server.resume()
        assert process.returncode == 0
    lines = said.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("KafkaUnavailable: ")
        assert "try again" in line


def test_unreachable_server_is_unavailable() -> None:
    topic = KafkaTopic(Place.of_kafka("t", "127.0.0.1:1"), timeout_s=0.3)
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:1"):
        topic.rights()


@pytest.mark.parametrize(
    ("properties", "said"),
    [({"isolation.level": "none"}, "read_committed"), ({"no.such": "1"}, "no.such")],
)
def test_unsupported_properties_are_refused(properties: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        KafkaTopic(Place.of_kafka("t", "127.0.0.1:1", properties))
