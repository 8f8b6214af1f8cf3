"""A wall clock that tests can move, for processes that they start: libfaketime.

The library is the machine's. Where it is not there Debian's package is fetched once, without root, into the
cache folder; it is not installed.

Known flaws of its version 0.9.10: in a process under it `time.sleep` fails since Python 3.11
(wolfcw/libfaketime#426), and the kernel's own waits until a moment of the wall clock know nothing of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from chronoline_bench.servers.debian import fetch

_PACKAGE = "libfaketime"
_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"
_ROOT = Path("/")


class FakeTime:
    """The wall clock of the processes that get its `environment`. The clock that only counts stays right."""

    def __init__(self, folder: Path) -> None:
        """Raises `MissingExtra` if the library cannot be had. `folder` is the test's own."""
        self._library = find_library()
        self._file = folder / "faketime"
        self.move(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs besides its own."""
        others = [os.environ["LD_PRELOAD"]] if os.environ.get("LD_PRELOAD") else []
        return {
            "LD_PRELOAD": ":".join([str(self._library), *others]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Else Python's threads do not wait for each other, but turn in circles.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def move(self, ahead_s: float) -> None:
        """From now on it is so far ahead of the machine's; less than 0 is behind."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{ahead_s:+f}\n")
        written.replace(self._file)  # it is read at every glance at the clock


def find_library(root: Path = _ROOT) -> Path:
    """Where libfaketime lies; fetches it where it is missing. Raises `MissingExtra`."""
    installed = sorted(root.glob(_LIBRARY))
    if installed:
        return installed[0]
    return fetch(_PACKAGE, _LIBRARY, remedy="install libfaketime")
