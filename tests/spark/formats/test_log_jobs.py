"""Whole jobs with a Spark of their own: tasks that are repeated, executors, Spark Connect, the example."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import MissingExtra
from chronoline.log import Log
from tests.conftest import miss

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(400)  # a Spark for each, or two


def spawn(folder: Path, *command: str) -> list[str]:
    names = ("SPARK_", "PYSPARK_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environment |= {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return done.stdout.splitlines()


def run(job: str, url: str, folder: Path) -> dict[str, Any]:
    lines = spawn(folder, "-m", "tests.spark.formats.log_jobs", job, url, str(folder))
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file://{tmp_path / 'log'}"
    with Log(url) as log:
        log.create_topic("in", partitions=3)
        log.create_topic("out", partitions=3)
    return url


def test_a_task_that_is_lost_half_way_adds_nothing_twice(url: str, tmp_path: Path) -> None:
    assert run("retried", url, tmp_path) == {"rows": 1_000}
    with Log(url) as log:
        values = [event.value for event in log.read("in", follow=False)]
    assert len(set(values)) == 1_000


def test_a_folder_is_refused_where_tasks_run_elsewhere(url: str, tmp_path: Path) -> None:
    found = run("clustered", url, tmp_path)
    assert found["rows"] == 0
    assert len(found["seen"]) == 2
    for said in found["seen"]:
        assert (
            "in a folder lies on one machine and cannot serve the executors of local-cluster"
            in said
        )


def test_over_spark_connect(url: str, tmp_path: Path) -> None:
    for name in ("grpc_status", "google.rpc", "zstandard"):
        if not _is_installed(name):
            miss("Spark Connect", MissingExtra(f"pip install 'pyspark[connect]' ({name})"))
    assert run("connected", url, tmp_path) == {
        "session": "pyspark.sql.connect.session",
        "read": 1_000,
        "ended": True,
        "streamed": 1_000,
    }


def test_the_example_bills_each_order_once(tmp_path: Path) -> None:
    for times in (1, 2):
        *orders, bills = spawn(tmp_path, str(ROOT / "examples" / "spark_log.py"))
        assert orders[0] == f"{143 * times} orders of 0"
        assert orders[6] == f"{142 * times} orders of 6"
        assert bills == f"{857 * times} bills"


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
