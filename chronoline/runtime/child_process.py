"""Child processes that are started, awaited, paused, stopped and killed by their parent.

A child is killed like a machine that loses power, and paused like one that hangs. A guard process ends it
with its parent, even if the parent is killed.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
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

PATIENCE_S = 60
_LOOK_EVERY_S = 0.01
_MOST_WORDS = 2_000
_PORT_TRIES = 10
# Below the ports of outgoing connections: no other process takes ours while the server is down.
_PORTS = range(20_000, 32_000)
_TAKEN = "Address already in use"


class _NotStarted(ChronolineError):
    """A child ended, or was not ready in time."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(f"{name} did not start; it said:\n{words[-_MOST_WORDS:]}")
        self.words = words


class ChildProcess(Service):
    """One child process, with the processes that it starts. It can start and stop any number of times."""

    name: ClassVar[str]
    """Its name in errors."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    is_guarded: ClassVar[bool] = True
    """False for a program that ends by itself when its parent is dead."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
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
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the child, and waits until it is ready."""
        if self.is_running:
            return
        self._forget()
        self._prepare()
        self._launch()

    def stop(self) -> None:
        """Stops the child orderly, and kills it if it does not end in `PATIENCE_S`."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(PATIENCE_S)
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
            options = {"stdout": said, "stderr": said, "cwd": "/", **self._options()}
            # Our own child: we reap it when it was killed. Otherwise the next start may take the
            # zombie for a server that still runs, and refuse.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for this process
                **options,
            )
            atexit.register(self._leave)
            if self.is_guarded:
                self._guard = start_guard(self._process.pid, self._folders())
            give_up = time.monotonic() + PATIENCE_S
            while not self._is_ready():
                if self._process.poll() is not None or time.monotonic() > give_up:
                    self.kill()
                    said.seek(begins)
                    raise _NotStarted(self.name, said.read().decode(errors="replace"))
                time.sleep(_LOOK_EVERY_S)  # a process has no event for being ready

    def _forget(self) -> None:
        """Releases the handles of ended processes."""
        if self._guard is not None:
            dismiss_guard(self._guard)
        if self._process is not None:
            self._process.wait()
        atexit.unregister(self._leave)
        self._process = self._guard = None
        self._paused = False

    def _leave(self) -> None:
        """Stops the child at exit; not at that of a fork, which has no child of its own."""
        if os.getpid() == self._owner_pid:
            self.stop()


class Server(ChildProcess):
    """A child process that listens on a port of its own, the same one at each start."""

    def __init__(self) -> None:
        super().__init__()
        self._port = _free_port()
        self._port_is_known = False

    def start(self) -> None:
        """Starts the server, and waits until it answers. It picks another port only at the first start."""
        for _ in range(_PORT_TRIES):
            try:
                super().start()
            except _NotStarted as error:
                if _TAKEN not in error.words or self._port_is_known:
                    raise
                self._port = _free_port()
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


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ChronolineError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")
