"""A temporary folder that belongs to a process, and that others remove if the process was killed.

The process holds a lock on a file in it, which the system releases when the process dies.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

from chronoline.runtime.service import Closable

_LOCK = ".lock"


class ProcessFolder(Closable):
    """A new folder under the temporary folder; those with the same prefix and a dead owner are removed."""

    def __init__(self, prefix: str) -> None:
        _remove_orphans(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        unlocked = self.path / f"{_LOCK}-new"
        self._lock = unlocked.open("xb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)  # nobody finds it without its lock

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_orphans(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        try:
            with path.open("r+b") as lock:  # NFS locks only what is open for writing
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except (
            OSError
        ):  # its owner lives, another process removes it, or it belongs to another user
            continue
