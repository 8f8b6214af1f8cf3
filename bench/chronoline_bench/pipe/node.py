"""The pipe as a process: `chronoline pipe run`, started and watched from outside, as users run it.

Pipe settings in the environment (`CHRONOLINE_PIPE_WINDOW_MS` and others) apply too, to measure variants.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from chronoline.runtime.child_process import LineProcess

_RUNS = "running as node"
_START_S = 180.0


class PipeProcess(LineProcess):
    """A pipe with these settings. All that it prints is in its log."""

    name = "the pipe"

    def __init__(self, flags: Mapping[str, object], log_path: Path) -> None:
        settings = [word for name, value in flags.items() for word in ("--set", f"{name}={value}")]
        super().__init__(
            [sys.executable, "-m", "chronoline", "pipe", "run", *settings],
            log_path=log_path,
            cwd=log_path.parent,
            reads_errors=True,
        )
        self._path = log_path

    def await_running(self) -> None:
        """Waits until the pipe says that it runs."""
        self.read_line(_RUNS, _START_S)

    def _take_line(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")
        super()._take_line(line)
