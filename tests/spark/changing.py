"""Settings of the session that all tests share, changed for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name) or ""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
