"""The format `chronoline_log`: topics of the log, read and written, as a batch and as a stream.

The columns are those of Spark's Kafka source, so that a job can take its input from either; the offset is the
sequence. See `log_reader` and `log_writer` for how each works.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from chronoline.core.errors import InvalidInput
from chronoline.spark.log_options import FORMAT, ReadSettings, WriteSettings
from chronoline.spark.log_reader import SCHEMA, LogReader, LogStreamReader, check_columns
from chronoline.spark.log_writer import LogStreamWriter, LogWriter, check_written
from chronoline.spark.python_worker import RefusedStream


class LogSource(DataSource):
    """Topics of the log."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> LogReader:
        check_columns(schema)
        return LogReader(ReadSettings.of_batch(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_columns(schema)
            return LogStreamReader(ReadSettings.of_stream(self.options), schema)
        except InvalidInput as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        check_written(schema, overwrite=overwrite)
        return LogWriter(WriteSettings.of_batch(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:
        check_written(schema, overwrite=overwrite)
        return LogStreamWriter(WriteSettings.of_stream(self.options))
