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

Sample = tuple[float, float]
"""The wall clock's time of a wake-up in seconds, and its lateness in ms."""


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
        self._file: IO[bytes] | None = None
        self._read_samples: list[Sample] = []

    @property
    def samples(self) -> list[Sample]:
        """Each wake-up, in order."""
        return self._read_samples if self._file is None else _read(self._file)

    @property
    def values_ms(self) -> list[float]:
        """The lateness of each wake-up in ms, in order."""
        return [late_ms for _, late_ms in self.samples]

    @property
    def lateness(self) -> Lateness:
        return Lateness.of(self.values_ms)

    def _prepare(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `_forget`

    def _command(self) -> Sequence[str | Path]:
        longest_s = str(self._longest_sleep_ms / 1000)
        return [sys.executable, "-I", "-S", sleeper.__file__, longest_s, str(os.getpid())]

    def _options(self) -> dict[str, Any]:
        return {"stdout": self._file}

    def _is_ready(self) -> bool:
        return bool(self.values_ms)

    def _forget(self) -> None:
        super()._forget()
        if self._file is not None:
            with self._file as file:
                self._read_samples = _read(file)
            self._file = None


def _read(file: IO[bytes]) -> list[Sample]:
    size = sleeper.SAMPLE.size
    whole = os.fstat(file.fileno()).st_size // size * size
    data = os.pread(file.fileno(), whole, 0)
    return [(moment_s, late_ms) for moment_s, late_ms in sleeper.SAMPLE.iter_unpack(data)]
