"""Readers of a pipe's input: ranges without gaps, from Kafka and from a log."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from chronoline.core.errors import InvalidInput
from chronoline.core.message import content_bytes
from chronoline.log import Log
from chronoline.pipe import kafka_reader, readers
from chronoline.pipe.contract import SourceRecord
from chronoline.pipe.kafka import KafkaUnavailable
from chronoline.pipe.places import Place
from chronoline.pipe.readers import InputReader, OutOfRange, ReadPositions, ReadRange, open_reader
from chronoline_bench.servers.kafka import KafkaServer
from tests.pipe.conftest import NewKafkaTopic

PATIENCE_S = 60.0
HEADERS = (("b", b"1"), ("a", bytes(range(256))), ("b", None), ("", b""), ("ä", b"2"))

Publish = Callable[[int, int], None]
"""Publishes a number of records to a partition."""


class Source:
    """A topic of two partitions."""

    def __init__(self, place: Place, publish: Publish, delete: Callable[[int], None]) -> None:
        self.place = place
        self.publish = publish
        self.delete = delete
        """Deletes all records of a partition."""


@pytest.fixture(params=["kafka", "log"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_source")
    else:
        yield request.getfixturevalue("log_source")


@pytest.fixture
def log_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    place = Place.of_log("t", f"file://{tmp_path_factory.mktemp('log')}")

    def publish(partition: int, count: int) -> None:
        for number in range(count):
            log.append("t", value=b"%d" % number, key=b"k", headers=HEADERS, partition=partition)

    def delete(_: int) -> None:
        while any(each.first_sequence < each.next_sequence for each in log.heads("t")):
            log.retain("t", max_age_ms=0)  # they must be a millisecond old

    with Log(place.log) as log:
        log.create_topic("t", partitions=2)
        yield Source(place, publish, delete)


@pytest.fixture
def kafka_source(kafka_server: KafkaServer, new_topic: NewKafkaTopic) -> Source:
    place = Place.of_kafka(new_topic(2), kafka_server.bootstrap)
    client: dict[str, Any] = {"bootstrap.servers": kafka_server.bootstrap}
    producer, admin = Producer(client), AdminClient(client)

    def publish(partition: int, count: int) -> None:
        for number in range(count):
            producer.produce(
                place.topic, b"%d" % number, b"k", headers=list(HEADERS), partition=partition
            )
        assert producer.flush(PATIENCE_S) == 0

    def delete(partition: int) -> None:
        asked = [TopicPartition(place.topic, partition, -1)]  # all that it has
        for answer in admin.delete_records(asked).values():
            answer.result(PATIENCE_S)

    return Source(place, publish, delete)


def opened(source: Source) -> InputReader:
    return open_reader(source.place, group="pipe", linger_ms=5)


def poll_until(reader: InputReader, upto: dict[int, int], limit: int = 1_000) -> list[ReadRange]:
    """Polls until these positions are reached."""
    ranges: list[ReadRange] = []
    reached: dict[int, int] = {}
    give_up_s = time.monotonic() + PATIENCE_S
    while reached != upto:
        assert time.monotonic() < give_up_s, (reached, upto)
        found = reader.poll(wait_s=0.1, limit=limit)
        assert sum(len(read_range.records) for read_range in found) <= limit
        ranges += found
        reached |= {read_range.partition: read_range.upto for read_range in found}
    return ranges


def offsets(ranges: list[ReadRange], partition: int) -> list[int]:
    """The offsets that were read; checks that ranges follow each other."""
    mine = [read_range for read_range in ranges if read_range.partition == partition]
    for before, read_range in pairwise(mine):
        assert before.upto == read_range.first
    for read_range in mine:
        assert all(read_range.first <= each.offset < read_range.upto for each in read_range.records)
        assert {each.partition for each in read_range.records} <= {partition}
    return [each.offset for read_range in mine for each in read_range.records]


def test_records_come_unchanged_and_in_order(source: Source) -> None:
    source.publish(0, 3)
    source.publish(1, 5)
    with opened(source) as reader:
        reader.assign({0: 0, 1: 2})
        ranges = poll_until(reader, {0: 3, 1: 5})
        assert offsets(ranges, 0) == [0, 1, 2]
        assert offsets(ranges, 1) == [2, 3, 4]
        (first, *_) = [
            each for read_range in ranges for each in read_range.records if each.partition == 1
        ]
        assert (first.key, first.value, tuple(first.headers)) == (b"k", b"2", HEADERS)
        assert 0 <= time.time() * 1_000 - first.time_ms < 3_600_000
        source.publish(0, 1)
        assert offsets(poll_until(reader, {0: 4}), 0) == [3]


def test_a_batch_is_bounded(source: Source) -> None:
    source.publish(0, 7)
    with opened(source) as reader:
        reader.assign({0: 0})
        ranges = poll_until(reader, {0: 7}, limit=3)
    assert offsets(ranges, 0) == list(range(7))


def test_large_values_end_a_batch(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (readers, kafka_reader):
        monkeypatch.setattr(module, "MOST_BYTES", 3)
    source.publish(0, 7)
    with opened(source) as reader:
        reader.assign({0: 0})
        ranges = poll_until(reader, {0: 7})
    assert offsets(ranges, 0) == list(range(7))
    assert max(len(each.records) for each in ranges) <= 3


def test_keys_and_headers_count_for_the_size_of_a_batch(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_bytes = content_bytes(b"0", b"k", HEADERS)
    for module in (readers, kafka_reader):
        monkeypatch.setattr(module, "MOST_BYTES", 2 * record_bytes)
    source.publish(0, 7)
    with opened(source) as reader:
        reader.assign({0: 0})
        ranges = poll_until(reader, {0: 7})
    assert offsets(ranges, 0) == list(range(7))
    assert max(len(each.records) for each in ranges) <= 2


def test_assignment_replaces_the_last(source: Source) -> None:
    source.publish(0, 3)
    source.publish(1, 3)
    with opened(source) as reader:
        reader.assign({0: 0})
        poll_until(reader, {0: 3})
        reader.assign({0: 1, 1: 2})
        ranges = poll_until(reader, {0: 3, 1: 3})
        assert offsets(ranges, 0) == [1, 2]
        assert offsets(ranges, 1) == [2]
        reader.assign({})
        source.publish(0, 1)
        assert reader.poll(wait_s=0.05, limit=10) == []
        reader.assign({0: 3})
        assert offsets(poll_until(reader, {0: 4}), 0) == [3]


def test_deleted_records_are_out_of_range(source: Source) -> None:
    source.publish(0, 3)
    source.delete(0)
    source.publish(0, 1)
    with opened(source) as reader:
        reader.assign({0: 1})
        with pytest.raises(OutOfRange):
            poll_until(reader, {0: 4})
        reader.assign({0: 3})
        assert offsets(poll_until(reader, {0: 4}), 0) == [3]


# Kafka


def test_a_position_behind_the_end_is_out_of_range(kafka_source: Source) -> None:
    kafka_source.publish(0, 1)
    with opened(kafka_source) as reader:
        reader.assign({0: 5})
        with pytest.raises(OutOfRange):
            poll_until(reader, {0: 6})


@pytest.mark.parametrize(
    ("isolation", "values"),
    [(None, [b"aborted", b"committed"]), ("read_committed", [b"committed"])],
)
def test_ranges_pass_the_marks_of_transactions(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic, isolation: str | None, values: list[bytes]
) -> None:
    """Their offsets have no records, and the last one is at the end."""
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE_S)
        end(PATIENCE_S)
    properties = {} if isolation is None else {"isolation.level": isolation}
    place = Place.of_kafka(topic, kafka_server.bootstrap, dict(properties))
    with open_reader(place, group="pipe", linger_ms=5) as reader:
        reader.assign({0: 0})
        ranges = poll_until(reader, {0: 4})
    assert [each.value for read_range in ranges for each in read_range.records] == values
    assert ranges[0].first == 0
    offsets(ranges, 0)


def test_bad_property_is_refused(kafka_server: KafkaServer) -> None:
    place = Place.of_kafka("t", kafka_server.bootstrap, {"fetch.min.bytes": "many"})
    with pytest.raises(InvalidInput, match="Kafka's properties do not do"):
        open_reader(place, group="pipe", linger_ms=5)


class Answers:
    """A consumer whose messages are given."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)

    def assign(self, positions: list[TopicPartition]) -> None: ...

    def consume(self, count: int, _: float) -> list[Message]:
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken

    def close(self) -> None: ...


def reader_of(monkeypatch: pytest.MonkeyPatch, *messages: Message) -> InputReader:
    monkeypatch.setattr(kafka_reader, "Consumer", lambda *_, **__: Answers(*messages))
    return open_reader(Place.of_kafka("t", "127.0.0.1:1"), group="pipe", linger_ms=1)


def test_an_error_of_a_partition_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records may be missing there, and the record behind them must not move the position."""
    # Codes of librdkafka itself begin with an underscore.
    error = KafkaError(KafkaError._BAD_MSG)
    broken, behind = Message("t", partition=0, error=error), Message("t", partition=0, offset=2)
    reader = reader_of(monkeypatch, broken, behind)
    reader.assign({0: 0})
    with pytest.raises(KafkaUnavailable, match="partition 0 of 't'"):
        reader.poll(wait_s=0.0, limit=10)


def test_an_error_of_the_client_loses_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    # A code of librdkafka itself.
    broken = Message("t", error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    reader = reader_of(monkeypatch, broken, Message("t", partition=0, offset=0))
    reader.assign({0: 0})
    assert offsets(reader.poll(wait_s=0.0, limit=10), 0) == [0]


# Positions


def test_an_end_never_moves_a_position_back() -> None:
    positions = ReadPositions({0: 5, 1: 0})
    record = SourceRecord(0, 7, None, None, (), 0)
    assert positions.ranges([record], {0: 6, 1: 0}) == [ReadRange(0, 5, 8, [record])]
    assert positions.ranges([], {0: 8}) == []
    assert positions.ranges([record._replace(partition=2)], {3: 4}) == []
    assert positions.ranges([], {0: 9}) == [ReadRange(0, 8, 9, [])]


def test_unreadable_header_name_is_a_problem_of_its_record(
    kafka_server: KafkaServer, new_topic: NewKafkaTopic
) -> None:
    place = Place.of_kafka(new_topic(1), kafka_server.bootstrap)
    for _ in range(20):  # Python specialises a call that it makes often
        publish_with_header(kafka_server, place.topic, b"good")
    publish_with_header(kafka_server, place.topic, b"bad\xff")
    with open_reader(place, group="pipe", linger_ms=5) as reader:
        reader.assign({0: 0})
        ranges = poll_until(reader, {0: 21})
    good, *_, bad = (each for read_range in ranges for each in read_range.records)
    assert (bad.value, bad.headers) == (b"v", ())
    assert bad.problem == "the name of a header is not valid UTF-8; the headers are not kept"
    assert (good.headers, good.problem) == ([("good", b"x")], "")


def publish_with_header(server: KafkaServer, topic: str, name: bytes) -> None:
    """Publishes a record by the C library: its binding encodes names as UTF-8."""
    (file,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob(
        "librdkafka-*"
    )
    library, pointer = ctypes.CDLL(str(file)), ctypes.c_void_p
    for made in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, made).restype = pointer
    conf, error = pointer(library.rd_kafka_conf_new()), ctypes.create_string_buffer(512)
    library.rd_kafka_conf_set(
        conf, b"bootstrap.servers", server.bootstrap.encode(), error, ctypes.c_size_t(512)
    )
    producer = pointer(library.rd_kafka_new(0, conf, error, ctypes.c_size_t(512)))
    headers = pointer(library.rd_kafka_headers_new(ctypes.c_size_t(1)))
    size = ctypes.c_ssize_t(len(name))
    library.rd_kafka_header_add(headers, name, size, b"x", ctypes.c_ssize_t(1))
    # The arguments follow their kinds: 1 is the topic, 4 the value, 10 the headers, 0 the end.
    assert not library.rd_kafka_producev(
        producer, 1, topic.encode(), 4, b"v", ctypes.c_size_t(1), 10, headers, 0
    )
    assert not library.rd_kafka_flush(producer, 60_000)
    library.rd_kafka_destroy(producer)
