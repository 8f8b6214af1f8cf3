"""Signals to a whole family of processes, and the guard."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from chronoline.testing.processes import (
    dismiss_guard,
    kill_family,
    pause_family,
    resume_family,
    start_guard,
)

# A parent whose child has left its session, as PostgreSQL's do. Both wait for ever.
FAMILY = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[list[psutil.Process]]:
    """A parent and its child."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        child_pid = int(parent.stdout.readline())
        yield [psutil.Process(parent.pid), psutil.Process(child_pid)]
        kill_family(parent.pid)


def statuses(family: list[psutil.Process]) -> set[str]:
    return {str(process.status()) for process in family}


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_pause_and_resume_reach_all(family: list[psutil.Process]) -> None:
    assert pause_family(family[0].pid) == family
    assert statuses(family) == {psutil.STATUS_STOPPED}
    resume_family(family[0].pid)
    assert psutil.STATUS_STOPPED not in statuses(family)


def test_kill_reaches_all_and_waits_for_their_end(family: list[psutil.Process]) -> None:
    pause_family(family[0].pid)
    kill_family(family[0].pid)
    assert all(is_over(process) for process in family)


def test_a_process_that_is_not_there_is_left_alone() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert pause_family(gone.pid) == []
    resume_family(gone.pid)
    kill_family(gone.pid)


def test_a_guard_whose_parent_dies_ends_the_family(
    family: list[psutil.Process], tmp_path: Path
) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    guard = start_guard(family[0].pid, [tmp_path / "folder"])
    assert guard.stdin
    guard.stdin.close()  # which is what the end of a process does
    assert guard.wait(timeout=60) == 0
    assert all(is_over(process) for process in family)
    assert list(tmp_path.iterdir()) == []


def test_a_dismissed_guard_does_nothing(family: list[psutil.Process], tmp_path: Path) -> None:
    guard = start_guard(family[0].pid, [tmp_path])
    dismiss_guard(guard)
    assert guard.returncode == 0
    assert not any(is_over(process) for process in family)
    assert tmp_path.exists()
