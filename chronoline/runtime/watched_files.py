"""A value that is read from files, and read again when they change."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from chronoline.core.errors import InvalidInput

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
_Marks = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles(Generic[Value]):
    """The value of some files, for any thread. Files that cannot be read leave the last value in force.

    Files are often written one after the other, so that a certificate meets the key of another for a moment:
    they are tried again at the next use, and the problem is logged once.
    """

    def __init__(self, what: str, files: Sequence[Path], read: Callable[[], Value]) -> None:
        """`read` raises `InvalidInput`; here it does so at once, for files that are wrong from the start."""
        self._what = what
        self._files = tuple(files)
        self._read = read
        self._lock = threading.Lock()
        self._marks = self._look()
        self._value = read()
        self._problem = ""

    def current(self) -> Value:
        marks = self._look()
        if marks == self._marks:
            return self._value
        with self._lock:
            try:
                self._value = self._read()
            except InvalidInput as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    fields = {"action": "reload_failed", "what": self._what}
                    logger.error("the old %s stays: %s", self._what, error, extra=fields)
            else:
                # Looked at before it was read: a write in between is noticed at the next use.
                self._marks, self._problem = marks, ""
                fields = {"action": "reloaded", "what": self._what}
                logger.info("the %s was read again", self._what, extra=fields)
        return self._value

    def _look(self) -> _Marks:
        return tuple(map(_mark, self._files))


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
