"""The limits of Spark's Python workers, and how the formats live with them.

Spark tells a Python data source neither that a task needs no more rows, nor that a write makes a table of
its catalog; and an error while a stream is opened ends in an error of PySpark's own.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Never

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from chronoline.core.errors import InvalidInput

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""The properties of a task by which it knows the query and the micro-batch that it belongs to."""


def ended_quietly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a task; if Spark closes the connection before the last one, the worker ends silently.

    Spark does so when it has enough rows, as with `limit`, and PySpark's worker would print the stack of a
    broken pipe. While a batch is on its way the signal of a broken pipe ends the process, as it does for
    `cat file | head`. While the store or the log is read it is off, as always in Python.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not hasattr(signal, "SIGPIPE"):
        yield from batches
        return
    before = signal.getsignal(signal.SIGPIPE)
    for batch in batches:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        yield batch  # not a `finally`: a reader that is closed here belongs to a worker that ends
        signal.signal(signal.SIGPIPE, before)


def check_no_catalog_table(format_name: str) -> None:
    """Raises `InvalidInput` in a task that writes into a table which Spark makes at the same time.

    Such a table keeps none of the options, so that it cannot be read. Spark's catalog makes it in an
    execution around that of the write, and removes it when the write fails. The batches of a stream have an
    execution around them, too.
    """
    task = TaskContext.get()
    if task is None or task.getLocalProperty(QUERY):
        return
    inner, outer = (
        task.getLocalProperty(f"spark.sql.execution.{name}") for name in ("id", "root.id")
    )
    if inner != outer:
        raise InvalidInput(
            f"format {format_name} cannot be a table of Spark's catalog, which would not keep its options:"
            f" write with .format({format_name!r}).options(…).mode('append').save(), not with saveAsTable"
            " or writeTo(…).create()"
        )


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be opened: its query fails with the reason, at its first step."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> Never:
        raise self._reason

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Never:
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._reason
