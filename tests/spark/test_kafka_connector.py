"""Spark's own Kafka connector, in the versions that the lock names, with the Spark that is installed."""

import json
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from chronoline_bench.servers.kafka import KafkaServer
from tests.conftest import consume

EVERY_BYTE = bytes(range(256))


def test_bytes_and_headers_round_trip(
    spark: SparkSession, kafka_server: KafkaServer, tmp_path: Path
) -> None:
    kafka_server.create_topic("in", partitions=3)
    kafka_server.create_topic("out", partitions=3)
    headers: list[tuple[str, str | bytes | None]] = [
        ("b", b"1"),
        ("a", EVERY_BYTE),
        ("b", None),
        ("", b""),
        ("ä", b"2"),
        ("b", b"1"),
    ]
    producer = Producer({"bootstrap.servers": kafka_server.bootstrap})
    producer.produce("in", b"before the start", partition=0)
    producer.produce("in", EVERY_BYTE, EVERY_BYTE, partition=0, headers=headers)
    producer.produce("in", b"", b"", partition=0)
    producer.produce("in", b"1", b"k", partition=1, headers=[("one", b"1")])
    producer.produce("in", None, None, partition=1)
    producer.produce("in", b"not assigned", partition=2)
    assert producer.flush(60) == 0

    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka_server.bootstrap)
        .option("assign", json.dumps({"in": [0, 1]}))
        .option("startingOffsets", json.dumps({"in": {"0": 1, "1": 0}}))
        .option("includeHeaders", "true")
        .load()
    )
    query = (
        messages.select("partition", "key", "value", "headers")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka_server.bootstrap)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    for partition, offset in ((0, 1), (1, 0)):
        expected = consume(kafka_server, "in", partition)[offset:]
        assert len(expected) == 2
        found = consume(kafka_server, "out", partition)
        assert [m.key() for m in found] == [m.key() for m in expected]
        assert [m.value() for m in found] == [m.value() for m in expected]
        assert [m.headers() for m in found] == [m.headers() for m in expected]
    assert consume(kafka_server, "out", 2) == []
