"""The agent that runs Spark jobs of users: it writes a DataFrame to a timeline, and reads a forecast."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.spark import register
from chronoline.stores.factory import open_store
from chronoline_bench.engines.contract import RawRow, raw_row
from chronoline_bench.engines.postgres import copy_rows
from chronoline_bench.rounds import Measure, at_once, interleave, timed_ms
from chronoline_bench.workload import DAY_MS

TASKS = 2
_COPY_ROWS = 10_000
_BODY = b"a campaign of the spring, to all who asked for it "

Figures = dict[str, list[float]]


def open_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(spark)
    return spark


# Bulk scheduling


class Bulk:
    """Writes a DataFrame, and copies the same number of rows; every time with new ids.

    The first write of the session is a figure of its own: it starts Spark's Python workers and loads code.
    """

    def __init__(
        self, *, store: str, topic: str, raw: str, raw_topic: str, messages: int, rounds: int
    ) -> None:
        self._spark = open_session()
        self._store = store
        self._topic = topic
        self._raw = raw
        with open_store(raw) as opened:
            found = opened.find_topic(raw_topic)
        assert found is not None, raw_topic
        self._raw_topic: Topic = found
        self._messages = messages
        self._rounds = rounds
        self._numbers = count()

    def run(self) -> Figures:
        cold = timed_ms(lambda: self._save(self._frame(self._messages)))
        measures: dict[str, Measure] = {
            "write": self._write,
            "copy_1": partial(self._copy, 1),
            "copy_2": partial(self._copy, 2),
        }
        figures = interleave(self._rounds, measures, warm_ups=0)
        return {**figures, "cold": [self._messages * 1000 / cold]}

    def _write(self) -> float:
        """Writes a cached frame, in one partition for each task."""
        frame = self._frame(self._messages).repartition(TASKS).cache()
        frame.count()
        took_ms = timed_ms(lambda: self._save(frame))
        frame.unpersist()
        return self._messages * 1000 / took_ms

    def _save(self, frame: DataFrame) -> None:
        frame.write.format("chronoline").option("store", self._store).option(
            "topic", self._topic
        ).mode("append").save()

    def _frame(self, messages: int) -> DataFrame:
        return self._spark.range(messages, numPartitions=TASKS).select(
            F.format_string(f"w{next(self._numbers)}-%d", F.col("id")).alias("id"),
            (F.current_timestamp() + F.expr("make_interval(0, 0, 0, 1, 0, 0, id % 86400)")).alias(
                "due"
            ),
            F.format_string("user-%d", F.col("id")).alias("key"),
            F.lit(_BODY).alias("value"),
        )

    def _copy(self, connections: int) -> float:
        """Copies prepared rows over several connections at once."""
        now_ms = SystemClock().now_ms()
        run = next(self._numbers)
        rows = [
            raw_row(
                self._raw_topic,
                NewMessage(
                    id=f"c{run}-{number}",
                    due=now_ms + DAY_MS + number % 86_400 * 1000,
                    key=b"user-%d" % number,
                    body=_BODY,
                ),
                now_ms,
            )
            for number in range(self._messages)
        ]
        pieces = [rows[start::connections] for start in range(connections)]
        took_s = at_once([partial(self._copy_piece, piece) for piece in pieces])
        return self._messages / took_s

    def _copy_piece(self, rows: list[RawRow]) -> None:
        with psycopg.connect(self._raw, autocommit=True) as connection:
            for start in range(0, len(rows), _COPY_ROWS):
                copy_rows(connection, rows[start : start + _COPY_ROWS])


# The forecast


class Forecast:
    """Counts a timeline's messages by the minute, in the store and in Spark."""

    def __init__(self, *, store: str, topic: str, start_ms: int, end_ms: int, rounds: int) -> None:
        self._options = {"store": store, "topic": topic}
        self._start, self._end = _text(start_ms), _text(end_ms)
        self._rounds = rounds
        self._spark = open_session()
        self._found: Figures = {}

    def run(self) -> Figures:
        for frame in (self._counted(buckets="0"), self._grouped(buckets="0")):
            frame.collect()  # a warm-up: starts processes and loads code
        measures: dict[str, Measure] = {
            "counted_ms": lambda: self._time("counted", self._counted()),
            "grouped_ms": lambda: self._time("grouped", self._grouped()),
        }
        return {**interleave(self._rounds, measures, warm_ups=0), **self._found}

    def _counted(self, **options: str) -> DataFrame:
        return (
            self._spark.read.format("chronoline")
            .options(**self._options, **options, view="forecast")
            .options(**{"from": self._start, "to": self._end, "step": "1m"})
            .load()
            .select("start", "waiting")
        )

    def _grouped(self, **options: str) -> DataFrame:
        return (
            self._spark.read.format("chronoline")
            .schema("due TIMESTAMP")
            .options(**self._options, **options, start=self._start, end=self._end)
            .load()
            .groupBy(F.window("due", "1 minute").alias("minute"))
            .count()
        )

    def _time(self, name: str, frame: DataFrame) -> float:
        rows: list[Any] = []
        took_ms = timed_ms(lambda: rows.extend(frame.collect()))
        self._found[name] = [float(sum(row[1] for row in rows))]
        self._found[f"{name}_steps"] = [float(len(rows))]
        return took_ms


def _text(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Agent:
    """The agent's commands; each returns lists of figures by name."""

    async def bulk(self, **arguments: Any) -> Figures:
        return await asyncio.to_thread(lambda: Bulk(**arguments).run())

    async def forecast(self, **arguments: Any) -> Figures:
        return await asyncio.to_thread(lambda: Forecast(**arguments).run())
