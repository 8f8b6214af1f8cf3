"""Locks as on NFS, where an exclusive lock needs a file that is open for writing."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import IO

_flock = fcntl.flock


def flock_of_nfs(file: IO[bytes], operation: int) -> None:
    """Takes the place of fcntl.flock."""
    if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    _flock(file, operation)
