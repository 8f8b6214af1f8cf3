"""Publishing on a real Kafka."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronoline.core.errors import InvalidInput, OutputUnavailable, Unpublishable
from chronoline.log.partitioner import partition_id
from chronoline.pipe.outputs import kafka, kafka_producer
from chronoline.pipe.outputs.contract import OutRecord
from chronoline.pipe.outputs.kafka import KafkaOutput, producer_settings
from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import consume, running
from tests.pipe.conftest import NewKafkaTopic
from tests.pipe.outputs.confirmations import Confirmations

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
contents = st.none() | st.binary(max_size=200)
records = st.builds(
    OutRecord, contents, contents, st.lists(st.tuples(names, contents), max_size=5).map(tuple)
)


def record(value: bytes | None, key: bytes | None = None) -> OutRecord:
    return OutRecord(key, value, ())


def as_published(message: Message) -> OutRecord:
    headers: Any = message.headers() or ()
    return OutRecord(message.key(), message.value(), tuple(headers))


@pytest.fixture
def open_output(kafka_server: KafkaServer) -> Any:
    def open_it(topic: str, **options: Any) -> KafkaOutput:
        properties = {"bootstrap.servers": kafka_server.bootstrap} | options.pop("properties", {})
        return KafkaOutput(topic, properties, **options)

    return open_it


OpenOutput = Callable[..., KafkaOutput]


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(records, min_size=20, max_size=60))
def test_every_byte_comes_out(
    kafka_server: KafkaServer,
    new_topic: NewKafkaTopic,
    open_output: OpenOutput,
    batch: list[OutRecord],
) -> None:
    topic, confirmations = new_topic(), Confirmations()
    with open_output(topic) as output:
        for place, each in enumerate(batch):
            output.publish(each, confirmations.of(place))
        assert set(confirmations.wait().values()) == {None}
    assert [as_published(message) for message in consume(kafka_server, topic)] == batch


def test_null_and_empty_values_and_headers_differ(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    headers = (
        ("b", b"1"),
        ("a", bytes(range(256))),
        ("b", None),
        ("", b""),
        ("ä", b"2"),
        ("b", b"1"),
    )
    batch = [OutRecord(None, None, ()), OutRecord(b"", b"", ()), OutRecord(b"k", None, headers)]
    topic, confirmations = new_topic(), Confirmations()
    with open_output(topic) as output:
        for place, each in enumerate(batch):
            output.publish(each, confirmations.of(place))
    assert set(confirmations.wait().values()) == {None}
    assert [as_published(message) for message in consume(kafka_server, topic)] == batch


def test_keys_follow_the_java_partitioner(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    keys = [b"", b"\0", *(f"key-{n}".encode() for n in range(200)), bytes(range(256))]
    topic, confirmations = new_topic(7), Confirmations()
    # librdkafka keeps to one partition for a moment, to have batches.
    at_once = {"sticky.partitioning.linger.ms": "0"}
    with open_output(topic, properties=at_once) as output:
        for key in keys:
            output.publish(record(b"keyed", key), confirmations.of(key))
        for place in range(200):
            output.publish(record(b"not keyed"), confirmations.of(place))
    assert set(confirmations.wait().values()) == {None}
    without_key = set()
    for partition in range(7):
        messages = consume(kafka_server, topic, partition)
        assert {m.key() for m in messages if m.value() == b"keyed"} == {
            key for key in keys if partition_id(key, 7) == partition
        }
        if any(m.value() == b"not keyed" for m in messages):
            without_key.add(partition)
    assert without_key == set(range(7))


def test_oversized_record_is_refused_alone(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    """Together, the small ones are larger than that too."""
    topic, confirmations = new_topic(max_message_bytes="10000"), Confirmations()
    with open_output(topic, linger_ms=200) as output:
        output.publish(record(bytes(20_000)), confirmations.of("large"))
        for place in range(20):
            output.publish(record(bytes(2_000)), confirmations.of(place))
        told = confirmations.wait()
    assert isinstance(told.pop("large"), Unpublishable)
    assert set(told.values()) == {None}
    assert len(consume(kafka_server, topic)) == 20


def test_unkeyed_record_of_a_compacted_topic_is_refused(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    topic, confirmations = new_topic(cleanup_policy="compact"), Confirmations()
    with open_output(topic, linger_ms=200) as output:
        for place in range(20):
            key = None if place == 7 else b"%d" % place
            output.publish(record(b"v", key), confirmations.of(place))
        told = confirmations.wait()
    assert isinstance(told.pop(7), Unpublishable)
    assert set(told.values()) == {None}
    assert len(consume(kafka_server, topic)) == 19


@pytest.mark.parametrize(
    "bad",
    [
        OutRecord(None, bytes(2_000), ()),
        OutRecord(None, b"v", (("na\0me", b""),)),
        OutRecord(None, b"v", (("\ud800", b""),)),
    ],
    ids=["larger than the producer allows", "a NUL in a header's name", "a name that is no UTF-8"],
)
def test_invalid_record_is_refused_at_once(
    new_topic: NewKafkaTopic, open_output: OpenOutput, bad: OutRecord
) -> None:
    confirmations = Confirmations()
    with open_output(new_topic(), properties={"message.max.bytes": "1000"}) as output:
        output.publish(bad, confirmations.of("bad"))
        assert isinstance(confirmations.wait_for("bad", 0), Unpublishable)
        output.publish(record(b"good"), confirmations.of("good"))
        assert confirmations.wait_for("good") is None


def test_record_larger_than_the_queue_is_refused(
    new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    confirmations = Confirmations()
    with open_output(new_topic(), properties={"queue.buffering.max.kbytes": "1"}) as output:
        output.publish(record(bytes(5_000)), confirmations.of("large"))
        assert isinstance(confirmations.wait_for("large", 0), Unpublishable)


def test_publish_waits_while_the_queue_is_full(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    topic, confirmations = new_topic(), Confirmations()
    few = {"queue.buffering.max.messages": "10"}
    with open_output(topic, properties=few, linger_ms=20) as output:

        def publish(writer: int) -> None:
            for number in range(100):
                output.publish(
                    record(b"%d-%d" % (writer, number)), confirmations.of((writer, number))
                )

        writers = [threading.Thread(target=publish, args=[writer]) for writer in range(3)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        assert 300 - confirmations.told() <= 10
        assert set(confirmations.wait().values()) == {None}
    assert len({message.value() for message in consume(kafka_server, topic)}) == 300


def test_closing_flushes_and_a_closed_output_answers(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    topic, confirmations = new_topic(), Confirmations()
    output = open_output(topic, linger_ms=300)
    for place in range(100):
        output.publish(record(b"v"), confirmations.of(place))
    assert output.flush(0) == 100
    output.close()
    assert confirmations.told() == 100
    assert set(confirmations.wait().values()) == {None}
    assert output.flush(0) == 0
    output.close()
    output.publish(record(b"v"), confirmations.of("late"))
    assert isinstance(confirmations.wait_for("late", 0), OutputUnavailable)
    assert len(consume(kafka_server, topic)) == 100


def test_missing_topic_is_unavailable_until_created(
    kafka_server: KafkaServer, open_output: OpenOutput
) -> None:
    confirmations = Confirmations()
    with open_output("created-later", delivery_timeout_ms=1_000) as output:
        output.publish(record(b"v"), confirmations.of("early"))
        assert isinstance(confirmations.wait_for("early"), OutputUnavailable)
        kafka_server.create_topic("created-later")
        for attempt in range(30):
            output.publish(record(b"v"), confirmations.of(attempt))
            if confirmations.wait_for(attempt) is None:
                break
    assert len(consume(kafka_server, "created-later")) == 1


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[KafkaServer]:
    yield from running(KafkaServer(tmp_path / "kafka"))


def test_broker_restart_loses_no_confirmation(own_server: KafkaServer) -> None:
    own_server.create_topic("t", 2)
    confirmations = Confirmations()
    with KafkaOutput(
        "t", {"bootstrap.servers": own_server.bootstrap}, delivery_timeout_ms=5_000
    ) as output:

        def publish(name: str) -> None:
            for number in range(500):
                value = f"{name}-{number}"
                output.publish(record(value.encode()), confirmations.of(value))

        publish("up")
        assert confirmations.wait_for("up-0") is None
        publish("stopping")
        own_server.kill()
        publish("down")
        refused = confirmations.wait_for("down-499")
        assert isinstance(refused, OutputUnavailable)
        own_server.start()
        for attempt in range(60):  # until it is found again
            output.publish(record(b"again-%d" % attempt), confirmations.of(attempt))
            if confirmations.wait_for(attempt) is None:
                break
        publish("back")
        told = confirmations.wait()
    assert {type(error) for error in told.values()} == {type(None), OutputUnavailable}
    assert all(told[f"back-{number}"] is None for number in range(500))
    kept = [m.value() for partition in range(2) for m in consume(own_server, "t", partition)]
    acknowledged = {str(n).encode() for n, error in told.items() if not error and type(n) is str}
    assert acknowledged <= set(kept)
    assert len(kept) == len(set(kept))


def test_unreachable_server_is_unavailable() -> None:
    confirmations = Confirmations()
    with KafkaOutput("t", {"bootstrap.servers": "127.0.0.1:1"}, delivery_timeout_ms=300) as output:
        output.publish(record(b"v"), confirmations.of("v"))
        assert isinstance(confirmations.wait_for("v"), OutputUnavailable)


class BrokenProducer:
    """One whose idempotence broke for good: librdkafka has no way to ask for it from here."""

    opened = 0

    def __init__(self, config: dict[str, Any]) -> None:
        type(self).opened += 1

    def produce(self, *_: object, **__: object) -> None:
        # The library's documented name.
        raise KafkaException(KafkaError(KafkaError._FATAL, "out of sequence", fatal=True))

    def poll(self, timeout: float) -> int:
        return 0

    def purge(self, **_: object) -> None:
        pass

    def __len__(self) -> int:
        return 0


def test_broken_producer_is_replaced_at_a_bounded_rate(
    monkeypatch: pytest.MonkeyPatch, new_topic: NewKafkaTopic, open_output: OpenOutput
) -> None:
    confirmations = Confirmations()
    with monkeypatch.context() as patch:
        patch.setattr(kafka_producer, "Producer", BrokenProducer)
        output = open_output(new_topic())
        for place in range(10):
            output.publish(record(b"v"), confirmations.of(place))
    told = confirmations.wait(0)
    assert {type(error) for error in told.values()} == {OutputUnavailable}
    assert "out of sequence" in str(told[0])
    assert BrokenProducer.opened == 1
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(kafka, "_RENEW_S", 0)
    output.publish(record(b"v"), confirmations.of("then"))
    assert confirmations.wait_for("then") is None
    output.close()


def test_a_confirmation_that_raises_disturbs_nobody(
    new_topic: NewKafkaTopic, open_output: OpenOutput, caplog: pytest.LogCaptureFixture
) -> None:
    confirmations = Confirmations()

    def fail(error: BaseException | None) -> None:
        raise ValueError("a bug of the caller")

    with open_output(new_topic()) as output:
        output.publish(record(b"v"), fail)
        output.publish(record(b"v"), confirmations.of("other"))
        assert confirmations.wait_for("other") is None
    assert "a bug of the caller" in caplog.text


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"acks": "1"}, "acks must be 'all'"),
        ({"request.required.acks": "0"}, "must be 'all'"),
        ({"delivery.timeout.ms": "120000"}, r"from 1 to delivery_timeout_ms \(4000\)"),
        ({"message.timeout.ms": "0"}, r"from 1 to delivery_timeout_ms \(4000\)"),
        ({"no.such.property": "1"}, "no.such.property"),
        ({"compression.type": "brown"}, "compression"),
    ],
)
def test_properties_that_break_the_promise_are_refused(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        KafkaOutput("t", {"bootstrap.servers": "127.0.0.1:1"} | properties)


def test_properties_of_the_user_win_over_ours() -> None:
    ours = producer_settings({}, 4_000, 2.5)
    assert (ours["acks"], ours["enable.idempotence"]) == ("all", "true")
    assert (ours["delivery.timeout.ms"], ours["linger.ms"]) == ("4000", "2.5")
    theirs = {"message.timeout.ms": "900", "queue.buffering.max.ms": "1", "partitioner": "random"}
    found = producer_settings(theirs, 4_000, 0)
    assert found.items() >= theirs.items()
    assert not found.keys() & {"delivery.timeout.ms", "linger.ms"}
