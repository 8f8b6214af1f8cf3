"""A process opens a log once; what lies on one machine is refused where tasks run on several."""

from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.log import Log
from chronoline.spark import locality
from chronoline.spark.worker_logs import open_worker_log


class Task:
    """A task of a session with a master."""

    def __init__(self, master: str | None) -> None:
        self._master = master

    def getLocalProperty(self, key: str) -> str | None:
        return self._master if key == "spark.master" else None


@pytest.fixture
def run_on(monkeypatch: pytest.MonkeyPatch) -> Any:
    def change(master: str | None) -> None:
        class Context:
            @staticmethod
            def get() -> Task:
                return Task(master)

        monkeypatch.setattr(locality, "TaskContext", Context)

    return change


@pytest.fixture
def url(tmp_path: Path) -> str:
    Log(f"file://{tmp_path}/log").close()
    return f"file://{tmp_path}/log"


def test_a_process_opens_a_log_once(url: str) -> None:
    opened = open_worker_log(url)
    assert isinstance(opened, Log)
    assert open_worker_log(url) is opened
    opened.close()


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]", None])
def test_a_folder_is_fine_on_one_machine(run_on: Any, master: str | None, url: str) -> None:
    run_on(master)
    with open_worker_log(url) as log:
        assert log.topics() == []


@pytest.mark.parametrize("index", ["", "?index=sqlite%3A%2F%2F%2F{folder}%2Fi.db"])
def test_missing_log_is_refused_and_not_made(tmp_path: Path, index: str) -> None:
    with pytest.raises(InvalidInput, match=r"no log at .*: check the option 'log'"):
        open_worker_log(f"file://{tmp_path}/lgo{index.format(folder=tmp_path)}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("file:///nowhere/log", "objects"),
        ("file:///nowhere/log?index=postgresql%3A%2F%2Fhost%2Fdb", "objects"),
        ("s3://bucket/prefix?index=sqlite%3A%2F%2F%2F%2Fnowhere%2Findex.db", "index"),
    ],
)
@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster"])
def test_a_folder_is_refused_where_there_are_several(
    run_on: Any, master: str, url: str, part: str
) -> None:
    run_on(master)
    with pytest.raises(
        InvalidInput, match=f"with its {part} .* cannot serve the executors of {master}"
    ):
        open_worker_log(url)
    assert not Path("/nowhere").exists()
