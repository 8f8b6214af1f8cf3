"""Child processes that are started, awaited, paused, stopped and killed by their parent.

A child is killed like a machine that loses power, and paused like one that hangs. A guard process ends it
with its parent, even if the parent is killed.
"""

from __future__ import annotations

import atexit
import os
import queue
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, ClassVar

from chronoline.core.errors import ChronolineError
from chronoline.runtime.process_family import (
    dismiss_guard,
    kill_family,
    listens,
    pause_family,
    resume_family,
    start_guard,
)
from chronoline.runtime.service import Service

PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.01
_MOST_WORDS = 2_000
_PORT_TRIES = 10
# Below the ports of outgoing connections: no other process takes ours while the server is down.
_PORTS = range(20_000, 32_000)
_TAKEN = "address already in use"


class NotStarted(ChronolineError):
    """A child ended, or was not ready in time."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"{name} did not start; it said:\n{words[-_MOST_WORDS:]}")
        self.words = words


class ChildProcess(Service):
    """One child process, with the processes that it starts. It can start and stop any number of times."""

    name: str
    """Its name in errors."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    is_guarded: ClassVar[bool] = True
    """False for a program that ends by itself when its parent is dead."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code: int | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._owner_pid = os.getpid()

    # The interface for subclasses

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The command that starts it."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether our process is ready; called until it is, or has ended."""

    def _prepare(self) -> None:
        """Called before each start."""
        return

    def _options(self) -> dict[str, Any]:
        """Further arguments of its `Popen`, such as its environment."""
        return {}

    def _open_output(self) -> IO[bytes]:
        """The file that its output goes to."""
        return tempfile.TemporaryFile()

    def _folders(self) -> Sequence[Path]:
        """The folders that the guard removes when this process dies."""
        return ()

    # Starting and stopping

    @property
    def pid(self) -> int | None:
        """The first of its processes, or None while it does not run."""
        return self._process.pid if self._process else None

    @property
    def is_running(self) -> bool:
        process = self._process  # another thread may remove it
        return process is not None and process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last run; None before its end."""
        process = self._process
        return self._exit_code if process is None else process.poll()

    def start(self) -> None:
        """Starts the child, and waits until it is ready."""
        if self.is_running:
            return
        self._forget()
        self._prepare()
        self._launch()

    def wait(self, timeout_s: float | None = PATIENCE_S) -> int:
        """Waits until the child ends by itself; returns its exit code."""
        if self._process is not None:
            self._process.wait(timeout_s)
            self._forget()
        assert self._exit_code is not None
        return self._exit_code

    def stop(self, patience_s: float = PATIENCE_S) -> None:
        """Stops the child orderly, and kills it if it does not end in `patience_s`."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            kill_family(self._process.pid)
        self._forget()

    def kill(self) -> None:
        """Kills the child as a crash does, by SIGKILL to all of its processes at one moment."""
        if self._process is None:
            return
        if self._process.poll() is None:
            kill_family(self._process.pid)
        self._forget()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the first of its processes, if it runs."""
        process = self._process
        if process is not None:
            process.send_signal(number)

    def pause(self) -> None:
        """Freezes all of its processes: connections stay open, and nothing answers."""
        if self._process is not None:
            pause_family(self._process.pid)
            self._paused = True

    def resume(self) -> None:
        """Resumes a paused child."""
        if self._process is not None and self._paused:
            resume_family(self._process.pid)
            self._paused = False

    def _launch(self) -> None:
        with self._open_output() as said:
            begins = said.seek(0, os.SEEK_END)
            options = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "cwd": "/"}
            # Our own child: we reap it when it was killed. Otherwise the next start may take the
            # zombie for a server that still runs, and refuse.
            self._process = subprocess.Popen(
                self._command(),
                start_new_session=True,  # an interrupt from the keyboard is for this process
                **{**options, **self._options()},
            )
            atexit.register(self._leave)
            if self.is_guarded:
                self._guard = start_guard(self._process.pid, self._folders())
            give_up = time.monotonic() + PATIENCE_S
            while not self._is_ready():
                if self._process.poll() is not None or time.monotonic() > give_up:
                    self.kill()
                    said.seek(begins)
                    raise NotStarted(self.name, said.read().decode(errors="replace"))
                time.sleep(_LOOK_EVERY_S)  # a process has no event for being ready

    def _forget(self) -> None:
        """Releases the handles of ended processes."""
        if self._guard is not None:
            dismiss_guard(self._guard)
        if self._process is not None:
            self._exit_code = self._process.wait()
        atexit.unregister(self._leave)
        self._process = self._guard = None
        self._paused = False

    def _leave(self) -> None:
        """Stops the child at exit; not at that of a fork, which has no child of its own."""
        if os.getpid() == self._owner_pid:
            self.stop()


class LineProcess(ChildProcess):
    """A command that exchanges lines with its parent.

    Its input is a pipe that stays open while it runs: a program that ends with its input also ends with its
    parent. A thread reads its output line by line. Its error output goes to a log file, or to that of its
    parent.
    """

    name = "the process"

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        reads_output: bool = True,
        reads_errors: bool = False,
    ) -> None:
        """`environment` replaces ours. Output that is not read goes where the error output goes."""
        super().__init__()
        self._line_command = command
        self._log_path = log_path
        self._environment = environment
        self._cwd = cwd
        self._reads_output = reads_output
        self._reads_errors = reads_errors
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader: threading.Thread | None = None

    @property
    def log(self) -> str:
        """The text of its log file."""
        return "" if self._log_path is None else self._log_path.read_text("utf-8", errors="replace")

    def write_line(self, line: str) -> None:
        """Writes a line to its input. Raises `ChronolineError` if the process has ended."""
        process = self._process
        try:
            if process is None or process.stdin is None:
                raise BrokenPipeError
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._failure("ended") from None

    def read_line(self, beginning: str = "", timeout_s: float = PATIENCE_S) -> str:
        """Returns the next line of its output with this beginning; skips other lines.

        Raises `ChronolineError` with the end of its log if the process ends, or after the time-out.
        """
        give_up = time.monotonic() + timeout_s
        while (left_s := give_up - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            if line is None:
                self._lines.put(None)  # for the next call
                raise self._failure("ended")
            if line.startswith(beginning):
                return line
        raise self._failure(f"took more than {timeout_s:g} s")

    def read_rest(self) -> list[str]:
        """Waits until the process ends, and returns the lines of its output that were not read."""
        self.wait()
        rest = list(iter(self._lines.get_nowait, None))
        self._lines.put(None)  # for the next call
        return rest

    def close_input(self) -> None:
        """Ends its input. May be called twice, and after its end."""
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()

    # The interface for subclasses; the thread calls these two

    def _take_line(self, line: str) -> None:
        """Called with each line of its output, without its end."""
        self._lines.put(line)

    def _take_end(self, code: int) -> None:
        """Called with the exit code, after the last line."""
        self._lines.put(None)

    # Inside

    def _command(self) -> Sequence[str | Path]:
        return self._line_command

    def _is_ready(self) -> bool:
        return True

    def _options(self) -> dict[str, Any]:
        options = {"stdin": subprocess.PIPE, "cwd": self._cwd, "env": self._environment}
        if self._log_path is None:
            options |= {"stdout": None, "stderr": None}
        if self._reads_output:
            options["stdout"] = subprocess.PIPE
        if self._reads_errors:
            options["stderr"] = subprocess.STDOUT
        return options

    def _open_output(self) -> IO[bytes]:
        return super()._open_output() if self._log_path is None else self._log_path.open("a+b")

    def _launch(self) -> None:
        self._lines = queue.Queue()
        super()._launch()
        if self._reads_output:
            assert self._process is not None
            self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
            self._reader.start()

    def _forget(self) -> None:
        process = self._process
        if process is not None:
            process.wait()
        self.close_input()
        if self._reader is not None:
            self._reader.join()
            self._reader = None
        super()._forget()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._take_line(line.decode(errors="replace").rstrip("\r\n"))
        self._take_end(process.wait())

    def _failure(self, what: str) -> ChronolineError:
        return ChronolineError(f"{self.name} {what}; its log ends with:\n{self.log[-_MOST_WORDS:]}")


class Server(ChildProcess):
    """A child process that listens on a port of its own, the same one at each start."""

    def __init__(self) -> None:
        super().__init__()
        (self._port,) = free_ports()
        self._port_is_known = False

    def start(self) -> None:
        """Starts the server, and waits until it answers. It picks another port only at the first start."""
        for _ in range(_PORT_TRIES):
            try:
                super().start()
            except NotStarted as error:
                if _TAKEN not in error.words.lower() or self._port_is_known:
                    raise
                (self._port,) = free_ports()
            else:
                self._port_is_known = True
                return
        raise ChronolineError(f"{self.name} found no free port in {_PORT_TRIES} tries")

    def _listens(self) -> bool:
        """Whether our process listens on its port."""
        return self.pid is not None and listens(self.pid, self._port)


def without(*prefixes: str) -> dict[str, str]:
    """Our environment, without variables that a child would use as settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def free_ports(number: int = 1) -> range:
    """Returns free ports of 127.0.0.1 that follow each other."""
    for first in random.sample(_PORTS, 100):
        ports = range(first, first + number)
        with ExitStack() as probes, suppress(OSError):
            for port in ports:
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return ports
    raise ChronolineError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")


def free_addresses(number: int) -> list[str]:
    """Returns free addresses on loopback."""
    return [f"127.0.0.1:{port}" for port in free_ports(number)]
