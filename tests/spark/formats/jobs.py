"""Jobs on both formats; those with a Spark of their own are programs.

`python -m tests.spark.formats.jobs NAME LOG STORE TOPIC …` works on a log with the topics `in` and `out` and
on timelines (store and topic of each), and prints what it saw as one line of JSON. The job over Spark Connect
also takes the address of its server.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from chronoline.log import Log
from chronoline.spark import register
from chronoline.stores.factory import open_store

ROWS = 1_000
BATCH_ROWS = 100
BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch"
WAIT_S = 60
SETTINGS: dict[str, Any] = {
    "spark.log.level": "OFF",
    BATCHES: BATCH_ROWS,
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


def clustered(log: str, *places: str) -> object:
    """Reads and writes with executors of their own."""
    builder = SparkSession.builder.master("local-cluster[1,1,1024]")
    spark = builder.config(map=SETTINGS).getOrCreate()
    register(spark)
    jobs: list[Callable[[], object]] = [
        spark.read.format("chronoline_log").options(log=log, topic="in").load().collect,
        partial(append, events(spark, 10), log, "out"),
    ]
    for store, topic in zip(places[::2], places[1::2], strict=True):
        reader = spark.read.format("chronoline").options(store=store, topic=topic)
        jobs += [reader.load().collect, partial(schedule, messages(spark, 10), store, topic)]
    return {"seen": [attempt(job) for job in jobs], "events": count_events(log, "out")}


def attempt(job: Callable[[], object]) -> str:
    try:
        job()
    except Exception as error:  # whatever Spark makes of it
        return str(error)
    return "done"


def connected(log: str, store: str, topic: str, server: str) -> object:
    """The formats over Spark Connect."""
    spark = SparkSession.builder.remote(server).config(BATCHES, BATCH_ROWS).getOrCreate()
    register(spark)
    append(events(spark, 10), log, "in")
    stream = spark.readStream.format("chronoline_log").options(log=log, topic="in")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("chronoline_log")
        .options(log=log, topic="out", checkpointLocation=str(Path("checkpoint").absolute()))
        .trigger(availableNow=True)
        .start()
    )
    ended = query.awaitTermination(WAIT_S)
    schedule(messages(spark), store, topic)
    timeline = spark.read.format("chronoline").options(store=store, topic=topic)
    return {
        "session": type(spark).__module__,
        "read": spark.read.format("chronoline_log").options(log=log, topic="in").load().count(),
        "ended": ended,
        "streamed": count_events(log, "out"),
        "messages": timeline.load().count(),
        "forecast": timeline.option("view", "forecast").load().count(),
    }


def events(spark: SparkSession, size_bytes: int) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).select(F.rpad("id", size_bytes, "x").alias("value"))


def messages(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Of a kilobyte each, so that a few fill every buffer on their way."""
    return spark.range(0, rows, 1, 1).select(
        F.concat(F.lit("m"), "id").alias("id"),
        F.timestamp_millis(F.lit(0)).alias("due"),
        F.repeat(F.lit("x"), 1_000).alias("value"),
    )


def lost_once(frame: DataFrame, note: Path, count: Callable[[], int]) -> DataFrame:
    """The same rows, of which the task dies once, as soon as something of them is written."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        give_up_s = time.monotonic() + WAIT_S
        for number, batch in enumerate(batches, 1):
            yield batch
            while task.attemptNumber() == 0 and number == ROWS // BATCH_ROWS - 1:
                if written := count():
                    note.write_text(str(written))
                    raise RuntimeError("the task is lost")
                assert time.monotonic() < give_up_s
                time.sleep(0.01)  # what is written is in another process

    return frame.mapInArrow(pass_on, frame.schema)


def append(frame: DataFrame, log: str, topic: str) -> None:
    frame.write.format("chronoline_log").mode("append").options(log=log, topic=topic).save()


def schedule(frame: DataFrame, store: str, topic: str) -> None:
    frame.write.format("chronoline").mode("append").options(store=store, topic=topic).save()


def count_events(url: str, topic: str) -> int:
    with Log(url) as log:
        return sum(head.next_sequence for head in log.heads(topic))


def count_messages(url: str, topic_name: str) -> int:
    with open_store(url) as store:
        topic = store.find_topic(topic_name)
        assert topic is not None
        now_ms = 1 << 40
        counts = store.count(topic.uid, topic.all_buckets, start=0, end=now_ms, now_ms=now_ms)
        return counts.total


JOBS: dict[str, Callable[..., object]] = {
    "clustered": clustered,
    "connected": connected,
}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(JOBS[name](*arguments)))
    sys.stdout.flush()
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
