"""`chronoline pipe run` with the embedded example, then a session that its maker stops.

One process does both, one after the other, since Spark starts slowly.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chronoline.cli.pipe import app
from chronoline.log import Log, NewEvent
from tests.spark.pipes.child import Child
from tests.spark.pipes.places import Embedded
from tests.spark.pipes.scene import DEADLINE, ID, Scene, now_ms, rfc_3339, until

pytestmark = pytest.mark.timeout(600)

CONFIG = ("--config", str(Path(__file__).parents[3] / "examples" / "pipe-embedded.toml"))


@pytest.fixture(scope="module")
def scene(embedded: Embedded) -> Iterator[Scene]:
    with Scene(embedded) as scene:
        yield scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own-session")


@pytest.fixture(scope="module")
def log(folder: Path) -> Iterator[Log]:
    """The topics of the example."""
    with Log((folder / "chronoline-data" / "log").as_uri()) as log:
        log.create_topic("orders", partitions=2)
        log.create_topic("orders-due", partitions=2)
        yield log


@pytest.fixture(scope="module")
def child(scene: Scene, folder: Path, log: Log) -> Iterator[Child]:
    """The process, in which the example runs until it gets a signal."""
    # Between two of its looks there is time to stop the session: that leaves another state than stopping.
    flags = json.dumps(scene.flags(failure_detection_interval_ms=5_000, hold_ms=20_000))
    program = (sys.executable, "-m", "tests.spark.pipes.own_session", flags)
    with Child(folder, "run", *CONFIG, program=program) as child:
        yield child


@pytest.fixture(scope="module")
def seen(child: Child) -> dict[str, Any]:
    """The report of the process, which has ended: here all tests share one session."""
    if child.is_running:
        child.wait_running()
        child.terminate()
    report = next(line for line in child.log.splitlines() if line.startswith('{"signals": '))
    found: dict[str, Any] = json.loads(report)
    return found


def pipe(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


def test_the_embedded_example_runs_as_it_is(
    child: Child, log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    node = child.wait_running()
    due_ms = now_ms() + 1_000
    own = ((ID, b"o1"), (DEADLINE, rfc_3339(due_ms)))
    log.append_many("orders", [NewEvent(value=b"hello", key=b"k", headers=own)])
    (event,) = log.read("orders-due", limit=1)
    assert (event.key, event.value, event.headers) == (b"k", b"hello", ())
    assert now_ms() >= due_ms
    log.append_many("orders", [NewEvent(value=b"nobody can read this")])

    def status() -> dict[str, Any]:
        answer = pipe("status", *CONFIG, "--json")
        assert answer.exit_code == 0, answer.exception
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    until(lambda: status()["fired"] == 1 and status()["dead_letters"] == 1, "it is counted")
    found = status()
    assert found["waiting"] == found["ready"] == found["overdue"] == found["lag"] == 0
    assert (found["records"]["accepted"], found["records"]["rejected"]) == (1, 1)
    assert [each["node"] for each in found["nodes"]] == [node]
    shown = pipe("status", *CONFIG).stdout
    assert "malformed: they went to the dead letters" in shown
    (letter,) = json.loads(pipe("dead", *CONFIG, "--json").stdout)
    assert letter["why"].startswith("header chronosMessageId is missing")
    assert letter["topic"] == "orders"
    assert child.terminate_group() == 0, child.log
    # The session that its maker stops comes after it, and Spark may trace that.
    until_then, _, _ = child.log.partition("pipe 'pipe-")
    assert "\tat " not in until_then, "Spark's traces"
    assert f"pipe 'orders' starts as node {node}" in child.log
    record = r"ERROR chronoline.pipe.intake: the record orders/"
    assert record in child.log
    assert "is malformed: header chronosMessageId is missing" in child.log
    assert pipe("stop", *CONFIG).exit_code == 1  # nobody is left


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
