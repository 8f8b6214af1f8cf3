"""The Kafka server: start, stop, crash and hang on demand."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import consume, running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    yield from running(KafkaServer(tmp_path_factory.mktemp("kafka") / "data"))


@pytest.fixture
def server(shared: KafkaServer) -> KafkaServer:
    """A running server, started again if the test before stopped it."""
    shared.resume()
    shared.start()
    return shared


@pytest.fixture
def new_server(shared: KafkaServer, tmp_path: Path) -> Iterator[KafkaServer]:
    """A server that was never started, if its jars are available."""
    server = KafkaServer(tmp_path / "data")
    yield server
    server.stop()


def client(server: KafkaServer, **settings: str | int) -> dict[str, Any]:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": server.bootstrap, "log_level": 0, **own}


def topics(server: KafkaServer, *, patience_s: float = 30) -> dict[str, int]:
    """Returns the number of partitions by topic."""
    found = AdminClient(client(server)).list_topics(timeout=patience_s).topics.values()
    return {str(each): len(each.partitions) for each in found}


def values(server: KafkaServer, topic: str) -> list[str | bytes | None]:
    return [message.value() for message in consume(server, topic)]


def produce(server: KafkaServer, topic: str, *values: bytes) -> None:
    producer = Producer(client(server))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def port_of(server: KafkaServer) -> int:
    return int(server.bootstrap.partition(":")[2])


def test_topics_are_only_created_explicitly(server: KafkaServer) -> None:
    server.create_topic("one")
    server.create_topic("four", partitions=4)
    found = topics(server)
    assert found["one"] == 1
    assert found["four"] == 4
    with pytest.raises(ChronolineError, match="already exists"):
        server.create_topic("one")
    with pytest.raises(ChronolineError, match="invalid"):
        server.create_topic("no/name")
    producer = Producer(client(server, topic_metadata_propagation_max_ms=0))
    refused: list[KafkaError | None] = []
    producer.produce("nobody_made_it", b"", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(60) == 0
    assert [error and error.code() for error in refused] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert "nobody_made_it" not in topics(server)


def test_groups_and_transactions_work_on_one_server(server: KafkaServer) -> None:
    server.create_topic("grouped")
    producer = Producer(client(server, transactional_id="writer"))
    producer.init_transactions(60)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("grouped", value)
        assert producer.flush(60) == 0
        end(60)
    consumer = Consumer(client(server, group_id="group", auto_offset_reset="earliest"))
    consumer.subscribe(["grouped"])
    (message,) = consumer.consume(1, timeout=60)
    assert message.value() == b"committed"
    (committed,) = consumer.commit(message=message, asynchronous=False)
    assert committed.error is None
    consumer.close()


def test_stopping_and_starting_keeps_data_and_port(server: KafkaServer) -> None:
    server.create_topic("kept")
    produce(server, "kept", b"1", b"2")
    pid, bootstrap = server.pid, server.bootstrap
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()
    assert server.pid is None
    with pytest.raises(KafkaException):
        topics(server, patience_s=0.2)
    server.start()
    assert server.bootstrap == bootstrap
    assert values(server, "kept") == [b"1", b"2"]


def test_taken_controller_port_is_left_to_its_owner(
    new_server: KafkaServer,
) -> None:
    taken = port_of(new_server) + 1
    with socket.create_server(("127.0.0.1", taken)):
        new_server.start()
        assert port_of(new_server) + 1 != taken
    new_server.create_topic("here")
    assert topics(new_server) == {"here": 1}


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a Kafka server for tests needs Java 17"):
        KafkaServer(tmp_path / "data").start()
