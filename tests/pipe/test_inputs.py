"""Topics that a pipe reads: the same answers from Kafka and from a log."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.log import Log
from chronoline.pipe.inputs import open_input
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.places import Place
from chronoline_bench.servers.kafka import KafkaServer
from tests.pipe.conftest import NewKafkaTopic


@pytest.fixture(params=["kafka", "log"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A topic of two partitions, with three records in the second."""
    if request.param == "log":
        place = Place.of_log("t", f"file://{tmp_path / 'log'}")
        with Log(place.log) as log:
            log.create_topic("t", partitions=2)
            for _ in range(3):
                log.append("t", value=b"v", partition=1)
        return place
    server: KafkaServer = request.getfixturevalue("kafka_server")
    new_topic: NewKafkaTopic = request.getfixturevalue("new_topic")
    place = Place.of_kafka(new_topic(2), server.bootstrap)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for _ in range(3):
        producer.produce(place.topic, b"v", partition=1)
    assert producer.flush(60) == 0
    return place


def committed(place: Place, group: str) -> dict[int, int]:
    """As the topic's own tools show it."""
    if place.kind == "kafka":
        return KafkaTopic(place).committed(group)
    with Log(place.log) as log:
        return {each.partition: each.sequence for each in log.groups("t") if each.group == group}


def test_partitions_ends_and_positions(place: Place) -> None:
    with open_input(place, "pipe") as source:
        assert source.partitions() == [0, 1]
        assert source.earliest() == {0: 0, 1: 0}
        assert source.latest() == {0: 0, 1: 3}
        source.commit({0: 0, 1: 2})
        assert committed(place, "pipe") == {0: 0, 1: 2}
        source.commit({1: 3})
        assert committed(place, "pipe") == {0: 0, 1: 3}


def test_missing_topic_names_the_create_command(tmp_path: Path, kafka_server: KafkaServer) -> None:
    with pytest.raises(TopicNotFound, match="chronoline log create nowhere"):
        open_input(Place.of_log("nowhere", f"file://{tmp_path / 'log'}"), "pipe")
    with (
        open_input(Place.of_kafka("nowhere", kafka_server.bootstrap), "pipe") as source,
        pytest.raises(TopicNotFound, match="--create --topic nowhere"),
    ):
        source.partitions()


def test_a_pipe_has_a_name_for_tools() -> None:
    with pytest.raises(InvalidInput, match="group"):
        open_input(Place.of_log("t", "file:///x"), "")
