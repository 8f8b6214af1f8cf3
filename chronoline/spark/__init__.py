"""Spark formats for users' own jobs. Options are checked on the driver; connections open inside the tasks.

State: a source, a reader or a writer is a value that is pickled and travels; it holds settings, never a
connection. Spark makes them in a Python process of the driver that has no session, so nothing here needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronoline.core.errors import MissingExtra
from chronoline.runtime.extras import needs


def version_problem(version: str) -> str | None:
    """Why the formats do not run on this version of Spark."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) >= (4, 2):
        return None
    return f"Spark {version} is too old, 4.2 is needed: pip install 'chronoline[spark]'"


with needs("Spark", "spark"):
    import pyspark

if problem := version_problem(pyspark.__version__):
    raise MissingExtra(problem)

with needs("Spark", "spark"):
    from pyspark.errors import PySparkException

    from chronoline.spark.log import LogSource
    from chronoline.spark.timeline import TimelineSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_PARALLELISM = "spark.sql.leafNodeDefaultParallelism"


def register(spark: SparkSession) -> None:
    """Registers the formats with this session, also over Spark Connect. It may be called again.

    It turns on the pushing of conditions, unless that is set, and lets reads of timelines have a task for
    each core of the cluster: formats that Spark finds by name do not know the session.
    """
    if spark.conf.get(_PUSHDOWN, None) is None:
        spark.conf.set(_PUSHDOWN, "true")
    cores = _cores_of(spark)
    known = {} if cores is None else {"cores": cores}
    spark.dataSource.register(type(TimelineSource.__name__, (TimelineSource,), known))
    spark.dataSource.register(LogSource)


def _cores_of(spark: SparkSession) -> int | None:
    """The parallelism of the session's reads; None over Spark Connect, which does not tell it."""
    given = spark.conf.get(_PARALLELISM, None)
    if given is not None:
        return int(given)
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:
        return None
