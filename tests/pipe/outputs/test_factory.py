"""Opening a place that came from elsewhere."""

import pickle
from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.log import Log
from chronoline.pipe.outputs.contract import OutRecord
from chronoline.pipe.outputs.factory import open_output
from chronoline.pipe.places import Place
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import consume
from tests.pipe.conftest import NewKafkaTopic
from tests.pipe.outputs.confirmations import Confirmations

RECORD = OutRecord(b"k", b"v", (("h", b"1"),))


def publish(place: Place) -> None:
    confirmations = Confirmations()
    with open_output(pickle.loads(pickle.dumps(place))) as output:
        output.publish(RECORD, confirmations.of("v"))
    assert confirmations.wait_for("v", 0) is None


def test_a_kafka_topic(kafka_server: KafkaServer, new_topic: NewKafkaTopic) -> None:
    topic = new_topic()
    publish(Place.of_kafka(topic, kafka_server.bootstrap, {"kafka.compression.type": "gzip"}))
    assert [message.value() for message in consume(kafka_server, topic)] == [b"v"]


def test_a_topic_of_a_log(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'log'}"
    with Log(url) as log:
        log.create_topic("t")
    publish(Place.of_log("t", url))
    with Log(url) as log:
        assert [event.headers for event in log.read("t", follow=False)] == [RECORD.headers]
    with pytest.raises(TopicNotFound):
        open_output(Place.of_log("nowhere", url))


def test_a_hold_time_is_kept(kafka_server: KafkaServer) -> None:
    place = Place.of_kafka("t", kafka_server.bootstrap, {"delivery.timeout.ms": 3_000})
    with pytest.raises(InvalidInput, match=r"from 1 to delivery_timeout_ms \(2000\)"):
        open_output(place, delivery_timeout_ms=2_000)
