"""A wall clock that tests can move, for processes that they start: libfaketime.

The machine's library is used. If it is missing, Debian's package is fetched once, without root, into the
cache folder; it is not installed.

Known flaws of its version 0.9.10: in a process under it `time.sleep` fails since Python 3.11
(wolfcw/libfaketime#426), and the kernel's own waits until a wall clock time ignore it.
"""

from __future__ import annotations

import os
from pathlib import Path

from chronoline_bench.servers.debian import fetch

_PACKAGE = "libfaketime"
_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"
_ROOT = Path("/")


class FakeTime:
    """The wall clock of the processes with its `environment`. The monotonic clock is not changed."""

    def __init__(self, folder: Path) -> None:
        """Raises `MissingExtra` if the library is not available. `folder` belongs to the test."""
        self._library = find_library()
        self._file = folder / "faketime"
        self.move(0)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables to add to a process."""
        others = [os.environ["LD_PRELOAD"]] if os.environ.get("LD_PRELOAD") else []
        return {
            "LD_PRELOAD": ":".join([str(self._library), *others]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Without it Python's threads spin instead of waiting for each other.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def move(self, ahead_s: float) -> None:
        """Sets the offset from the machine's clock; a negative one is behind."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{ahead_s:+f}\n")
        written.replace(self._file)  # libfaketime reads the file at every reading of the clock


def find_library(root: Path = _ROOT) -> Path:
    """Returns the path of libfaketime; fetches it if it is missing. Raises `MissingExtra`."""
    installed = sorted(root.glob(_LIBRARY))
    if installed:
        return installed[0]
    return fetch(_PACKAGE, _LIBRARY, remedy="install libfaketime")
