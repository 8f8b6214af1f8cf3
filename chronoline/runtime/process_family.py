"""A process and its descendants: pausing, resuming and killing all of them, and a guard for them.

PostgreSQL puts each of its processes into a session of its own, so that no process group names them all: they
are found as the descendants of the first.

The guard is this file as a program, with the arguments PID FOLDER…; it needs the standard library alone. It
reads from a pipe. If the pipe ends without a line, its parent is dead, even if by SIGKILL: the guard kills
the family and removes the folders. A line on the pipe dismisses it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_LOOK_EVERY_S = 0.005
_PATIENCE_S = 30
_PROC = Path("/proc")
_STOPPED = "T"
_LISTEN = "0A"  # in /proc/net/tcp
# A zombie has ended too: it holds nothing, and another process reaps it.
_OVER = ("Z", "X", "")


def pause_family(pid: int) -> list[int]:
    """Freezes a process and its descendants, and returns their ids; then none of them runs.

    Each is frozen before its children are listed, so that it cannot start another one.
    """
    if state_of(pid) in _OVER:
        return []
    family: list[int] = []
    new = [pid]
    while new:
        _signal(new, signal.SIGSTOP)
        await_states(new, (_STOPPED, *_OVER))
        family += new
        new = [each for each in descendants(pid) if each not in family]
    return family


def resume_family(pid: int) -> None:
    """Resumes a process and its descendants, the first last."""
    _signal([*descendants(pid), pid], signal.SIGCONT)


def kill_family(pid: int) -> None:
    """Sends SIGKILL to a process and its descendants; when it returns none of them runs any more."""
    family = pause_family(pid)
    _signal(family, signal.SIGKILL)
    await_states(family, _OVER)


def start_guard(pid: int, folders: Sequence[Path] = ()) -> subprocess.Popen[bytes]:
    """A guard over a family, while this process lives or until `dismiss_guard`."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(pid), *map(str, folders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A signal that ends its parent, such as Ctrl-C, must not end the guard.
        start_new_session=True,
    )


def dismiss_guard(guard: subprocess.Popen[bytes]) -> None:
    """Ends a guard, which then does nothing."""
    with suppress(BrokenPipeError):
        guard.communicate(b"dismissed\n")


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def await_states(pids: Sequence[int], states: Sequence[str]) -> None:
    """Waits for a state: a signal is sent at once, but takes effect later."""
    give_up = time.monotonic() + _PATIENCE_S
    for pid in pids:
        while (state := state_of(pid)) not in states:
            if time.monotonic() > give_up:
                raise TimeoutError(f"process {pid} is in state {state!r}, not in one of {states}")
            time.sleep(_LOOK_EVERY_S)  # the end of a process that is not our child has no event


def descendants(pid: int) -> list[int]:
    """The processes below one, parents before their children."""
    parents = _parents()
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def listens(pid: int, port: int) -> bool:
    """Whether a process listens on a TCP port; without /proc, whether any process does."""
    if not _PROC.joinpath("self").exists():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    own = _PROC.joinpath(str(pid))
    sockets: set[str] = set()
    with suppress(OSError):  # the process has ended
        for table in ("tcp", "tcp6"):
            for line in own.joinpath("net", table).read_text().splitlines():
                _, local, _, state, *_, inode = line.split()[:10]
                if state == _LISTEN and local.endswith(f":{port:04X}"):
                    sockets.add(f"socket:[{inode}]")
        for descriptor in own.joinpath("fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                if os.readlink(descriptor) in sockets:
                    return True
    return False


# The system's information on processes: on Linux by /proc, elsewhere by ps


def state_of(pid: int) -> str:
    """The state of a process as one letter; "" if there is no such process."""
    if _PROC.joinpath("self").exists():
        return _stat(pid)[0]
    shown = _ps("-p", str(pid), "-o", "state=")
    return shown[0][0][:1] if shown else ""


def _parents() -> dict[int, int]:
    if _PROC.joinpath("self").exists():
        pids = [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
        return {pid: int(_stat(pid)[1] or 0) for pid in pids}
    return {int(pid): int(parent) for pid, parent in _ps("-A", "-o", "pid=,ppid=")}


def _stat(pid: int) -> tuple[str, str]:
    """The state of a process and its parent."""
    try:
        text = _PROC.joinpath(str(pid), "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    state, parent, *_ = text.rpartition(")")[2].split()  # a name may contain brackets
    return state.upper(), parent


def _ps(*arguments: str) -> list[list[str]]:
    done = subprocess.run(["ps", *arguments], capture_output=True, text=True, check=False)
    return [line.split() for line in done.stdout.splitlines()]


def _keep_watch(pid: int, folders: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not sys.stdin.readline():
        kill_family(pid)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep_watch(int(sys.argv[1]), sys.argv[2:])
