"""The preparation of Spark's Python processes for the tasks of a pipe."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from chronoline.pipe.intake_work import IntakeWork
from chronoline.pipe.lane_work import LaneWork
from chronoline.runtime.gc_tuning import search_seldom, switch_often

_WARM_S = 1.0


def prepare_worker() -> None:
    """Tunes garbage collection and thread switching for the firing thread, and sets the format of logs."""
    search_seldom()
    switch_often()
    if not logging.getLogger().handlers:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@dataclass(frozen=True, slots=True)
class _WarmUp:
    work: LaneWork
    intake: IntakeWork
    until_s: float

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        self.work.warm_up()
        self.intake.warm_up()
        # The process stays busy, so that the next task gets another process. The sleep is bounded because
        # the driver's clock may differ.
        time.sleep(min(_WARM_S, max(0.0, self.until_s - time.time())))
        yield from batches


def warm_up(spark: SparkSession, work: LaneWork, intake: IntakeWork, workers: int) -> None:
    """Makes `workers` processes open store, input and output. Spark uses all of them in turn."""
    rows = spark.range(0, workers, 1, workers)
    warm = _WarmUp(work, intake, time.time() + _WARM_S)
    rows.mapInArrow(warm, "id BIGINT").write.format("noop").mode("append").save()
