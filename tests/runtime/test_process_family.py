"""Signals reach a process and all its descendants; a guard ends them when its parent dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.runtime import process_family
from chronoline.runtime.process_family import (
    dismiss_guard,
    kill_family,
    listens,
    pause_family,
    resume_family,
    start_guard,
)

# A parent whose child has left its session, as PostgreSQL's do. Both wait forever.
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


@pytest.fixture(params=["proc", "ps"])
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A parent and its child, found in each of the two ways."""
    if request.param == "ps":
        # A system without /proc.
        monkeypatch.setattr(process_family, "_PROC", Path("/nowhere"))
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        yield [parent.pid, int(parent.stdout.readline())]
        kill_family(parent.pid)


def states(family: list[int]) -> set[str]:
    return {process_family.state_of(pid) for pid in family}


def is_over(family: list[int]) -> bool:
    return states(family) <= {"Z", "X", ""}


def test_pause_and_resume_reach_the_whole_family(family: list[int]) -> None:
    assert pause_family(family[0]) == family
    assert states(family) == {"T"}
    resume_family(family[0])
    assert "T" not in states(family)


def test_kill_waits_until_the_whole_family_is_over(family: list[int]) -> None:
    pause_family(family[0])
    kill_family(family[0])
    assert is_over(family)


def test_ended_process_is_left_alone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert pause_family(ended.pid) == []
    resume_family(ended.pid)
    kill_family(ended.pid)


def test_guard_ends_the_family_of_a_dead_parent(family: list[int], tmp_path: Path) -> None:
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    guard = start_guard(family[0], [tmp_path / "folder"])
    assert guard.stdin
    guard.stdin.close()  # which is what the end of a process does
    assert guard.wait(timeout=60) == 0
    assert is_over(family)
    assert list(tmp_path.iterdir()) == []


def test_dismissed_guard_does_nothing(family: list[int], tmp_path: Path) -> None:
    guard = start_guard(family[0], [tmp_path])
    dismiss_guard(guard)
    assert guard.returncode == 0
    assert not is_over(family)
    assert tmp_path.exists()


@pytest.mark.parametrize("proc", ["/proc", "/nowhere"])
def test_listening_port_is_found(monkeypatch: pytest.MonkeyPatch, proc: str) -> None:
    monkeypatch.setattr(process_family, "_PROC", Path(proc))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port)
    assert not listens(os.getpid(), port)


def test_another_process_does_not_listen(family: list[int]) -> None:
    if process_family._PROC.exists():
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert not listens(family[0], server.getsockname()[1])
