"""A primary and a synchronous standby, for tests of what a failover keeps."""

from __future__ import annotations

from pathlib import Path

import psycopg

from chronoline.testing.postgres import PostgresServer


class PostgresStandby(PostgresServer):
    """A standby that streams from a running primary, and can be promoted.

    It begins as a copy of the primary. It answers reads from its start on.
    """

    name = "PostgreSQL standby"

    def __init__(self, data_dir: Path, primary: PostgresServer) -> None:
        self._primary_url = primary.url()
        super().__init__(data_dir)

    def promote(self) -> None:
        """Makes it a primary, with what it has received."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")

    def _fill_data_dir(self) -> None:
        self.data_dir.resolve().chmod(0o700)
        self._run(
            *("pg_basebackup", "-D", str(self.data_dir.resolve()), "-d", self._primary_url),
            *("--write-recovery-conf", "--checkpoint=fast", "--no-sync"),
        )


def require_standby(primary: PostgresServer) -> None:
    """From now on each commit of the primary waits until a standby has it, too."""
    _set_standbys(primary, "*")


def waive_standby(primary: PostgresServer) -> None:
    """From now on no commit of the primary waits for a standby; those that wait go on."""
    _set_standbys(primary, "")


def _set_standbys(primary: PostgresServer, names: str) -> None:
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        # Of this session: nobody has to wait for the change of a setting.
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        connection.execute("SELECT pg_reload_conf()")


def waiting_for_standby(primary: PostgresServer) -> int:
    """The number of commits that wait for a standby."""
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        ).fetchone()
    assert row is not None
    return int(row[0])
