"""A temporary folder that belongs to a process, and that others remove if the process was killed.

The process holds a lock on a file in it, which the system releases when the process dies. Cleaners of
temporary files may remove the folder while the process lives: the next subfolder makes it anew.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO

from chronoline.runtime.private_files import is_own_folder, temporary_folders
from chronoline.runtime.service import Closable

_LOCK = ".lock"


class ProcessFolder(Closable):
    """A new folder under the temporary folder; those with the same prefix and a dead owner are removed."""

    def __init__(self, prefix: str) -> None:
        _remove_orphans(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._lock = self._hold()

    def subfolder(self, name: str) -> Path:
        """Makes a new folder in it."""
        if not (self.path / _LOCK).exists():
            self.path.mkdir(mode=0o700, exist_ok=True)
            if not is_own_folder(self.path):
                raise PermissionError(f"{str(self.path)!r} was replaced by another user")
            self._lock.close()
            self._lock = self._hold()
        folder = self.path / name
        folder.mkdir()
        return folder

    def _hold(self) -> IO[bytes]:
        unlocked = self.path / f"{_LOCK}-new"
        lock = unlocked.open("xb")
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _LOCK)  # nobody finds it without its lock
        return lock

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _remove_orphans(prefix: str) -> None:
    for folder in temporary_folders(prefix):
        try:
            with (folder / _LOCK).open("r+b") as lock:  # NFS locks only what is open for writing
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its owner lives, or another process removes it
            continue
