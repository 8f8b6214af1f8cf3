"""A synchronous standby that is not there: reads are answered, and no commit ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@contextmanager
def absent_standby(url: str) -> Iterator[None]:
    """The server waits for it at each commit, until the block ends."""
    _set(url, "ALTER SYSTEM SET synchronous_standby_names = 'absent'", expected="absent")
    try:
        yield
    finally:
        _set(url, "ALTER SYSTEM RESET synchronous_standby_names", expected="")


def commits_that_wait(url: str) -> int:
    """The number of the server's processes whose commits wait for a standby."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_WAITING).fetchone()
        assert row is not None
        return int(row[0])


def _set(url: str, statement: str, *, expected: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW synchronous_standby_names").fetchone() != (expected,):
            pass  # the server reads its settings a moment later
