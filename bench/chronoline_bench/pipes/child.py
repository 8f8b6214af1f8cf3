"""A process of a bench: it says a line when it is ready, and ends when it is told to, or with us."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from chronoline.core.closing import Closing
from chronoline.core.errors import ChronolineError
from chronoline.testing.processes import dismiss_guard, kill_family, start_guard

_SAID_WHEN_FAILED = 3_000


class Child(Closing):
    """`python -m MODULE ARGUMENTS`. What it says on its error output is kept in a file."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = module.rpartition(".")[2]
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # an interrupt from the keyboard is for us
                env={**os.environ, **(environment or {})},
            )
        self._guard: subprocess.Popen[bytes] | None = start_guard(self._process.pid)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def await_line(self, beginning: str, timeout_s: float) -> str:
        """The next line that begins so; others are passed over."""
        give_up = time.monotonic() + timeout_s
        while (left_s := give_up - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            if line is None:
                raise ChronolineError(f"the process {self.name} ended; it said:\n{self._said()}")
            if line.startswith(beginning):
                return line
        raise ChronolineError(
            f"the process {self.name} took more than {timeout_s:g} s; it said:\n{self._said()}"
        )

    def stop(self, patience_s: float = 60.0) -> int:
        """Tells it to end and waits; its exit code. Who takes too long is killed."""
        if self._guard is None:
            return self._process.returncode
        self._process.terminate()
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            kill_family(self._process.pid)
            code = self._process.wait()
        dismiss_guard(self._guard)
        self._guard = None
        self._reader.join()
        return code

    def close(self) -> None:
        self.stop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _said(self) -> str:
        return self._log_path.read_text("utf-8", errors="replace")[-_SAID_WHEN_FAILED:]
