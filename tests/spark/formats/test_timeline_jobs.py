"""The format in whole jobs with a Spark of their own: tasks that are repeated, executors, Spark Connect."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import MissingExtra
from tests.conftest import miss
from tests.spark.formats.timelines import Timeline

pytestmark = pytest.mark.timeout(300)  # a Spark for each
ROOT = Path(__file__).parents[3]
CONNECT_NEEDS = ("grpc_status", "google.rpc", "zstandard")


def run(job: str, folder: Path, *timelines: Timeline) -> Any:
    names = ("SPARK_", "PYSPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    places = [part for each in timelines for part in (each.url, each.topic.name)]
    module = "tests.spark.formats.timeline_jobs"
    done = subprocess.run(
        [sys.executable, "-m", module, job, *places],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_task_that_is_lost_half_way_adds_nothing_twice(
    timeline: Timeline, tmp_path: Path
) -> None:
    assert run("retried", tmp_path, timeline) == {"lost": True, "rows": 1_000}


def test_executors_reach_a_server_and_are_refused_a_file(
    timeline: Timeline, spark_postgres_timeline: Timeline, tmp_path: Path
) -> None:
    *refused, read, written = run("clustered", tmp_path, timeline, spark_postgres_timeline)
    assert len(refused) == 2
    for said in refused:
        assert "lies on one machine and cannot serve the executors of local-cluster" in said
    assert timeline.ids() == set()
    assert (read, written) == ("done", "done")
    assert len(spark_postgres_timeline.ids()) == 10


def test_over_spark_connect(timeline: Timeline, tmp_path: Path) -> None:
    missing = [name for name in CONNECT_NEEDS if not _is_installed(name)]
    if missing:
        miss(
            "Spark Connect", MissingExtra(f"pip install 'pyspark[connect]' ({', '.join(missing)})")
        )
    found = run("connected", tmp_path, timeline)
    assert found == {
        "session": "pyspark.sql.connect.session",
        "rows": 1_000,
        "forecast": 60,
    }


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
