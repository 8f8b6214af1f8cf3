"""How much memory a process has, over a stretch of time."""

from __future__ import annotations

import threading
from statistics import median

import psutil  # type: ignore[import-untyped]  # it ships no types

from chronoline.core.closing import Closing

_MB = 1024 * 1024


class MemoryWatch(Closing):
    """Looks at a process again and again, from its making to `close`."""

    def __init__(self, pid: int, every_s: float) -> None:
        self._process = psutil.Process(pid)
        self._every_s = every_s
        self._stopping = threading.Event()
        self.samples_mb: list[float] = []
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.samples_mb.append(self._process.memory_info().rss / _MB)


def thirds(samples: list[float]) -> tuple[float, float]:
    """The medians of the first third and of the last; at least one sample is needed."""
    third = max(1, len(samples) // 3)
    return median(samples[:third]), median(samples[-third:])
