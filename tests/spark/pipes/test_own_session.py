"""A session that its maker stops, and what it does to the process that makes it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.environment import environment, python_of_workers
from tests.spark.pipes.places import PATIENCE_S, Embedded
from tests.spark.pipes.scene import Scene

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def scene(embedded: Embedded) -> Iterator[Scene]:
    with Scene(embedded) as scene:
        yield scene


@pytest.fixture(scope="module")
def seen(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a separate process: here all tests share one session."""
    folder: Path = tmp_path_factory.mktemp("own-session")
    # Between two of its looks there is time to stop the session: that leaves another state than stopping.
    flags = json.dumps(scene.flags(failure_detection_interval_ms=5_000, hold_ms=20_000))
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.pipes.own_session", flags],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(folder, PYSPARK_PYTHON=python_of_workers(folder)),
        timeout=2 * PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_pipe_ends_with_its_stopped_session(seen: dict[str, Any], scene: Scene) -> None:
    assert (seen["stopped"], seen["failed"]) == (True, "Spark was stopped")
    assert scene.status().nodes == ()
    assert scene.holders() <= {None}


def test_no_pipe_begins_on_a_session_that_was_stopped(seen: dict[str, Any]) -> None:
    assert seen["again"] == "Spark cannot serve this pipe: its session was stopped"


def test_session_has_slots_for_lanes_and_input(
    seen: dict[str, Any],
) -> None:
    assert seen["slots"] == 4


def test_signals_are_handled_as_before(seen: dict[str, Any]) -> None:
    assert seen["signals"] == [signal.SIGINT, signal.SIGTERM]


def test_session_remembers_ended_queries(seen: dict[str, Any]) -> None:
    assert seen["remembered"] >= 100
