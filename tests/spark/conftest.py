"""One Spark for all tests, on this machine's cores, with the Kafka connector and our formats."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chronoline.core.errors import MissingExtra
from chronoline.testing import jars
from tests.conftest import miss

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        connector = jars.resolve("spark-kafka")
    except MissingExtra as error:
        miss("Spark", error)
    folder = tmp_path_factory.mktemp("spark")
    settings: dict[str, Any] = {
        # Slots for two pipes, whose lanes wait most of the time; a task that is killed runs again.
        "spark.master": "local[8,4]",
        "spark.jars": ",".join(map(str, connector.iterdir())),
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.log.level": "ERROR",
        "spark.sql.leafNodeDefaultParallelism": 2,
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            patch.delenv(name)
        patch.setenv("SPARK_LOCAL_DIRS", str(folder))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        # Functions of test modules travel to the workers by name.
        patch.setenv("PYTHONPATH", str(ROOT))
        session = SparkSession.builder.config(map=settings).getOrCreate()
    yield session
    session.stop()
