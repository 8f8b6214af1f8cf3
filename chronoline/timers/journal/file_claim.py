"""The claim of one process on a file: two writers of one journal would pop everything twice."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from chronoline.core.errors import StoreUnavailable


def claim(path: Path) -> IO[bytes]:
    """Claims a file until the returned handle is closed, or the process ends.

    Raises `StoreUnavailable` if another process has it.
    """
    claimed = path.with_name(f"{path.name}.lock").open("wb")
    try:
        fcntl.flock(claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claimed.close()
        raise StoreUnavailable(
            f"another process has {str(path)!r}: stop that node, or name another folder by --data"
        ) from None
    return claimed
