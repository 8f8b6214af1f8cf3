"""Signals to a whole family of processes, and a guard that ends one whose parent died.

PostgreSQL puts each of its processes into a session of its own, so that no process group names them
all: they are found as the descendants of the first.

The guard is this file as a program, with the arguments PID FOLDER…. It reads from a pipe. If that ends
without a line, its parent is dead, even if by SIGKILL: it kills the family and removes the folders. A line on
the pipe ends the guard.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

_LOOK_EVERY_S = 0.005
_PATIENCE_S = 30
# A zombie is over too: it holds nothing, and who reaps it is not ours to say.
_OVER = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def pause_family(pid: int) -> list[psutil.Process]:
    """Freezes a process and its descendants, and says which they are; then none of them moves.

    The first is frozen before the others are looked for, so that it cannot have another child.
    """
    try:
        first = psutil.Process(pid)
        _freeze([first])
        others = first.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    _freeze(others)
    return [first, *others]


def resume_family(pid: int) -> None:
    """Lets a process and its descendants go on, the first last."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(pid)
        for process in [*first.children(recursive=True), first]:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def kill_family(pid: int) -> None:
    """SIGKILL to a process and its descendants; when it returns none of them runs any more."""
    family = pause_family(pid)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _await(family, _OVER)


def _freeze(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    _await(processes, {psutil.STATUS_STOPPED, *_OVER})


def _await(processes: Sequence[psutil.Process], statuses: set[str]) -> None:
    """A signal is sent at once, and obeyed when the system comes to it."""
    give_up = time.monotonic() + _PATIENCE_S
    for process in processes:
        while _status(process) not in statuses:
            if time.monotonic() > give_up:
                raise TimeoutError(f"process {process.pid} is {_status(process)}, not {statuses}")
            time.sleep(_LOOK_EVERY_S)  # nobody is told of another's child


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


def start_guard(pid: int, folders: Sequence[Path] = ()) -> subprocess.Popen[bytes]:
    """A guard over a family, for as long as this process lives or until `dismiss_guard`."""
    return subprocess.Popen(
        # The file alone: it starts faster than the package.
        [sys.executable, "-P", __file__, str(pid), *map(str, folders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # What ends the test process, such as Ctrl-C, must not end the guard.
        start_new_session=True,
    )


def dismiss_guard(guard: subprocess.Popen[bytes]) -> None:
    """Sends a guard home; it does nothing any more."""
    with suppress(BrokenPipeError):
        guard.communicate(b"dismissed\n")


def _keep_watch(pid: int, folders: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not sys.stdin.readline():
        kill_family(pid)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep_watch(int(sys.argv[1]), sys.argv[2:])
