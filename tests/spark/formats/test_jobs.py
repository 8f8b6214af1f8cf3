"""Both formats in whole jobs: tasks that are repeated, executors, Spark Connect."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chronoline.core.errors import MissingExtra
from chronoline.log import Log
from chronoline.spark import register
from tests.conftest import miss
from tests.spark.environment import environment, python_of_workers, setting
from tests.spark.formats import jobs
from tests.spark.formats.timelines import Timeline

pytestmark = pytest.mark.timeout(400)  # a Spark of their own takes its time
CONNECT_NEEDS = ("grpc_status", "google.rpc", "zstandard")


@pytest.fixture
def log_url(tmp_path: Path) -> str:
    url = f"file://{tmp_path / 'events'}"
    with Log(url) as log:
        log.create_topic("in", partitions=3)
        log.create_topic("out", partitions=3)
    return url


def run(job: str, folder: Path, log_url: str, *timelines: Timeline, server: str = "") -> Any:
    """Runs a job as a process, with a Spark of its own unless it is given a server."""
    places = [part for each in timelines for part in (each.url, each.topic.name)]
    places += [server] if server else []
    done = subprocess.run(
        [sys.executable, "-m", jobs.__name__, job, log_url, *places],
        cwd=folder,
        env=environment(folder, PYSPARK_PYTHON=python_of_workers(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_lost_task_adds_nothing_twice(
    spark: SparkSession, timeline: Timeline, log_url: str, tmp_path: Path
) -> None:
    register(spark)
    notes = tmp_path / "events lost", tmp_path / "messages lost"
    store, topic = timeline.url, timeline.topic.name
    with setting(spark, jobs.BATCHES, str(jobs.BATCH_ROWS)):
        events = jobs.events(spark, 10_000)
        count = partial(jobs.count_events, log_url, "in")
        jobs.append(jobs.lost_once(events, notes[0], count), log_url, "in")
        messages = jobs.messages(spark)
        count = partial(jobs.count_messages, store, topic)
        jobs.schedule(jobs.lost_once(messages, notes[1], count), store, topic)
    for note in notes:
        assert int(note.read_text()) > 0
    assert jobs.count_messages(store, topic) == 1_000
    with Log(log_url) as log:
        values = [event.value for event in log.read("in", follow=False)]
    assert len(values) == len(set(values)) == 1_000


def test_executors_need_a_server_and_not_a_file(
    timeline: Timeline, spark_postgres_timeline: Timeline, log_url: str, tmp_path: Path
) -> None:
    with Log(log_url) as log:
        log.append("in", value=b"1")
    found = run("clustered", tmp_path, log_url, timeline, spark_postgres_timeline)
    assert found["events"] == 0
    *refused, read, written = found["seen"]
    assert len(refused) == 4
    for said in refused:
        assert "lies on one machine and cannot serve the executors of local-cluster" in said
    assert timeline.ids() == set()
    assert (read, written) == ("done", "done")
    assert len(spark_postgres_timeline.ids()) == 10


def test_over_spark_connect(
    spark: SparkSession, timeline: Timeline, log_url: str, tmp_path: Path
) -> None:
    missing = [name for name in CONNECT_NEEDS if not _is_installed(name)]
    if missing:
        what = f"pip install 'pyspark[connect]' ({', '.join(missing)})"
        miss("Spark Connect", MissingExtra(what))
    with connect_server(spark) as server:
        found = run("connected", tmp_path, log_url, timeline, server=server)
    assert found == {
        "session": "pyspark.sql.connect.session",
        "read": 1_000,
        "ended": True,
        "streamed": 1_000,
        "messages": 1_000,
        "forecast": 60,
    }


@contextmanager
def connect_server(spark: SparkSession) -> Iterator[str]:
    """The address of a Spark Connect server in the JVM of the shared session."""
    context: Any = spark.sparkContext
    # Spark Connect's server has no Python interface.
    nothing = context._jvm.scala.Option.empty()
    package = context._jvm.org.apache.spark.sql.connect.service
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    # As above.
    service.start(context._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(nothing, nothing)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
