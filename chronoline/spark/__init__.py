"""The pipe and the formats on Spark.

`register(spark)` makes the formats known to a session: `chronoline` (a timeline) and `chronoline_log`. Where
the package is installed beside Spark's Python, Spark finds the first by itself: see `pyspark_chronoline`.
"""

from chronoline.spark.formats import register

__all__ = ["register"]
