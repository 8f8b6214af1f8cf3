"""Whether a session can serve a pipe."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.pipe import Pipe
from chronoline.pipe.spark.session import (
    PipeSession,
    build_session,
    choose_master,
    connect_problem,
    count_slots,
    is_stopped,
    master_of_arguments,
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


# The master


def test_session_of_the_process_is_used_and_not_owned(spark: SparkSession) -> None:
    assert build_session(settings()) == PipeSession(spark, is_own=False)


def test_named_master_is_used() -> None:
    assert choose_master(settings(), None, None) == "local[4,4]"
    assert choose_master(settings(), None, "local[6]") == "local[6]"
    assert choose_master(settings(), "spark://h:1", "local[6]") == "spark://h:1"
    own = settings(spark={"master": "local[5]"})
    assert choose_master(own, None, "local[6]") == "local[5]"
    assert choose_master(own, "local[5]", None) == "local[5]"
    with pytest.raises(
        InvalidInput, match=r"'local\[5\]', and spark-submit names 'yarn': leave one"
    ):
        choose_master(own, "yarn", None)


@pytest.mark.parametrize(
    ("arguments", "master"),
    [
        ("", None),
        ("pyspark-shell", None),
        ("--master yarn pyspark-shell", "yarn"),
        ("--master=yarn --conf spark.master=local pyspark-shell", "yarn"),
        ("--conf spark.master=local[2] -c spark.ui.enabled=false pyspark-shell", "local[2]"),
        ("-c spark.master=k8s://h pyspark-shell", "k8s://h"),
    ],
)
def test_master_in_the_arguments_of_submit(arguments: str, master: str | None) -> None:
    assert master_of_arguments({"PYSPARK_SUBMIT_ARGS": arguments}) == master


def test_other_master_than_the_session_has_is_refused(spark: SparkSession) -> None:
    (problem,) = session_problems(spark, settings(spark={"master": "local[7]"}))
    assert problem == "spark.master is 'local[7]', and its session has 'local[8,4]'"


def test_local_files_are_refused_on_the_master_of_a_session(spark: SparkSession) -> None:
    remote: Any = Context(spark)
    remote.master = "spark://h:1"
    (problem,) = session_problems(remote, settings())
    assert problem.startswith("master 'spark://h:1' runs tasks on other machines")


class RemoteSession:
    """A session of Spark Connect, as far as it is looked at."""


RemoteSession.__module__ = "pyspark.sql.connect.session"


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect_problem(settings(), {}, None) is None
    problem = connect_problem(settings(spark={"conf": {"spark.remote": "sc://h"}}), {}) or ""
    assert problem.startswith("spark.conf has spark.remote: a pipe cannot run over Spark Connect")
    remote: Any = RemoteSession()
    (problem,) = session_problems(remote, settings())
    assert problem.startswith("the session is one of Spark Connect: ")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1")
    with pytest.raises(InvalidInput, match="SPARK_REMOTE is set: "):
        build_session(settings())


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("numpy", "pandas"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra) as refused:
        build_session(settings())
    assert str(refused.value) == "Spark needs numpy and pandas: pip install 'chronoline[spark]'"
