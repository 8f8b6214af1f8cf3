"""Jobs with a Spark of their own, as programs: `python -m tests.spark.formats.log_jobs NAME URL FOLDER`.

Each prints what it saw as one line of JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from chronoline.log import Log
from chronoline.spark.formats import register

ROWS = 1_000
BATCH_ROWS = 100
WAIT_S = 60
SETTINGS: dict[str, Any] = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": BATCH_ROWS,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


def rows(spark: SparkSession, size_bytes: int) -> DataFrame:
    return spark.range(0, ROWS, 1, 1).select(f.rpad("id", size_bytes, "x").alias("value"))


def count(url: str, topic: str) -> int:
    with Log(url) as log:
        return sum(head.next_sequence for head in log.heads(topic))


def write(frame: DataFrame, url: str, topic: str) -> None:
    writer = frame.write.format("chronoline_log").mode("append")
    writer.option("log", url).option("topic", topic).save()


def retried(url: str, _: str) -> object:
    """A task that is lost when a portion of its rows is appended, and is run again."""
    spark = SparkSession.builder.master("local[1,3]").config(map=SETTINGS).getOrCreate()
    register(spark)

    def lost_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        give_up_s = time.monotonic() + WAIT_S
        for number, batch in enumerate(batches, 1):
            yield batch
            while task.attemptNumber() == 0 and number == ROWS // BATCH_ROWS - 1:
                if count(url, "in"):
                    raise RuntimeError("the task is lost")
                assert time.monotonic() < give_up_s
                time.sleep(0.01)

    frame = rows(spark, 10_000)
    write(frame.mapInArrow(lost_once, frame.schema), url, "in")
    return {"rows": count(url, "in")}


def clustered(url: str, _: str) -> object:
    """Reads and writes with executors of their own."""
    master = SparkSession.builder.master("local-cluster[1,1,1024]")
    spark = master.config(map=SETTINGS).getOrCreate()
    register(spark)
    with Log(url) as log:
        log.append("in", value=b"1")
    reader = spark.read.format("chronoline_log").option("log", url).option("topic", "in")
    jobs: list[Callable[[], object]] = [
        lambda: reader.load().collect(),
        lambda: write(rows(spark, 10), url, "out"),
    ]
    seen = []
    for job in jobs:
        try:
            job()
            seen.append("done")
        except Exception as error:  # whatever Spark makes of it
            seen.append(str(error))
    return {"seen": seen, "rows": count(url, "out")}


def connected(url: str, folder: str) -> object:
    """The format over Spark Connect."""
    spark = SparkSession.builder.remote("local[2]").config(map=SETTINGS).getOrCreate()
    register(spark)
    write(rows(spark, 10), url, "in")
    batch = spark.read.format("chronoline_log").option("log", url).option("topic", "in")
    stream = spark.readStream.format("chronoline_log").option("log", url).option("topic", "in")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("chronoline_log")
        .option("log", url)
        .option("topic", "out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    ended = query.awaitTermination(WAIT_S)
    return {
        "session": type(spark).__module__,
        "read": batch.load().count(),
        "ended": ended,
        "streamed": count(url, "out"),
    }


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    job = {"retried": retried, "clustered": clustered, "connected": connected}[name]
    print(json.dumps(job(*arguments)))
    sys.stdout.flush()
    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
