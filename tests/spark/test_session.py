"""Whether a session can serve a pipe."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from chronoline.core.errors import InvalidInput
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline.pipe.spark.session import (
    count_slots,
    is_stopped,
    session_problems,
    slots_needed,
)


def settings(**more: Any) -> PipeSettings:
    places = {each: {"topic": each, "log": "nowhere"} for each in ("input", "output")}
    return PipeSettings.load(None, {}, {"name": "p", **places, **more})


def test_slots_are_for_every_lane_and_the_input(spark: SparkSession) -> None:
    assert slots_needed(settings(lanes=3, ranges=2)) == 7
    assert slots_needed(settings(lanes=3, ranges=2, intakes=4)) == 10
    assert count_slots(spark, 1) == 8
    assert session_problems(spark, settings()) == []
    (problem,) = session_problems(spark, settings(ranges=4))
    assert problem.startswith("Spark has 8 slots, and this pipe needs 9: 2 lanes × 4 ranges")
    with pytest.raises(InvalidInput, match="Spark cannot serve this pipe: Spark has 8 slots"):
        Pipe(settings(ranges=4), spark)


class Context:
    """A session that is set up as it should not be."""

    def __init__(self, spark: SparkSession, **conf: str) -> None:
        self._jsc = spark.sparkContext._jsc
        self.master = "local[8]"
        self._conf = {name.replace("_", "."): value for name, value in conf.items()}

    def getConf(self) -> dict[str, str]:
        return self._conf

    @property
    def sparkContext(self) -> Context:
        return self


def test_unsafe_settings_are_reported(spark: SparkSession) -> None:
    wrong: Any = Context(
        spark,
        spark_speculation="true",
        spark_python_worker_reuse="false",
        spark_dynamicAllocation_enabled="true",
    )
    problems = session_problems(wrong, settings())
    assert [problem.split()[0] for problem in problems] == [
        "spark.speculation",
        "spark.python.worker.reuse",
        "spark.dynamicAllocation",
    ]


def test_stopped_session_is_recognised(spark: SparkSession) -> None:
    assert not is_stopped(spark)
    stopped: Any = Context(spark)
    stopped._jsc = None  # as pyspark leaves it
    assert is_stopped(stopped)
    assert session_problems(stopped, settings()) == ["its session was stopped"]
