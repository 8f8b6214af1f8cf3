"""Spark formats for users' own jobs. Options are checked on the driver; connections open inside the tasks.

State: a source, a reader or a writer is a value that is pickled and travels; it holds settings, never a
connection. Spark makes them in a Python process of the driver that has no session, so nothing here needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronoline.runtime.extras import needs

with needs("Spark", "spark"):
    from chronoline.spark.log import LogSource
    from chronoline.spark.timeline import TimelineSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = (TimelineSource, LogSource)


def register(spark: SparkSession) -> None:
    """Registers the formats with this session, also over Spark Connect. It may be called again."""
    for source in SOURCES:
        spark.dataSource.register(source)
