"""The streaming query of a lane, in which each micro-batch serves a window.

The source gives one row for each piece of the pipe's buckets to each micro-batch, and Spark starts the
next one as soon as the last has ended. A task serves the current window of its lane, or waits for the next.
So precision does not depend on the start of a micro-batch, if that is before its window; lanes alternate to
ensure it.

The rows of the query are receipts. The side effects happen in `mapInArrow` before a single sink: a
task attempt runs them once, and a query has only one action.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.core.lateness import LATENESS_BOUNDS_MS
from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.receipts import DDL
from chronoline.pipe.spark.workers import prepare_worker
from chronoline.pipe.windows import FIRED, SERVED, SKIPPED

OBSERVED = "chronoline"
"""The name of the observed metrics of each micro-batch."""


@dataclass(frozen=True, slots=True)
class Fire:
    """The function that a task of a lane runs."""

    work: LaneWork

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        context = TaskContext.get()
        attempt = str(context.taskAttemptId()) if context else "0"
        for batch in batches:
            for value in batch.column("value").to_pylist():
                yield self.work.serve(value % self.work.ranges, attempt)


def start_lane(
    spark: SparkSession, work: LaneWork, *, checkpoint: str, receipts: str | None
) -> StreamingQuery:
    """Starts the query of one lane. Both folders must be new: the numbers of micro-batches begin again, and
    a sink skips numbers that it has seen."""
    units = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", work.ranges)
        .option("numPartitions", work.ranges)
        .load()
    )
    served = units.select("value").mapInArrow(Fire(work), DDL)
    writer = (
        observed(served)
        .filter(F.col("outcome") == FIRED)
        .writeStream.queryName(f"{work.pipe}: lane {work.lane}")
        .option("checkpointLocation", checkpoint)
    )
    if receipts is None:
        return writer.format("noop").start()
    return writer.format("parquet").option("path", receipts).start()


def observed(receipts: DataFrame) -> DataFrame:
    """Observes counts of the receipts: messages by lateness, and tasks that served and that skipped.

    It also observes the first and the last window: each task of a micro-batch reads the clock by itself.
    """
    late = F.col("lateness_ms")
    first = (F.col("outcome") == FIRED) & ~F.col("redelivered")
    bounds = (float("-inf"), *map(float, LATENESS_BOUNDS_MS), float("inf"))
    histogram = [
        F.count_if(first & (late > low) & (late <= high)).alias(f"late_{place}")
        for place, (low, high) in enumerate(pairwise(bounds))
    ]
    return receipts.observe(
        OBSERVED,
        F.count_if(F.col("outcome") == FIRED).alias(FIRED),
        F.count_if(F.col("outcome") == SERVED).alias(SERVED),
        F.count_if(F.col("outcome") == SKIPPED).alias(SKIPPED),
        F.count_if(F.col("redelivered")).alias("redelivered"),
        F.min("window").alias("first_window"),
        F.max("window").alias("window"),
        *histogram,
        F.sum(F.when(first, F.greatest(late, F.lit(0)))).alias("late_sum_ms"),
    )
