"""Jobs with a Spark of their own: `python -m tests.spark.formats.timeline_jobs NAME URL TOPIC …`.

Each prints what it saw as one line of JSON.
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

from chronoline.spark import register
from chronoline.stores.opening import open_store

ROWS = 1_000
WAIT_S = 60
SETTINGS: dict[str, Any] = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


def messages(spark: SparkSession, rows: int = ROWS) -> DataFrame:
    """Of a kilobyte each, so that a few fill every buffer on their way."""
    return spark.range(0, rows, 1, 1).select(
        F.concat(F.lit("m"), "id").alias("id"),
        F.timestamp_millis(F.lit(0)).alias("due"),
        F.repeat(F.lit("x"), 1_000).alias("value"),
    )


def count(url: str, topic_name: str) -> int:
    with open_store(url) as store:
        topic = store.find_topic(topic_name)
        assert topic is not None
        now_ms = 1 << 40
        counts = store.count(topic.uid, topic.all_buckets, start=0, end=now_ms, now_ms=now_ms)
        return counts.total


def retried(url: str, topic: str) -> object:
    """A task that is lost when a part of its rows is on the timeline, and is run again."""
    settings = SETTINGS | {"spark.sql.execution.arrow.maxRecordsPerBatch": 100}
    spark = SparkSession.builder.master("local[1,3]").config(map=settings).getOrCreate()

    lost = Path("lost").absolute()

    def lost_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        give_up_s = time.monotonic() + WAIT_S
        for number, batch in enumerate(batches):
            yield batch
            while task.attemptNumber() == 0 and number == ROWS // 100 - 2:
                written = count(url, topic)
                if written:
                    lost.write_text(str(written))
                    raise RuntimeError("the task is lost")
                assert time.monotonic() < give_up_s
                time.sleep(0.01)

    frame = messages(spark)
    write(frame.mapInArrow(lost_once, frame.schema), url, topic)
    return {"lost": int(lost.read_text()) > 0, "rows": count(url, topic)}


def clustered(*places: str) -> object:
    """Reads and writes several timelines (URL, topic) with executors of their own."""
    spark = (
        SparkSession.builder.master("local-cluster[1,1,1024]").config(map=SETTINGS).getOrCreate()
    )
    seen = []
    for url, topic in zip(places[::2], places[1::2], strict=True):
        reader = spark.read.format("chronoline").option("store", url).option("topic", topic)
        jobs = (reader.load().collect, partial(write, messages(spark, 10), url, topic))
        seen += [attempt(job) for job in jobs]
    return seen


def attempt(job: Callable[[], object]) -> str:
    try:
        job()
    except Exception as error:  # whatever Spark makes of it
        return str(error)
    return "done"


def connected(url: str, topic: str) -> object:
    """The formats over Spark Connect."""
    spark = SparkSession.builder.remote("local[2]").config(map=SETTINGS).getOrCreate()
    register(spark)
    write(messages(spark), url, topic)
    reader = spark.read.format("chronoline").option("store", url).option("topic", topic)
    return {
        "session": type(spark).__module__,
        "rows": reader.load().count(),
        "forecast": reader.option("view", "forecast").load().count(),
    }


def write(frame: DataFrame, url: str, topic: str) -> None:
    writer = frame.write.format("chronoline").option("store", url).option("topic", topic)
    writer.mode("append").save()


JOBS: dict[str, Callable[..., object]] = {
    "retried": retried,
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
