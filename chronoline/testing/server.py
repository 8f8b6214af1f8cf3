"""How the servers of tests and benchmarks start and end.

Each is a process of its own, so that it can be killed like a machine that loses power, and paused like one
that hangs. It ends with its parent, even if that is killed: a guard sees to it.
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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, ClassVar, Self

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.core.errors import ChronolineError
from chronoline.testing.processes import (
    dismiss_guard,
    kill_family,
    pause_family,
    resume_family,
    start_guard,
)

PATIENCE_S = 60
_LOOK_EVERY_S = 0.01
_PORT_TRIES = 10
# Below the ports that systems give to outgoing connections: none takes ours while we are down.
_PORTS = range(20_000, 32_000)
_TAKEN = "Address already in use"


class Server(ABC):
    """A server with a port of its own.

    It starts and stops as often as you like, on the same port; stopping twice, or before the start, is fine.
    """

    name: ClassVar[str]
    """What errors call it."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self._port = _free_port()
        self._port_is_known = False
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._owner_pid = os.getpid()
        atexit.register(self._leave)

    # What a server says of itself

    @abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """How it is started on `_port`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether it is our process that answers: another's server on our port would answer too."""

    def _prepare(self) -> None:
        """What is to be done before each start."""
        return

    def _options(self) -> dict[str, Any]:
        """Further arguments of its process, such as its environment."""
        return {}

    def _open_output(self) -> IO[bytes]:
        """Where its words go."""
        return tempfile.TemporaryFile()

    def _folders(self) -> Sequence[Path]:
        """What is removed when we are gone."""
        return ()

    # Starting and stopping

    @property
    def pid(self) -> int | None:
        """The first of its processes, or None while it does not run."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        self._forget()
        self._prepare()
        for _ in range(_PORT_TRIES):
            if self._try_start():
                return
            self._port = _free_port()
        raise ChronolineError(f"{self.name} found no free port in {_PORT_TRIES} tries")

    def stop(self) -> None:
        """Ends the server in order."""
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
        """Ends the server as a crash does, by SIGKILL to all of its processes at one moment."""
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
        """Lets a paused server go on."""
        if self._process is not None and self._paused:
            resume_family(self._process.pid)
            self._paused = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # How it is done

    def _try_start(self) -> bool:
        """Whether it started; not if another has the port, and nobody has been told of it yet."""
        with self._open_output() as said:
            begins = said.seek(0, os.SEEK_END)
            # Our own child: we reap it when it was killed. Where nobody does, the next start may take the
            # zombie for a server that is still there, and refuse.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd="/",
                start_new_session=True,
                **self._options(),
            )
            self._guard = start_guard(self._process.pid, self._folders())
            give_up = time.monotonic() + PATIENCE_S
            while not self._is_ready():
                if self._process.poll() is not None or time.monotonic() > give_up:
                    self.kill()
                    said.seek(begins)
                    words = said.read().decode(errors="replace")
                    if _TAKEN in words and not self._port_is_known:
                        return False
                    raise ChronolineError(f"{self.name} did not start; it said:\n{words[-2_000:]}")
                time.sleep(_LOOK_EVERY_S)  # a server says nothing when it is ready
        self._port_is_known = True
        return True

    def _listens(self) -> bool:
        """Whether our process listens on its port."""
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self.pid).net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr.port == self._port:
                    return True
        return False

    def _forget(self) -> None:
        """Lets go of processes that are over."""
        if self._guard is not None:
            dismiss_guard(self._guard)
        if self._process is not None:
            self._process.wait()
        self._process = self._guard = None
        self._paused = False

    def _leave(self) -> None:
        """What is left to do at exit; not at that of a fork, which has no server of its own."""
        if os.getpid() == self._owner_pid:
            self.stop()


def without(*prefixes: str) -> dict[str, str]:
    """Our environment, without what a server would take for settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ChronolineError(f"no port from {_PORTS.start} to {_PORTS.stop - 1} is free")
