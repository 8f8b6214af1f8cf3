"""The bench's side of an agent."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from chronoline.core.closing import Closing
from chronoline.core.errors import ChronolineError

_MODULE = "chronoline_bench.brokers.agent"
_SAID_WHEN_FAILED = 3_000
PATIENCE_S = 120.0


class AgentProcess(Closing):
    """An agent. What it says on its error output is kept in a file."""

    def __init__(self, log_path: Path, module: str = _MODULE) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                start_new_session=True,  # an interrupt from the keyboard is for us
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def begin(self, do: str, **asked: Any) -> None:
        """Tells it to do something; `answer` waits until it is done."""
        assert self._process.stdin is not None
        if self._process.poll() is not None:
            raise self._ended()
        try:
            self._process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Raises `ChronolineError` with what it says was wrong."""
        try:
            line = self._lines.get(timeout=patience_s)
        except queue.Empty:
            raise ChronolineError(
                f"an agent took more than {patience_s:g} s; it said:\n{self._said()}"
            ) from None
        if line is None:
            self._lines.put(None)  # for whoever asks again
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChronolineError(answer["error"])
        done: dict[str, Any] = answer["done"]
        return done

    def ask(self, do: str, patience_s: float = PATIENCE_S, **asked: Any) -> dict[str, Any]:
        self.begin(do, **asked)
        return self.answer(patience_s)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """It ends with its input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self._lines.put(line)
        self._process.wait()
        self._lines.put(None)

    def _ended(self) -> ChronolineError:
        return ChronolineError(f"an agent ended; it said:\n{self._said()}")

    def _said(self) -> str:
        return self._log_path.read_text("utf-8", errors="replace")[-_SAID_WHEN_FAILED:]
