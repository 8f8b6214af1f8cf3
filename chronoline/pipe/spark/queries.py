"""Streaming queries whose micro-batches run tasks, and queries that are restarted when they fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.service import Service

logger = logging.getLogger(__name__)

SPARK_IS_GONE = (Py4JNetworkError, ConnectionError)
"""The errors of a call to a dead JVM: the first call raises the former, later ones the latter."""

_BACKOFF = Backoff(0.5, 30.0)
_HEALTHY_S = 60.0
"""After a query ran this long, the waits begin with the shortest again."""


Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function of a task. Its rows have a number `value`, modulo the number of tasks that of the task."""


def start_tasks(
    spark: SparkSession, name: str, run: Run, *, tasks: int, checkpoint: str
) -> StreamingQuery:
    """Starts a query that runs this many tasks in each micro-batch, one micro-batch after the other.

    The query has no rows: all its effects are in `run`, before a single sink. A task attempt runs once, and a
    query has only one action. The folder of the checkpoint must be new.
    """
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", tasks)
        .option("numPartitions", tasks)
        .load()
    )
    return (
        numbers.select("value")
        .mapInArrow(run, "value BIGINT")
        .writeStream.queryName(name)
        .option("checkpointLocation", checkpoint)
        .format("noop")
        .start()
    )


class SupervisedQuery(Service):
    """One query and its restarts. `start` creates a new one each time."""

    def __init__(self, name: str, start: Callable[[], StreamingQuery]) -> None:
        self._name = name
        self._start = start
        self._query: StreamingQuery | None = None
        self._started_s = 0.0
        self._moved_to = -1  # the last micro-batch that is known to have ended, and the time
        self._moved_s = time.monotonic()
        self._waits = Waits(_BACKOFF)
        self._start_at_s = 0.0
        self.restarts = 0

    def start(self) -> None:
        if self._query is not None:
            return
        self._query = self._start()
        self._moved_to = -1
        self._started_s = self._moved_s = time.monotonic()

    def still_s(self) -> float:
        """Asks Spark, and returns the time since a micro-batch is known to have ended, or since the start."""
        last = self._last()
        if last is not None and last.batchId != self._moved_to:
            self._moved_to, self._moved_s = last.batchId, time.monotonic()
        return time.monotonic() - self._moved_s

    def hangs(self, beaten_s: float, *, patience_s: float) -> bool:
        """Whether neither a task of it beat, last at `beaten_s`, nor a micro-batch ended, for a time.

        A task that beats may serve for any time. Spark is asked last, since the call is slow.
        """
        if self._query is None or time.monotonic() - beaten_s <= patience_s:
            return False
        return self.still_s() > patience_s

    @property
    def active(self) -> bool:
        return self._query is not None and self._query.isActive

    @property
    def done(self) -> int:
        """The last micro-batch that ended; -1 before the first."""
        progress = self._last()
        return -1 if progress is None else progress.batchId

    def keep(self) -> None:
        """Restarts the query if it has failed, after a growing wait."""
        if self._query is not None and not self._query.isActive:
            logger.error("%s failed and is restarted: %s", self._name, self._why())
            self._query = None
            self._rest()
        if self._query is None and time.monotonic() >= self._start_at_s:
            try:
                self.start()
            except BaseException:
                self._start_at_s = time.monotonic() + self._waits.next()
                raise

    def restart(self, why: str) -> None:
        """Ends the query, and starts it again after a wait."""
        logger.error("%s is restarted: %s", self._name, why)
        self.stop()
        self._rest()

    def stop(self) -> None:
        """Ends the query at once: a running task is killed without any clean-up."""
        query, self._query = self._query, None
        if query is not None:
            with suppress(Py4JError, *SPARK_IS_GONE):  # it ended with Spark
                query.stop()

    def _rest(self) -> None:
        self.restarts += 1
        if time.monotonic() - self._started_s > _HEALTHY_S:
            self._waits.reset()
        self._start_at_s = time.monotonic() + self._waits.next()

    def _last(self) -> StreamingQueryProgress | None:
        query = self._query  # another thread may remove it
        return query.lastProgress if query else None

    def _why(self) -> str:
        error = self._query.exception() if self._query else None
        return "unknown" if error is None else str(error).split("\n\n", 1)[0].strip()
