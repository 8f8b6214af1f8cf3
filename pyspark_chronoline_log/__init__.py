"""How Spark finds the format `chronoline_log` by itself: a module can bring along one format only."""

from chronoline.spark.log import LogSource as DefaultSource

__all__ = ["DefaultSource"]
