"""Readers of log topics in Spark.

An offset is, for each partition, the next sequence to read, and Spark keeps it in its checkpoint: the log
notes nothing. The driver looks at the ends of the partitions and deals ranges of sequences to tasks; a task
opens the log, reads its ranges and yields Arrow batches. Since sequences have no gaps, a range that was
planned is either read wholly or was deleted by retention. Then the read fails, or, with `failOnDataLoss` off,
skips the range with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.log import Event
from chronoline.log.contract import Head
from chronoline.spark.log_options import LATEST, ReadSettings, resolve
from chronoline.spark.python_worker import ended_quietly
from chronoline.spark.worker_logs import open_worker_log

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
SCHEMA = ", ".join(f"{name} {type_name}" for name, type_name in _TYPES.items())
_BATCH_EVENTS = 10_000

Position = dict[str, int]
"""An offset as Spark keeps it: the next sequence to read, by partition."""

logger = logging.getLogger(__name__)


class DataLoss(ChronolineError):
    """Events were deleted before they were read."""


@dataclass(frozen=True, slots=True)
class Range(InputPartition):
    """A half-open range of sequences of one partition."""

    partition: int
    start: int
    end: int


def _headers(event: Event) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in event.headers]


# Column by column, without a call for each event.
_COLUMNS: dict[str, Callable[[Sequence[Event]], list[Any]]] = {
    "key": lambda events: [event.key for event in events],
    "value": lambda events: [event.value for event in events],
    "topic": lambda events: [event.topic for event in events],
    "partition": lambda events: [event.partition for event in events],
    "offset": lambda events: [event.sequence for event in events],
    "timestamp": lambda events: [event.ts * 1_000 for event in events],
    "headers": lambda events: [_headers(event) if event.headers else [] for event in events],
}


def check_columns(schema: StructType) -> None:
    """Refuses a schema with unknown columns. Any subset in any order is fine."""
    for field in schema:
        if _TYPES.get(field.name) != field.dataType.simpleString():
            raise InvalidInput(
                f"there is no column {field.name!r} of type {field.dataType.simpleString()}; a schema"
                f" takes some of: {SCHEMA}"
            )


class _Ranges:
    """The base of both readers: the options, and how a range is read."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        self._settings = settings
        self._schema = schema

    def _heads(self) -> dict[int, Head]:
        settings = self._settings
        return settings.chosen(open_worker_log(settings.log).heads(settings.topic))

    def _deal(self, start: Mapping[int, int], end: Mapping[int, int]) -> Sequence[Range]:
        """One task for each partition, and several for a large one."""
        most = self._settings.most_per_task
        return [
            Range(partition, first, min(first + most, end[partition]))
            for partition in sorted(end)
            for first in range(start[partition], end[partition], most)
        ]

    def _lose(self, partition: int, start: int, end: int, why: str) -> None:
        """Fails, or warns, because some events are lost."""
        lost = (
            f"events {start} to {end - 1} of topic {self._settings.topic!r}, partition {partition}, "
            f"{why}"
        )
        if self._settings.fail_on_data_loss:
            raise DataLoss(
                f"{lost}; to go on without them set the option failOnDataLoss to false, or begin elsewhere "
                "with a new checkpoint"
            )
        logger.warning("%s; they are skipped", lost)

    def _from(self, start: Mapping[int, int], heads: Mapping[int, Head]) -> dict[int, int]:
        """The first sequences that can be read."""
        begin = {}
        for partition, head in heads.items():
            wanted = start[partition]
            if wanted < head.first_sequence:
                why = "were deleted by retention before they were read"
                self._lose(partition, wanted, head.first_sequence, why)
            elif wanted > head.next_sequence:
                why = "are gone: the topic is not the one that was read before"
                self._lose(partition, head.next_sequence, wanted, why)
            begin[partition] = min(max(wanted, head.first_sequence), head.next_sequence)
        return begin

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark takes an empty plan for one empty partition.
        return ended_quietly(self._read(partition)) if isinstance(partition, Range) else iter(())

    def _read(self, part: Range) -> Iterator[pa.RecordBatch]:
        log = open_worker_log(self._settings.log)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        expected = part.start
        why = "were deleted by retention while they were read"
        topic = self._settings.topic
        for events in log.read_range(
            topic, part.partition, part.start, part.end, batch=_BATCH_EVENTS
        ):
            if not events:
                continue
            if events[0].sequence > expected:
                self._lose(part.partition, expected, events[0].sequence, why)
            expected = events[-1].sequence + 1
            yield _to_arrow(events, schema)
        if expected < part.end:
            self._lose(part.partition, expected, part.end, why)


def _to_arrow(events: Sequence[Event], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(_COLUMNS[field.name](events), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class LogReader(_Ranges, DataSourceReader):
    """Reads a topic as it is now."""

    def partitions(self) -> Sequence[Range]:
        heads, settings = self._heads(), self._settings
        start = self._from(resolve(settings.start, heads, "startingOffsets"), heads)
        end = resolve(settings.end, heads, "endingOffsets")
        for partition, sequence in end.items():
            if sequence > heads[partition].next_sequence:
                raise InvalidInput(
                    f"partition {partition} of topic {settings.topic!r} ends at "
                    f"{heads[partition].next_sequence}, before the endingOffsets {sequence}"
                )
        return self._deal(start, end)


class LogStreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic as it grows. It lives on the driver with its query."""

    def __init__(self, settings: ReadSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._target: dict[int, int] | None = None
        """The end of a query that reads only the events that were there at its start."""

    def initialOffset(self) -> Position:
        heads = self._heads()
        start = resolve(self._settings.start, heads, "startingOffsets")
        return _to_position(self._from(start, heads))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._settings.most_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        heads = self._heads()
        self._target = resolve(LATEST, heads, "endingOffsets")

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        heads = self._heads()
        begin = self._from(_from_position(start, heads), heads)
        end = resolve(LATEST, heads, "endingOffsets")
        if self._target is not None:
            end = {each: min(end[each], self._target[each]) for each in end}
        if isinstance(limit, ReadMaxRows):
            end = share(begin, end, limit.max_rows)
        return _to_position(end)

    def reportLatestOffset(self) -> Position:
        return _to_position(resolve(LATEST, self._heads(), "endingOffsets"))

    def partitions(self, start: Position, end: Position) -> Sequence[Range]:
        heads = self._heads()
        begin = self._from(_from_position(start, heads), heads)
        return self._deal(begin, _from_position(end, heads))


def share(start: Mapping[int, int], end: Mapping[int, int], most: int) -> dict[int, int]:
    """An earlier end with at most `most` events before it, each partition in proportion."""
    lags = {partition: max(0, end[partition] - start[partition]) for partition in sorted(end)}
    total = sum(lags.values())
    if total <= most:
        return dict(end)
    shares = {partition: lag * most // total for partition, lag in lags.items()}
    left = most - sum(shares.values())
    for partition in sorted(lags, key=lambda each: shares[each] - lags[each])[:left]:
        shares[partition] += 1  # the rest, less than one for each, goes to the fullest
    return {partition: start[partition] + shares[partition] for partition in lags}


def _to_position(sequences: Mapping[int, int]) -> Position:
    return {str(partition): sequences[partition] for partition in sorted(sequences)}


def _from_position(position: Position, heads: Mapping[int, Head]) -> dict[int, int]:
    """Offsets by partition number. A new partition begins with its first event."""
    return {
        partition: position.get(str(partition), head.first_sequence)
        for partition, head in heads.items()
    }
