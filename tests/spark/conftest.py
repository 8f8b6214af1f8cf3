"""One Spark for all tests, on this machine's cores, with our formats."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.environment import environment, python_of_workers


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder of Spark and of its workers."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[SparkSession]:
    settings: dict[str, Any] = {
        # Slots for two pipes, whose lanes wait most of the time; a task that is killed runs again.
        "spark.master": "local[8,4]",
        # For the test that starts a server of Spark Connect: any port.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": 0,
        "spark.log.level": "ERROR",
        "spark.sql.leafNodeDefaultParallelism": 2,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(spark_folder / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    given = environment(spark_folder, PYSPARK_PYTHON=python_of_workers(spark_folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(spark_folder)
        for name in os.environ.keys() - given.keys():
            patch.delenv(name)
        for name, value in given.items():
            patch.setenv(name, value)
        session = SparkSession.builder.config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def lent_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Code that asks for a session gets this one, with its own settings, and cannot stop the shared Spark."""
    session = spark.newSession()
    # Spark finds its session there, and has no call that sets it.
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return session
