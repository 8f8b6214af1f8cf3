"""The streaming query of a lane, in which each micro-batch serves a window, or more.

The source gives one row for each piece of the pipe's buckets to each micro-batch, and Spark starts the
next one as soon as the last has ended. A task serves from the current window of its lane, or waits for the
next. So precision does not depend on the start of a micro-batch, if that is before its window; lanes
alternate to ensure it. A micro-batch ends with its slowest task: while one hangs, the tasks of the other
lanes go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.spark.queries import start_tasks
from chronoline.pipe.spark.workers import prepare_worker


@dataclass(frozen=True, slots=True)
class Fire:
    """The function that a task of a lane runs."""

    work: LaneWork

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        for batch in batches:
            for value in batch.column("value").to_pylist():
                self.work.serve(value % self.work.ranges, attempt)
        yield from ()


def start_lane(spark: SparkSession, work: LaneWork, *, checkpoint: str) -> StreamingQuery:
    """Starts the query of one lane. The folder of the checkpoint must be new."""
    name = f"{work.pipe}: lane {work.lane}"
    return start_tasks(spark, name, Fire(work), tasks=work.ranges, checkpoint=checkpoint)
