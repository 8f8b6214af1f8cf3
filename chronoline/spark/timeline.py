"""The format `chronoline`: a timeline as a table.

Reading: the messages with their status (split by bucket ranges), the forecast (counted in the store), and
the dead letters. Writing: messages that are to be scheduled, as a batch or as a stream.
"""

from __future__ import annotations

import os
from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from chronoline.core.errors import InvalidInput
from chronoline.runtime.clock import SystemClock
from chronoline.spark.options import Options
from chronoline.spark.python_worker import RefusedStream
from chronoline.spark.timeline_reader import find_schema, make_reader
from chronoline.spark.timeline_schema import FORMAT
from chronoline.spark.timeline_writer import BatchWriter, StreamWriter, plan_writing

_NOT_A_STREAM = InvalidInput(
    "a timeline is not read as a stream: a pipe publishes its messages when they are due"
    " (`chronoline pipe run`), to a topic that Spark can read as a stream; consumers of a broker"
    " lease them (`chronoline.Worker`)"
)


class TimelineSource(DataSource):
    """`spark.read.format("chronoline")`, `df.write.format("chronoline")` and `writeStream`."""

    cores: ClassVar[int] = os.cpu_count() or 1
    """The cores of the cluster. A source that is found by name only knows those of the driver."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return find_schema(self._options())

    def reader(self, schema: StructType) -> DataSourceReader:
        return make_reader(self._options(), schema, SystemClock().now_ms(), self.cores)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(plan_writing(self._options(), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(plan_writing(self._options(), schema, overwrite, streaming=True))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RefusedStream(_NOT_A_STREAM)

    def _options(self) -> Options:
        return Options(FORMAT, self.options)
