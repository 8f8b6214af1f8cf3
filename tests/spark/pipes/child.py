"""A pipe as a process of its own, as users start it: it can be killed, and signals stop it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.runtime.child_process import LineProcess
from tests.spark.environment import environment, python_of_workers
from tests.spark.pipes.places import PATIENCE_S, numbers
from tests.spark.pipes.scene import until


class Child(LineProcess):
    """`chronoline pipe …` as a process. Its output goes to its log."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        program: Sequence[str] = (sys.executable, "-m", "chronoline"),
        cwd: Path | None = None,
        **env: str,
    ) -> None:
        super().__init__(
            [*program, "pipe", *arguments],
            log_path=folder / f"child-{next(numbers)}.log",
            environment=environment(
                folder, COLUMNS="200", PYSPARK_PYTHON=python_of_workers(folder), **env
            ),
            cwd=cwd or folder,
            reads_output=False,
        )
        self._family: list[psutil.Process] = []

    def wait_running(self) -> str:
        """Waits until the pipe runs; returns its node id."""
        until(lambda: "running as node" in self.log or not self.is_running, "the pipe runs")
        found = re.search(r"running as node ([0-9a-f-]+)", self.log)
        assert found, self.log[-3_000:]
        return found[1]

    def kill_driver(self) -> None:
        """SIGKILL to the driver's Python process alone; Spark's own end as they find out."""
        self._family = psutil.Process(self.pid).children(recursive=True)
        self.send_signal(signal.SIGKILL)
        self.wait()

    def kill_spark(self) -> None:
        """SIGKILL to Spark's JVM alone."""
        self._family = psutil.Process(self.pid).children(recursive=True)
        (jvm,) = (each for each in self._family if _name(each) == "java")
        jvm.kill()

    def terminate(self) -> int:
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def terminate_group(self) -> int:
        """SIGTERM to all processes of its group, as a supervisor sends it."""
        assert self.pid is not None
        os.killpg(self.pid, signal.SIGTERM)
        return self.wait()

    def wait(self, timeout_s: float | None = PATIENCE_S) -> int:
        return super().wait(timeout_s)

    def stop(self, patience_s: float = 0) -> None:
        self.kill()
        for process in self._family:  # orphans
            with suppress(psutil.NoSuchProcess):
                process.kill()


def flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the options of a command."""
    return [f"--set={name}={value}" for name, value in _flat(settings)]


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _name(process: psutil.Process) -> str | None:
    """The name of a process; None if it has ended meanwhile."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return None
