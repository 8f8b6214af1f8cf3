"""The timeline in one SQLite file: the embedded default.

State: a write-ahead log flushed at every commit (`synchronous=FULL`), so that an answered change survives
power loss. One connection writes, under a lock, in immediate transactions that contain both the check and
the write; readers have connections of their own and never wait for the writer.

Several processes may share the file. A writer that meets another process's lock tries again every few
milliseconds until `busy_ms` is over (a create: for a second at most), then raises `StoreBusy`: nothing was
changed. SQLite's `data_version` shows commits of other processes.

Failure: a full disk is `StoreFull`, nothing was changed. After a failed flush the state of the disk is
unknown, so the process stops; the next start recovers from the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from chronoline.databases.sqlite import DEFAULT_BUSY_MS, stop_process
from chronoline.stores.sqlite.engine import SqliteEngine
from chronoline.stores.timeline import Timeline

__all__ = ["SqliteEngine", "SqliteStore"]


class SqliteStore(Timeline):
    """A store in one file: `Timeline(SqliteEngine(path))`."""

    engine: SqliteEngine

    def __init__(
        self,
        path: str,
        *,
        busy_ms: int = DEFAULT_BUSY_MS,
        random_bytes: Callable[[int], bytes] = os.urandom,
        on_failed_flush: Callable[[BaseException], NoReturn] = stop_process,
    ) -> None:
        engine = SqliteEngine(path, busy_ms=busy_ms, on_failed_flush=on_failed_flush)
        super().__init__(engine, random_bytes)
