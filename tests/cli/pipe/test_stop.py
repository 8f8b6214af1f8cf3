"""`stop`: needs the name and the store alone, and counts the living processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group, pipe_members
from tests.cli.pipe.command import now_ms, pipe, printed, refusal, store_url

MINUTE_MS = 60_000


def beat(url: str, node: str, life_ms: int = MINUTE_MS) -> None:
    with open_store(url) as store:
        topic = store.ensure_topic("p", now_ms=now_ms())
        group = topic.name if node.startswith("older") else pipe_group(topic)
        store.beat(group, node, until_ms=now_ms() + life_ms, now_ms=now_ms())


def stopping(url: str) -> dict[str, bool]:
    with open_store(url) as store:
        topic = store.ensure_topic("p", now_ms=now_ms())
        return {each.name: each.stopping for each in pipe_members(store, topic)}


def test_only_living_processes_are_counted(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    for node, life_ms in (("a", MINUTE_MS), ("b", MINUTE_MS), ("dead", -1)):
        beat(url, node, life_ms)
    assert printed("stop", "--name=p", f"--store={url}", "--node=b") == "asked 1 process to stop\n"
    assert stopping(url) == {"a": False, "b": True, "dead": False}
    assert printed("stop", "--name=p", f"--store={url}") == "asked 2 processes to stop\n"
    assert stopping(url)["a"]


def test_processes_of_an_older_version_are_asked_too(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    for node in ("a", "older"):
        beat(url, node)
    assert printed("stop", "--name=p", f"--store={url}") == "asked 2 processes to stop\n"
    assert stopping(url) == {"a": True, "older": True}


def test_pipe_without_a_timeline_has_no_processes(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    with open_store(url):
        said = refusal("stop", "--name=p", f"--store={url}")
    assert said == f"no living process of the pipe 'p' is known to the store {url}"


def test_missing_processes_are_reported_with_the_store(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    beat(url, "dead", -1)
    answer = pipe("stop", "--name=p", f"--store={url}")
    assert answer.exit_code == 1
    assert str(answer.exception) == (
        f"no living process of the pipe 'p' is known to the store {url}"
    )
    said = refusal("stop", "--name=p", f"--store={url}", "--node=dea")
    assert said == (
        f"no living process 'dea' of the pipe 'p' is known to the store {url}: "
        "`chronoline pipe status --json` shows whole ids"
    )


def test_stop_in_a_wrong_folder_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal("stop", "--name=p")
    assert f"there is no store '{tmp_path}/chronoline-data/pipe.db'" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "env",
    [
        {"SPARK__MASTER": "spark://h:7077"},
        {"INPUT__KAFKA__SASL_JAAS_CONFIG": "x"},
        {"INPUT": "not a table", "OUTPUT__TOPC": "x", "SPARK": "x", "DEAD_LETTERS__LOG": "x"},
    ],
)
def test_stop_ignores_unrelated_settings(tmp_path: Path, env: dict[str, str]) -> None:
    url = store_url(tmp_path)
    beat(url, "a")
    variables = {f"CHRONOLINE_PIPE_{name}": value for name, value in env.items()}
    assert printed("stop", "--name=p", CHRONOLINE_PIPE_STORE=url, **variables).startswith("asked 1")
