"""The processor time of the parts of a measurement: each is a few processes with their descendants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]  # it ships no types

_JVM = "java"


def is_jvm(program: str) -> bool:
    return program == _JVM


def is_no_jvm(program: str) -> bool:
    return program != _JVM


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Processes, and those of their descendants whose program is wanted."""

    pids: Sequence[int]
    wanted: Callable[[str], bool] = lambda program: True
    is_alone: bool = False
    """Descendants do not count: they are other parts."""

    def processor_s(self) -> float:
        """Returns the processor time that they have used, with that of descendants that ended."""
        if self.is_alone:
            return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)
        total_s = 0.0
        for process in family(*self.pids):
            with suppress(psutil.NoSuchProcess):  # it ends meanwhile
                if self.wanted(process.name()):
                    total_s += sum(process.cpu_times()[:4])
        return total_s


class CoreMeter:
    """Measures the processor time of parts from its start on, in cores: seconds of all cores per second."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self._started_s = time.monotonic()
        self._before_s = self._look()

    def read(self) -> dict[str, float]:
        """Returns the cores that each part has used since the start."""
        took_s = time.monotonic() - self._started_s
        return {name: (now - self._before_s[name]) / took_s for name, now in self._look().items()}

    def _look(self) -> dict[str, float]:
        return {name: part.processor_s() for name, part in self._parts.items()}


def family(*pids: int) -> Iterator[psutil.Process]:
    """Yields processes and their descendants that run."""
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(pid)
            for process in (first, *first.children(recursive=True)):
                with suppress(psutil.NoSuchProcess), process.oneshot():
                    process.cpu_times()  # raises for one that has ended
                    yield process
