"""The enqueueing query: from the input topic to the timeline.

A streaming query reads the partitions that the pipe has claimed, from their positions in the store, and takes
in each Arrow batch by one transaction that also moves the positions. So nothing depends on the checkpoint of
the query: each start has a new one. The store skips records that are read again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.pipe.intake import PipeIntake
from chronoline.pipe.places import Place
from chronoline.pipe.properties import spark_options
from chronoline.pipe.spark.expressions import Contract, read_records
from chronoline.pipe.spark.lane_query import OBSERVED
from chronoline.pipe.spark.workers import prepare_worker
from chronoline.pipe.worker_cache import warm_store
from chronoline.runtime.clock import SystemClock
from chronoline.stores.inputs import InputClaim, Tally

_CONSUMER = {"fetch.max.wait.ms": "20"}
"""One task reads the partitions one after the other, and sometimes each waits this long; by default 500."""
_COUNTS = tuple(each.name for each in fields(Tally))
_DDL = ", ".join(f"{name} BIGINT" for name in _COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeWork:
    """The parameters of the enqueueing query's tasks."""

    pipe: str
    store: str
    topic_uid: int
    input: Place
    claims: Mapping[int, InputClaim]
    contract: Contract
    rows_per_trigger: int
    trigger_interval_ms: int
    early_cancel_ms: int = 0


@dataclass(frozen=True, slots=True)
class _TakeIn:
    work: IntakeWork

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        taker = PipeIntake(
            warm_store(self.work.store),
            self.work.topic_uid,
            self.work.claims,
            producer_group=self.work.pipe,
            source_topic=self.work.input.topic,
            early_cancel_ms=self.work.early_cancel_ms,
            now_ms=SystemClock().now_ms,
        )
        for batch in batches:
            counts = [[count] for count in astuple(taker.take_in(batch))]
            yield pa.RecordBatch.from_arrays(
                [pa.array(count, pa.int64()) for count in counts], names=list(_COUNTS)
            )


def start_enqueue(spark: SparkSession, work: IntakeWork, *, checkpoint: str) -> StreamingQuery:
    """Starts the query. It uses one core: lanes need the others."""
    records = read_records(_source(spark, work), work.contract)
    taken = records.coalesce(1).mapInArrow(_TakeIn(work), _DDL)
    sums = [F.sum(name).alias(name) for name in _COUNTS]
    return (
        taken.observe(OBSERVED, *sums)
        .writeStream.queryName(f"{work.pipe}: enqueue")
        .format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{work.trigger_interval_ms} milliseconds")
        .start()
    )


def _source(spark: SparkSession, work: IntakeWork) -> DataFrame:
    positions = {str(each.partition): each.position for each in work.claims.values()}
    reader = spark.readStream.option("maxOffsetsPerTrigger", work.rows_per_trigger)
    if work.input.kind == "log":
        return (
            reader.format("chronoline_log")
            .option("log", work.input.log)
            .option("topic", work.input.topic)
            .option("partitions", ",".join(positions))
            .option("startingOffsets", json.dumps(positions))
            .load()
        )
    topic = work.input.topic
    return (
        reader.format("kafka")
        .options(**spark_options(_CONSUMER | work.input.java()))
        .option("assign", json.dumps({topic: sorted(work.claims)}))
        .option("startingOffsets", json.dumps({topic: positions}))
        .option("includeHeaders", "true")
        .load()
    )
