"""A child process of a bench or a test: reads its output, pauses and ends it."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from chronoline.core.errors import ChronolineError
from chronoline.runtime.process_family import kill_family, pause_family, resume_family
from chronoline.runtime.service import Closing

PATIENCE_S = 60.0
_LAST_WORDS = 3_000


class Child(Closing):
    """A process in its own session: Ctrl-C at our terminal does not reach it.

    Its input is a pipe that stays open until the parent ends. Its output is read line by line; with
    `hear=False` it goes to the log file, like its error output.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        hear: bool = True,
    ) -> None:
        """`environment` is added to the parent's."""
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if hear else log,
                stderr=log,
                text=True,
                bufsize=1,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self._log_path.read_text("utf-8", errors="replace")

    # Lines

    def say(self, line: str) -> None:
        """Writes a line to its input. Raises `ChronolineError` if the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
        except (BrokenPipeError, ValueError):
            raise self._ended() from None

    def hear(self, beginning: str = "", timeout_s: float = PATIENCE_S) -> str:
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
                raise self._ended()
            if line.startswith(beginning):
                return line
        raise ChronolineError(
            f"{self._name} took more than {timeout_s:g} s; its log ends with:\n{self._last_words()}"
        )

    # Pausing and ending

    def pause(self) -> None:
        """Pauses it and its descendants; when this returns, none of them runs."""
        pause_family(self.pid)

    def resume(self) -> None:
        resume_family(self.pid)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits until it ends by itself; returns its exit code."""
        code = self._process.wait(timeout_s)
        self._forget()
        return code

    def stop(self, patience_s: float = PATIENCE_S) -> int:
        """Ends it by SIGTERM, or after `patience_s` by SIGKILL; returns its exit code."""
        if self.lives:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        return self.kill()

    def kill(self) -> int:
        """Ends it and its descendants by SIGKILL; returns its exit code."""
        if self.lives:
            kill_family(self.pid)
        self._process.wait()
        self._forget()
        return self._process.returncode

    def close(self) -> None:
        self.kill()

    # Inside

    @property
    def _name(self) -> str:
        return f"the process {self.pid}"

    def _forget(self) -> None:
        """Closes the pipes of an ended process."""
        self._reader.join()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _read(self) -> None:
        if self._process.stdout is not None:
            with self._process.stdout as output:
                for line in output:
                    self._lines.put(line.rstrip("\n"))
        self._process.wait()
        self._lines.put(None)

    def _ended(self) -> ChronolineError:
        return ChronolineError(f"{self._name} ended; its log ends with:\n{self._last_words()}")

    def _last_words(self) -> str:
        return self.log[-_LAST_WORDS:]
