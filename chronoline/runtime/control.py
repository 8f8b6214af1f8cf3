"""A control process, which only sleeps and wakes beside a measurement: it shows the machine's lateness.

with Control() as control:
    ...                        # the measurement
print(control.lateness.p99_ms)
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from chronoline.core.lateness import Lateness
from chronoline.runtime import sleeper
from chronoline.runtime.child_process import ChildProcess


class Control(ChildProcess):
    """Starts the sleeper, and reads its lateness: at any time, and after the end.

    It wakes about 200 times a second and takes about 1 % of a core. Another start begins anew.
    """

    name = "the control process, which only sleeps,"
    is_guarded = False  # the sleeper watches its parent itself

    def __init__(self, *, longest_sleep_ms: float = 10) -> None:
        super().__init__()
        self._longest_sleep_ms = longest_sleep_ms
        # A file: no process has to read it during the measurement.
        self._samples: IO[bytes] | None = None
        self._values_ms: list[float] = []

    @property
    def values_ms(self) -> list[float]:
        """The lateness of each wake-up in ms, in order."""
        return self._values_ms if self._samples is None else _read(self._samples)

    @property
    def lateness(self) -> Lateness:
        return Lateness.of(self.values_ms)

    def _prepare(self) -> None:
        self._samples = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_forget`

    def _command(self) -> Sequence[str | Path]:
        longest_s = str(self._longest_sleep_ms / 1000)
        return [sys.executable, "-I", "-S", sleeper.__file__, longest_s, str(os.getpid())]

    def _options(self) -> dict[str, Any]:
        return {"stdout": self._samples}

    def _is_ready(self) -> bool:
        return bool(self.values_ms)

    def _forget(self) -> None:
        super()._forget()
        if self._samples is not None:
            with self._samples as samples:
                self._values_ms = _read(samples)
            self._samples = None


def _read(samples: IO[bytes]) -> list[float]:
    size = sleeper.SAMPLE.size
    whole = os.fstat(samples.fileno()).st_size // size * size
    data = os.pread(samples.fileno(), whole, 0)
    return [value for (value,) in sleeper.SAMPLE.iter_unpack(data)]
