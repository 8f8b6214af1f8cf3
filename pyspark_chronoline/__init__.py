"""How Spark finds the format `chronoline` by itself: it looks for modules that are named `pyspark_…`."""

from chronoline.spark.timeline import TimelineSource as DefaultSource

__all__ = ["DefaultSource"]
