"""A pipe as a process of its own, as users start it: it can be killed, and is told to stop by signals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.runtime.process_family import dismiss_guard, kill_family, start_guard
from chronoline.runtime.service import Closing
from tests.spark.environment import environment, python_of_workers
from tests.spark.pipes.places import PATIENCE_S, numbers
from tests.spark.pipes.scene import until


class Child(Closing):
    """`chronoline pipe …` as a process. Its output goes to a file."""

    def __init__(self, folder: Path, *arguments: str, cwd: Path | None = None, **env: str) -> None:
        self._words = folder / f"child-{next(numbers)}.log"
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chronoline", "pipe", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                cwd=cwd or folder,
                env=environment(
                    folder, COLUMNS="200", PYSPARK_PYTHON=python_of_workers(folder), **env
                ),
            )
        self._guard = start_guard(self._process.pid)
        self._family: list[psutil.Process] = []

    @property
    def words(self) -> str:
        return self._words.read_text(errors="replace")

    def wait_running(self) -> str:
        """Waits until the pipe runs; returns its node id."""
        until(lambda: "running as node" in self.words or self._is_over(), "the pipe runs")
        found = re.search(r"running as node ([0-9a-f-]+)", self.words)
        assert found, self.words[-3_000:]
        return found[1]

    def kill(self) -> None:
        """SIGKILL to the driver's Python process alone; Spark's own end as they find out."""
        self._family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()

    def kill_all(self) -> None:
        """SIGKILL to all of its processes at one moment."""
        kill_family(self._process.pid)
        self._process.wait()

    def kill_spark(self) -> None:
        """SIGKILL to Spark's JVM alone."""
        self._family = psutil.Process(self._process.pid).children(recursive=True)
        (jvm,) = (each for each in self._family if each.name() == "java")
        jvm.kill()

    def terminate(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Waits for the end; returns the exit code."""
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        dismiss_guard(self._guard)
        if not self._is_over():
            kill_family(self._process.pid)
        self._process.wait()
        for process in self._family:  # orphans
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _is_over(self) -> bool:
        return self._process.poll() is not None


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the options of a command."""
    return [f"--set={name}={value}" for name, value in _flat(settings)]


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
