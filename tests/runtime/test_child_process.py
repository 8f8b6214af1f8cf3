"""A child process starts when it is ready, exchanges lines, and ends in order, at once or with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.runtime.child_process import (
    ChildProcess,
    LineProcess,
    NotStarted,
    Server,
    free_addresses,
    free_ports,
    without,
)
from chronoline.runtime.process_family import await_states, state_of

PROGRAM = """
import pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: ((folder / "ended").touch(), sys.exit()))
(folder / "ready").touch()
while True:
    signal.pause()
"""


class Program(ChildProcess):
    """Says by a file that it is ready, and by another that it ended in order."""

    name = "the program"

    def __init__(self, folder: Path, program: str = PROGRAM) -> None:
        super().__init__()
        self.folder = folder
        self.program = program

    def _prepare(self) -> None:
        (self.folder / "ready").unlink(missing_ok=True)

    def _command(self) -> Sequence[str | Path]:
        return [sys.executable, "-c", self.program, self.folder]

    def _is_ready(self) -> bool:
        return (self.folder / "ready").exists()


def is_over(pid: int) -> bool:
    return state_of(pid) in ("Z", "X", "")


def test_stopping_twice_or_before_the_start_is_fine(tmp_path: Path) -> None:
    child = Program(tmp_path)
    child.stop()
    child.kill()
    with child:
        assert child.is_running
    child.stop()
    assert child.pid is None
    assert (tmp_path / "ended").exists()


def test_starting_twice_keeps_the_process(tmp_path: Path) -> None:
    with Program(tmp_path) as child:
        pid = child.pid
        child.start()
        assert child.pid == pid


def test_killed_child_starts_again(tmp_path: Path) -> None:
    with Program(tmp_path) as child:
        killed = child.pid
        child.kill()
        assert not child.is_running
        assert not (tmp_path / "ended").exists()
        child.start()
        assert child.pid not in (None, killed)


def test_paused_child_can_be_stopped(tmp_path: Path) -> None:
    with Program(tmp_path) as child:
        assert child.pid
        child.pause()
        assert state_of(child.pid) == "T"
        child.stop()
    assert (tmp_path / "ended").exists()


def test_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    deaf = PROGRAM.replace("sys.exit()", "None")
    with Program(tmp_path, deaf) as child:
        assert child.pid
        pid = child.pid
        child.stop(patience_s=0.01)
    assert is_over(pid)
    assert child.exit_code == -signal.SIGKILL


def test_failed_start_says_the_output(tmp_path: Path) -> None:
    child = Program(tmp_path, "raise SystemExit('no such setting')")
    with pytest.raises(NotStarted, match=r"the program did not start; it said:\nno such setting"):
        child.start()
    assert child.pid is None


PARENT = """
import os, sys
from pathlib import Path
from tests.runtime.test_child_process import Program
child = Program(Path(sys.argv[1]))
child.start()
print(child.pid, flush=True)
{end}
"""


@pytest.mark.parametrize(("end", "in_order"), [("os.kill(os.getpid(), 9)", False), ("", True)])
def test_child_ends_with_its_parent(tmp_path: Path, end: str, in_order: bool) -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT.format(end=end), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert parent.returncode == (0 if in_order else -signal.SIGKILL)
    pid = int(parent.stdout)
    await_states([pid], ("Z", "X", ""))
    assert (tmp_path / "ended").exists() == in_order


# Lines

TALKS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("noise"); print("ready 7", flush=True)
print(sys.stdin.readline(), end="", flush=True)
signal.pause()
"""


def line_process(folder: Path, program: str) -> LineProcess:
    return LineProcess([sys.executable, "-c", program], log_path=folder / "log")


@pytest.fixture
def talking(tmp_path: Path) -> Iterator[LineProcess]:
    with line_process(tmp_path, TALKS) as child:
        yield child


def test_lines_are_exchanged(talking: LineProcess) -> None:
    assert talking.read_line("ready") == "ready 7"
    talking.write_line("hello")
    assert talking.read_line() == "hello"
    assert talking.exit_code is None
    talking.stop()
    assert talking.exit_code == talking.wait() == 3


def test_ended_child_takes_no_line(talking: LineProcess) -> None:
    talking.kill()
    assert talking.exit_code == -signal.SIGKILL
    with pytest.raises(ChronolineError, match="ended"):
        talking.write_line("hello")


def test_paused_child_goes_on_when_it_is_resumed(talking: LineProcess) -> None:
    talking.read_line("ready")
    talking.pause()
    assert talking.pid
    assert state_of(talking.pid) == "T"
    talking.write_line("hello")
    talking.resume()
    assert talking.read_line() == "hello"


def test_log_of_a_failed_child_is_in_the_error(tmp_path: Path) -> None:
    with (
        line_process(tmp_path, "raise SystemExit('no luck today')") as child,
        pytest.raises(ChronolineError, match=r"ended(?s:.*)no luck today"),
    ):
        child.read_line("ready")


def test_silent_child_is_not_awaited_forever(tmp_path: Path) -> None:
    with (
        line_process(tmp_path, "import signal; signal.pause()") as child,
        pytest.raises(ChronolineError, match="took more than"),
    ):
        child.read_line("ready", 0.05)


@pytest.mark.parametrize("reads_errors", [True, False])
def test_output_and_errors_are_read_or_logged(tmp_path: Path, reads_errors: bool) -> None:
    program = (
        "import os, sys; print('in', os.getcwd()); sys.stdout.flush(); sys.exit(os.environ['WHO'])"
    )
    child = LineProcess(
        [sys.executable, "-c", program],
        log_path=tmp_path / "log",
        environment={**os.environ, "WHO": "me"},
        cwd=tmp_path,
        reads_output=reads_errors,
        reads_errors=reads_errors,
    )
    with child:
        said = child.read_rest() if reads_errors else None
        assert child.wait() == 1
    assert (said or child.log.splitlines()) == [f"in {tmp_path}", "me"]


# Servers and ports


class Listener(Server):
    name = "the listener"

    def _command(self) -> Sequence[str | Path]:
        program = (
            "import socket, sys, signal\n"
            "try: server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
            "except OSError: sys.exit('Address already in use')\n"
            "signal.pause()"
        )
        return [sys.executable, "-c", program, str(self._port)]

    def _is_ready(self) -> bool:
        return self._listens()

    @property
    def port(self) -> int:
        return self._port


def test_server_keeps_its_port() -> None:
    with Listener() as server:
        port = server.port
        server.kill()
        server.start()
        assert server.port == port


def test_server_takes_another_port_if_its_first_is_taken() -> None:
    server = Listener()
    with socket.create_server(("127.0.0.1", server.port)) as taken, server:
        assert server.port != taken.getsockname()[1]


def test_free_ports_follow_each_other() -> None:
    first, *_, last = ports = free_ports(3)
    assert (len(ports), last - first) == (3, 2)
    for address in free_addresses(2):
        socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()


def test_environment_leaves_out_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("OTHER", "stays")
    kept = without("PG")
    assert "PGHOST" not in kept
    assert kept["OTHER"] == "stays"
