"""Failed tests of `make test` run once more; the exit code says how that went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.second_run import MOST_TESTS, FirstRun, read_first_run, second_run

TEST = "tests/log/test_groups.py::test_names[a b]"


class Again:
    """A second run with this exit code; it keeps what it was asked to run."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.tests: list[str] = []

    def __call__(self, tests: Sequence[str]) -> int:
        self.tests += tests
        return self.status


def left(folder: Path, check: str, status: int, *failed: str) -> None:
    (folder / f"{check}.status").write_text(f"{status}\n")
    cache = folder / f"{check}.cache" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))


def test_failed_tests_of_all_groups_are_found(tmp_path: Path) -> None:
    left(tmp_path, "log", 1, TEST)
    left(tmp_path, "stores", 0)
    left(tmp_path, "rest", 1, "a.py::b", "a.py::c")
    first = read_first_run(tmp_path, ["log", "stores", "rest"])
    assert first == FirstRun((TEST, "a.py::b", "a.py::c"), ())


def test_checks_that_name_no_test_are_broken(tmp_path: Path) -> None:
    left(tmp_path, "log", 3, TEST)  # pytest itself failed: there may be more than it names
    left(tmp_path, "types", 1)
    assert read_first_run(tmp_path, ["log", "types", "killed"]).broken == ("log", "types", "killed")


def test_pytest_leaves_the_names_of_failed_tests(tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    module.write_text("def test_red() -> None:\n    assert False\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "cache_dir=log.cache", "--rootdir=.", module.name],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        check=False,
    )
    (tmp_path / "log.status").write_text(f"{done.returncode}\n")
    assert read_first_run(tmp_path, ["log"]) == FirstRun(("test_it.py::test_red",), ())


def test_passed_second_run_is_green_and_names_the_tests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = Again(0)
    assert second_run(FirstRun((TEST,), ()), again) == 0
    assert again.tests == [TEST]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"== passed only when run again, alone: {TEST}; such a test is a bug")


def test_failed_second_run_is_red(capsys: pytest.CaptureFixture[str]) -> None:
    assert second_run(FirstRun((TEST,), ()), Again(1)) == 1
    assert "passed only" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "first",
    [
        FirstRun(tuple(f"a.py::{n}" for n in range(MOST_TESTS + 1)), ()),
        FirstRun((TEST,), ("types",)),
        FirstRun((), ()),
    ],
    ids=["many", "broken", "none"],
)
def test_nothing_runs_again_where_that_cannot_help(first: FirstRun) -> None:
    again = Again(0)
    assert second_run(first, again) == 1
    assert again.tests == []
