"""The reader of a Kafka topic, on librdkafka.

It assigns partitions and offsets by itself and is no member of a group. librdkafka fetches in the background,
with one request for all partitions of a server, into a bounded queue. Servers answer a fetch after the linger
time, or at once when much has come: a fetch for each record would cost them more than everything else.

Offsets have gaps where records were compacted or a transaction ended. So the range that was read ends at an
offset that Kafka names: behind the last record, or at the end of the partition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any, cast

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.message import Header
from chronoline.log.follower import MOST_BYTES
from chronoline.pipe import librdkafka
from chronoline.pipe.contract import SourceRecord
from chronoline.pipe.kafka import KafkaUnavailable
from chronoline.pipe.places import Place
from chronoline.pipe.readers import (
    InputReader,
    OutOfRange,
    ReadPositions,
    ReadRange,
    total_bytes,
)
from chronoline.runtime.extras import needs

with needs("Kafka", "kafka"):
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

logger = logging.getLogger(__name__)
logger.addFilter(librdkafka.RepeatFilter())

_AT_ONCE = 500
_QUEUED_KB = 16 * 1024
_FETCH_BYTES = 64 * 1024
"""A server that has this much answers a fetch at once."""
_LONGEST_BACKOFF_MS = 1_000
_read_headers = methodcaller("headers")
"""For a name that is not UTF-8 the library sets an error and returns headers that must not be touched. Only a
call from C, as this one, checks for that; a call in Python may be specialised, and then does not."""
_NO_TIME = 0  # librdkafka's type of a missing timestamp
_GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
_OUT_OF_RANGE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)


class KafkaInputReader(InputReader):
    """Reads one topic of Kafka."""

    def __init__(self, place: Place, *, group: str, linger_ms: int) -> None:
        self._place = place
        self._linger_s = linger_ms / 1000
        self._positions = ReadPositions({})
        settings: dict[str, Any] = {
            "fetch.wait.max.ms": max(1, linger_ms),
            "fetch.min.bytes": _FETCH_BYTES,
            "fetch.queue.backoff.ms": max(
                1, linger_ms
            ),  # by default a full queue rests for a second
            "queued.max.messages.kbytes": _QUEUED_KB,
            "reconnect.backoff.max.ms": _LONGEST_BACKOFF_MS,
            **place.consumer(),
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "error_cb": librdkafka.error_callback(self._hear),
        }
        try:
            self._consumer = Consumer(settings, logger=librdkafka.logger)
        except KafkaException as error:
            raise InvalidInput(f"Kafka's properties do not do: {error.args[0].str()}") from error

    def assign(self, positions: Mapping[int, int]) -> None:
        self._positions = ReadPositions(positions)
        topic = self._place.topic
        self._consumer.assign([TopicPartition(topic, *each) for each in positions.items()])

    def poll(self, *, wait_s: float, limit: int) -> list[ReadRange]:
        found = self._consumer.consume(1, wait_s)
        records = _records(found)
        if found:
            self._gather(found, records, limit)
        return self._positions.ranges(records, self._ends(found))

    def close(self) -> None:
        self._consumer.close()

    def _gather(self, found: list[Message], records: list[SourceRecord], limit: int) -> None:
        """Adds what comes in the linger time, until there is enough."""
        until_s = time.monotonic() + self._linger_s
        size = total_bytes(records)
        while len(found) < limit and size < MOST_BYTES:
            left_s = max(0.0, until_s - time.monotonic())
            # As many as have room if they are as large as those before, since the size shows only afterwards.
            fitting = max(1, (MOST_BYTES - size) * len(found) // max(1, size))
            more = self._consumer.consume(min(_AT_ONCE, limit - len(found), fitting), left_s)
            fresh = _records(more)
            found += more
            records += fresh
            size += total_bytes(fresh)
            if not left_s:
                return

    def _ends(self, found: Sequence[Message]) -> dict[int, int]:
        """The ends of partitions that were reached. An error of a partition is raised, others are logged."""
        ends = {}
        for message in found:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                partition, offset = _place(message)
                ends[partition] = offset
            else:
                self._note(error, message.partition())
        return ends

    def _note(self, error: KafkaError, partition: int | None) -> None:
        servers, topic = self._place.bootstrap, self._place.topic
        if error.code() in _OUT_OF_RANGE:
            raise OutOfRange(f"partition {partition} of {topic!r} at {servers}: {error.str()}")
        if error.code() in _GONE:
            raise TopicNotFound(
                f"the Kafka topic {topic!r} at {servers} is gone, or has no such partition"
            )
        if partition is not None and partition >= 0:
            # Records may be missing: with the next one the position would move past them.
            raise KafkaUnavailable(
                f"Kafka at {servers} does not let partition {partition} of {topic!r} be read: {error.str()}"
            )
        logger.error("Kafka at %s does not let %r be read: %s", servers, topic, error.str())

    def _hear(self, error: KafkaError) -> None:
        if error.code() in _REFUSED:
            servers = self._place.bootstrap
            logger.error("Kafka at %s refuses the login: %s", servers, error.str())


def _place(message: Message) -> tuple[int, int]:
    """The partition and the offset, which records and ends of partitions have."""
    return cast(int, message.partition()), cast(int, message.offset())


def _records(found: Sequence[Message]) -> list[SourceRecord]:
    return [_record(each) for each in found if each.error() is None]


def _record(message: Message) -> SourceRecord:
    headers, problem = _headers(message)
    kind, time_ms = message.timestamp()
    return SourceRecord(
        *_place(message),
        message.key(),
        message.value(),
        headers,
        -1 if kind == _NO_TIME else time_ms,
        problem,
    )


def _headers(message: Message) -> tuple[Sequence[Header], str]:
    """The headers, or why they cannot be read."""
    try:
        return _read_headers(message) or (), ""
    except (SystemError, UnicodeDecodeError):
        return (), "the name of a header is not valid UTF-8; the headers are not kept"
