"""The Kafka server of the tests. `tests.runtime.test_child_process` has the rules that all servers share."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline_bench.servers import kafka
from chronoline_bench.servers.kafka import KafkaServer


def client(server: KafkaServer, **settings: str | int) -> dict[str, Any]:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": server.bootstrap, "log_level": 0, **own}


def topics(server: KafkaServer) -> dict[str, int]:
    """Returns the number of partitions by topic."""
    found = AdminClient(client(server)).list_topics(timeout=30).topics.values()
    return {str(each): len(each.partitions) for each in found}


def test_topics_are_only_created_explicitly(kafka_server: KafkaServer) -> None:
    kafka_server.create_topic("one")
    kafka_server.create_topic("four", partitions=4)
    found = topics(kafka_server)
    assert found["one"] == 1
    assert found["four"] == 4
    with pytest.raises(ChronolineError, match="already exists"):
        kafka_server.create_topic("one")
    with pytest.raises(ChronolineError, match="invalid"):
        kafka_server.create_topic("no/name")
    producer = Producer(client(kafka_server, topic_metadata_propagation_max_ms=0))
    refused: list[KafkaError | None] = []
    producer.produce("nobody_made_it", b"", on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(60) == 0
    assert [error and error.code() for error in refused] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert "nobody_made_it" not in topics(kafka_server)


def test_groups_and_transactions_work_on_one_server(kafka_server: KafkaServer) -> None:
    kafka_server.create_topic("grouped")
    producer = Producer(client(kafka_server, transactional_id="writer"))
    producer.init_transactions(60)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("grouped", value)
        assert producer.flush(60) == 0
        end(60)
    consumer = Consumer(client(kafka_server, group_id="group", auto_offset_reset="earliest"))
    consumer.subscribe(["grouped"])
    (message,) = consumer.consume(1, timeout=60)
    assert message.value() == b"committed"
    (committed,) = consumer.commit(message=message, asynchronous=False)
    assert committed.error is None
    consumer.close()


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingExtra, match="a Kafka server for tests needs Java 17"):
        KafkaServer(tmp_path / "data").start()


@pytest.mark.usefixtures("kafka_server")  # which is not tested where its parts are missing
def test_kafka_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path / "data")
    kafka.make_archive()
    server.jvm_options = (f"-Xlog:class+load:file={tmp_path}/classes.log",)
    with server:
        loaded = (tmp_path / "classes.log").read_text()
    assert "kafka.server.KafkaRaftServer source: shared objects file (top)" in loaded
