"""A process beside a measurement that only sleeps and wakes: what the machine itself does to deadlines.

with Control() as control:
    ...                        # what is to be measured
print(control.lateness.p99_ms)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import Self

from chronoline.core.errors import ChronolineError
from chronoline.runtime import sleeper
from chronoline.runtime.percentiles import Lateness

_PATIENCE_S = 30
_LOOK_EVERY_S = 0.005


class Control:
    """Starts the sleeper, and reads how late it woke: at any time, and after the end.

    It wakes about 200 times a second and takes about 1 % of a core. Stopping twice, or before the
    start, is fine; another start begins anew.
    """

    def __init__(self, *, longest_sleep_ms: float = 10) -> None:
        self._longest_sleep_ms = longest_sleep_ms
        self._sleeper: _Sleeper | None = None
        self._values_ms: list[float] = []

    @property
    def values_ms(self) -> list[float]:
        """How late it woke, each time, in order."""
        return self._values_ms if self._sleeper is None else self._sleeper.read()

    @property
    def lateness(self) -> Lateness:
        return Lateness.of(self.values_ms)

    def start(self) -> None:
        """Returns when the first sleep is over."""
        self.stop()
        self._sleeper = _Sleeper(self._longest_sleep_ms)
        give_up = time.monotonic() + _PATIENCE_S
        while not self._sleeper.read():
            if not self._sleeper.lives() or time.monotonic() > give_up:
                self.stop()
                raise ChronolineError("the control process, which only sleeps, did not start")
            time.sleep(_LOOK_EVERY_S)

    def stop(self) -> None:
        if self._sleeper is not None:
            self._values_ms = self._sleeper.end()
            self._sleeper = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Sleeper:
    """The process, and the file that it writes to: nobody has to read while something is measured."""

    def __init__(self, longest_sleep_ms: float) -> None:
        self._samples = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `end`
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", sleeper.__file__),
                *(str(longest_sleep_ms / 1000), str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._samples,
            start_new_session=True,  # an interrupt from the keyboard is for us
        )

    def lives(self) -> bool:
        return self._process.poll() is None

    def read(self) -> list[float]:
        file = self._samples.fileno()
        whole = os.fstat(file).st_size // sleeper.SAMPLE.size * sleeper.SAMPLE.size
        data = os.pread(file, whole, 0)
        return [value for (value,) in sleeper.SAMPLE.iter_unpack(data)]

    def end(self) -> list[float]:
        self._process.terminate()
        self._process.wait()
        with self._samples:
            return self.read()
