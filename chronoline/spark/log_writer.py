"""Writers of log topics from Spark, exactly once.

Spark runs a task again when it failed, and a micro-batch again when its query died before the checkpoint
said that it was done. Both must add nothing. The log appends once under a key (`chronoline.log.once_writer`);
the choice of the key decides what a repetition means.

**A micro-batch is one append.** Its tasks append nothing: they check and pack their rows, and what is
packed travels to the driver as their commit messages. There it is joined into one object and committed in
one index transaction under the key (query, batch). So readers see a micro-batch wholly or not at all, a
task that failed or ran twice leaves nothing, and a batch that runs again adds nothing, even if its rows are
dealt to other tasks or come in another order. Tasks that append by themselves, each under a key of its own,
would need the same rows in the same tasks each time, and would show halves.

**Large portions do not go through the driver.** A task appends by itself each whole portion of
`PORTION_BYTES`, under the key (query, batch, task, number, digest of its rows), and gives the rest to the
driver. A batch that runs again with the same rows in the same tasks, as it does when it is read from
offsets without a shuffle, adds nothing. If Spark deals the rows otherwise, the digest differs and the
portion is appended again: twice, never lost. To have each batch wholly or not at all, limit what a trigger
reads. The task cannot append the rest by itself: when the source of its rows fails, the rows merely end, and
a part would be taken for the whole.

**A batch job** does the same, with a random id in the place of query and batch, so that a task that runs
again adds nothing.

The batch's number goes with the keys. The log keeps those of a query's last 1,000 batches, and takes
everything before them for appended (`Numbered`); those of a batch job are settled by its commit.

A query's id lies in its checkpoint. Deleting the checkpoint starts another query, and rows that its source
gives again are appended again. Deleting only the last commit repeats the last batch, which adds nothing.
Deleting its offsets too lets Spark plan another batch under the same number. The log has that number already
and would add nothing, so rows that were not in the first would be lost: the number of rows shows it (unless
the log was compacted since), and the query fails, or, with `failOnDataLoss` off, continues with a warning.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.core.message import Header
from chronoline.log import NewEvent, Numbered
from chronoline.log.once_writer import KeyReused, PackedChunk
from chronoline.spark.log_options import FORMAT, WriteSettings
from chronoline.spark.python_worker import BATCH, QUERY, check_no_catalog_table
from chronoline.spark.worker_logs import open_worker_log

PORTION_BYTES = 2 * 1024 * 1024
"""A task sends less than this to the driver, which takes 1 GiB from all tasks together."""

_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}

logger = logging.getLogger(__name__)


def check_written(schema: StructType, *, overwrite: bool) -> None:
    """Refuses unknown columns, and modes other than append."""
    if overwrite:
        raise InvalidInput("a topic can only be appended to; write with mode('append')")
    names = schema.fieldNames()
    if "value" not in names:
        raise InvalidInput(f"there is no column 'value' among {', '.join(names)}")
    for column in schema:
        types = _TYPES.get(column.name)
        if types is None:
            raise InvalidInput(
                f"a column {column.name!r} is not written; select some of: {', '.join(_TYPES)}"
            )
        if column.dataType.simpleString() not in types:
            raise InvalidInput(
                f"column {column.name!r} must be {' or '.join(types)}, not"
                f" {column.dataType.simpleString()}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held(WriterCommitMessage):
    """The packed rows of a task that are not appended yet."""

    query: str
    task: int
    chunks: tuple[PackedChunk, ...]


@dataclass(slots=True)
class Portions:
    """Packs the rows of one task, and appends each full portion."""

    settings: WriteSettings
    job: str
    numbered: Numbered
    task: int
    held: list[PackedChunk] = field(default_factory=list)
    _held_bytes: int = 0
    _rows: int = 0
    _number: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def take(self, batches: Iterator[pa.RecordBatch]) -> None:
        log = open_worker_log(self.settings.log)
        for batch in batches:
            events = list(to_events(batch))
            chunks = log.pack(self.settings.topic, events, spread_from=self.task + self._rows)
            self.held += chunks
            self._held_bytes += sum(len(chunk.data) for chunk in chunks)
            self._rows += len(events)
            _add(self._digest, events)
            if self._held_bytes >= PORTION_BYTES:
                self._append()

    def _append(self) -> None:
        key = f"{self.job}/{self.task}/{self._number}/{self._digest.hexdigest()}"
        open_worker_log(self.settings.log).append_once(
            self.settings.topic, self.held, key=key, numbered=self.numbered
        )
        self._number += 1
        self.held, self._held_bytes, self._digest = [], 0, hashlib.sha256()


class LogWriter(DataSourceArrowWriter):
    """Appends the rows of a batch job."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._job = uuid4().hex
        open_worker_log(settings.log).topic(settings.topic)  # a missing topic fails at once

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Held:
        check_no_catalog_table(FORMAT)
        job = f"spark/{self._job}"
        return _write(self._settings, self._job, job, Numbered(job, 0, closes=False), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _, chunks = _gather(messages)
        log, job = open_worker_log(self._settings.log), f"spark/{self._job}"
        log.append_once(self._settings.topic, chunks, key=job, numbered=Numbered(job, 0, kept=0))


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches, each once."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        open_worker_log(settings.log).topic(settings.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Held:
        task = _task()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise StoreError(
                "Spark does not say which query and batch this is; nothing was appended"
            )
        numbered = Numbered(f"spark/{query}", int(batch), closes=False)
        return _write(self._settings, query, f"spark/{query}/{batch}", numbered, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        settings = self._settings
        query, chunks = _gather(messages)
        key = f"spark/{query}/{batchId}"
        numbered = Numbered(f"spark/{query}", batchId)
        try:
            open_worker_log(settings.log).append_once(
                settings.topic, chunks, key=key, numbered=numbered
            )
        except KeyReused as error:
            problem = (
                f"batch {batchId} is in topic {settings.topic!r} already, but it is not the same: {error}. "
                "Its offsets were removed from the checkpoint, or its query gives other rows each time"
            )
            if settings.fail_on_data_loss:
                raise KeyReused(
                    f"{problem}. Start with a new checkpoint, from offsets of your choice, or set the option "
                    "failOnDataLoss to false to go on"
                ) from error
            logger.warning("%s", problem)


def _write(
    settings: WriteSettings,
    query: str,
    job: str,
    numbered: Numbered,
    batches: Iterator[pa.RecordBatch],
) -> Held:
    portions = Portions(settings, job, numbered, _task().partitionId())
    portions.take(batches)
    # When the source of the rows fails, the rows merely end: only whole portions may be appended.
    return Held(query=query, task=portions.task, chunks=tuple(portions.held))


def _gather(messages: Sequence[WriterCommitMessage | None]) -> tuple[str, list[PackedChunk]]:
    """The held rows of all tasks, in their order."""
    held = [message for message in messages if isinstance(message, Held)]
    held.sort(key=lambda message: message.task)
    query = held[0].query if held else ""
    return query, [chunk for message in held for chunk in message.chunks]


def _add(digest: Any, events: Sequence[NewEvent]) -> None:
    """Hashes the values, not the bytes of the Arrow batch, which differ each time."""
    for column in ([event.key for event in events], [event.value for event in events]):
        digest.update(repr([None if each is None else len(each) for each in column]).encode())
        digest.update(b"".join(each for each in column if each))
    rest = [(event.headers, event.partition, event.ts) for event in events]
    digest.update(repr(rest).encode())


def to_events(batch: pa.RecordBatch) -> Iterator[NewEvent]:
    """The rows of an Arrow batch."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    nothing: list[Any] = [None] * batch.num_rows

    def listed(name: str) -> list[Any]:
        return columns[name].to_pylist() if name in columns else nothing

    def listed_bytes(name: str) -> list[Any]:
        return columns[name].cast(pa.binary()).to_pylist() if name in columns else nothing

    times = nothing
    if "timestamp" in columns:
        stamps = columns["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        times = [None if stamp is None else stamp // 1_000 for stamp in stamps.to_pylist()]
    for value, key, headers, partition, ts in zip(
        listed_bytes("value"),
        listed_bytes("key"),
        listed("headers"),
        listed("partition"),
        times,
        strict=True,
    ):
        yield NewEvent(value=value, key=key, headers=_headers(headers), partition=partition, ts=ts)


def _headers(headers: list[dict[str, Any] | None] | None) -> tuple[Header, ...]:
    if not headers:
        return ()
    if None in headers:
        raise InvalidInput("a header is null; each is a struct of a key and a value")
    return tuple((each["key"], each["value"]) for each in headers if each is not None)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise StoreError("this runs in a task of Spark only")
    return task
