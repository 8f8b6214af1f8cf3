"""The streaming query of the intake, in which each task takes in its partitions for a long window.

The source gives one row for each task to each micro-batch, and Spark starts the next one as soon as the last
has ended. A task reads the input by itself and writes records as they come: nothing waits for a trigger, and
Spark has no work for a batch of records. The positions are in the store, so nothing depends on the checkpoint
of the query: each start has a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.intake_work import IntakeWork
from chronoline.pipe.spark.queries import start_tasks
from chronoline.pipe.spark.workers import prepare_worker


@dataclass(frozen=True, slots=True)
class TakeIn:
    """The function that a task of the intake runs."""

    work: IntakeWork

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        for batch in batches:
            for value in batch.column("value").to_pylist():
                self.work.serve(value % self.work.intakes)
        yield from ()


def start_intake(spark: SparkSession, work: IntakeWork, *, checkpoint: str) -> StreamingQuery:
    """Starts the query. The folder of the checkpoint must be new."""
    name = f"{work.pipe}: intake"
    return start_tasks(spark, name, TakeIn(work), tasks=work.intakes, checkpoint=checkpoint)
