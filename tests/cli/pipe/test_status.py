"""`status`: the known state of a pipe, on any terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chronoline.log import Log
from chronoline.pipe.counters import Counters
from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group
from tests.cli.pipe.command import now_ms, pipe, printed, refusal, store_url

NODE = "0a1b2c3d-0000-4000-8000-000000000000"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Of a pipe that runs, and of which two processes are known."""
    with Log((tmp_path / "log").as_uri()) as log:
        log.create_topic("in")
    counters = Counters(fired=1_234_567, redelivered=12, served=345_678, skipped=3)
    buckets = len(counters.lateness.counts)
    counters.lateness.add([1] * buckets, 90_000 * buckets, 75_040)
    with open_store(store_url(tmp_path)) as store:
        topic = store.create_topic("p", now_ms=now_ms())
        for node, life_ms in ((NODE, 60_000), ("another", -1)):
            until_ms = now_ms() + life_ms
            details = counters.to_json()
            store.beat(pipe_group(topic), node, until_ms=until_ms, details=details, now_ms=now_ms())
    return ["status", "--name=p", f"--store={store_url(tmp_path)}", f"--input=in@{tmp_path}/log"]


def test_status_fits_80_columns(arguments: list[str]) -> None:
    narrow = printed(*arguments, COLUMNS="80")
    assert max(len(line) for line in narrow.splitlines()) <= 80
    assert narrow.split() == printed(*arguments).split()
    for words in ("fired 1,234,567, redelivered 12", "0a1b2c3d alive", "another dead", "≤ 75.1 s"):
        assert words in " ".join(narrow.split())


def test_given_output_is_shown(arguments: list[str], tmp_path: Path) -> None:
    assert printed(*arguments).splitlines()[0] == "p: in (log) → sqlite"
    half = {"CHRONOLINE_PIPE_OUTPUT__KAFKA__SASL_JAAS_CONFIG": "x"}
    assert printed(*arguments, **half).splitlines()[0] == "p: in (log) → sqlite"
    given = printed(*arguments, f"--output=out@{tmp_path}/log").splitlines()[0]
    assert given == "p: in (log) → sqlite → out (log)"


def test_status_needs_no_input(arguments: list[str]) -> None:
    *without, _ = arguments
    shown = printed(*without)
    assert shown.splitlines()[0] == "p: sqlite"
    assert "fired 1,234,567" in shown
    assert "The lag is not known: name the input by --config or --input" in shown
    assert "taken in" not in shown  # 0 would be wrong: the input's partitions have the count
    assert json.loads(printed(*without, "--json"))["lag"] is None


def test_status_ignores_the_spark_settings(arguments: list[str]) -> None:
    elsewhere = {"CHRONOLINE_PIPE_SPARK__MASTER": "spark://h:7077"}
    assert json.loads(printed(*arguments, "--json", **elsewhere))["fired"] == 2 * 1_234_567


def test_pipe_without_processes_says_so(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    with open_store(url) as store:
        store.create_topic("p", now_ms=now_ms())
    shown = printed("status", "--name=p", f"--store={url}", f"--input=in@{tmp_path}/[mistyped]")
    assert "No process of it runs" in shown
    assert f"The lag is not known: there is no '{tmp_path}/[mistyped]'" in shown
    assert not (tmp_path / "[mistyped]").exists()


def test_unknown_pipe_is_refused(arguments: list[str]) -> None:
    for more in ([], ["--json"]):
        answer = pipe(*arguments, "--name=q", *more)
        assert (answer.exit_code, answer.stdout) == (1, "")
        assert "no pipe named 'q' has ever run with the store sqlite:///" in str(answer.exception)


def test_status_in_a_wrong_folder_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal("status", "--name=p", "--input=in@log")
    assert f"there is no store '{tmp_path}/chronoline-data/pipe.db'" in said
    assert list(tmp_path.iterdir()) == []
