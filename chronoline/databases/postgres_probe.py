"""A probe: does a PostgreSQL server answer, and does it finish commits?

It asks by two statements at once, each on a connection of its own: a read, and a record in the log of the
database. The record touches no table and leaves no row behind, but its commit waits for all that other
commits wait for: the disk, and synchronous standbys. A server whose standby is away answers reads, and no
commit ends.

A commit that does not end is not sent again: each would keep a process of the server. The next call waits for
the same one, and its end is the sign that the server takes changes again. If the read is not answered
either, the server or the way to it is silent: both connections are given up, and made anew by the next call.
"""

from __future__ import annotations

import select
import time

import psycopg
from psycopg import pq

from chronoline.core.errors import StoreUnavailable
from chronoline.databases.postgres import DURABLE_MARK, Connection, PostgresDatabase

_READ = b"SELECT 1"
_WRITE = f"""
SELECT pg_catalog.set_config(
    'synchronous_commit',
    pg_catalog.replace(pg_catalog.current_setting('synchronous_commit'), 'off', 'on'),
    true
);
{DURABLE_MARK}
""".encode()
_CONNECT_S = 2.0
"""The shortest that libpq takes."""


class _Question:
    """A statement on a connection of its own, and when it was sent."""

    def __init__(self, database: PostgresDatabase, statement: bytes) -> None:
        self._database = database
        self._statement = statement
        self._connection: Connection | None = None
        self._sent_s: float | None = None

    @property
    def unanswered_s(self) -> float:
        """How long it has been without its answer; 0 if it was answered."""
        return 0.0 if self._sent_s is None else time.monotonic() - self._sent_s

    @property
    def socket(self) -> int | None:
        """Where the answer arrives; None if none is awaited."""
        if self._sent_s is None or self._connection is None:
            return None
        return self._connection.pgconn.socket

    def send(self) -> None:
        """Sends it, unless its answer is awaited. An old connection may have ended: then on a new one."""
        if self._sent_s is not None:
            return
        if self._connection is not None:
            try:
                self._send(self._connection)
            except psycopg.OperationalError:
                self.close()
            else:
                return
        self._connection = self._database.connect(connect_s=_CONNECT_S)
        self._send(self._connection)

    def _send(self, connection: Connection) -> None:
        connection.pgconn.consume_input()  # raises if the server has ended the connection
        connection.pgconn.send_query(self._statement)
        connection.pgconn.flush()
        self._sent_s = time.monotonic()

    def look(self) -> None:
        """Takes the answer, if it is there. Raises `OperationalError` if the connection ended."""
        assert self._connection is not None
        wire = self._connection.pgconn
        wire.consume_input()
        while not wire.is_busy():
            result = wire.get_result()
            if result is None:
                self._sent_s = None
                return
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.get_error_message())

    def close(self) -> None:
        connection, self._connection, self._sent_s = self._connection, None, None
        if connection is not None:
            connection.close()


class PostgresProbe:
    """The probe of one database, for one thread at a time."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._read = _Question(database, _READ)
        self._write = _Question(database, _WRITE if database.has_mark else _READ)

    @property
    def unfinished_s(self) -> float:
        """How long a commit has been without its end; 0 if the last one has ended."""
        return self._write.unanswered_s

    def ask(self, patience_s: float) -> bool:
        """Whether the server answers within this time. Raises `StoreUnavailable` if it cannot be reached."""
        try:
            for question in (self._write, self._read):
                question.send()
            self._wait(patience_s)
        except psycopg.OperationalError as error:
            self.close()
            raise StoreUnavailable(f"the server did not answer: {error}") from error
        except StoreUnavailable:
            self.close()
            raise
        if self._read.socket is not None and self._write.socket is not None:
            self.close()
            return False
        if self._read.socket is not None:
            self._read.close()  # the commit tells enough, and the next read may have a better way
        return True

    def _wait(self, patience_s: float) -> None:
        """Waits until both are answered, or for this time."""
        until_s = time.monotonic() + patience_s
        while waiting := [each for each in (self._write, self._read) if each.socket is not None]:
            poll = select.poll()
            for question in waiting:
                assert question.socket is not None
                poll.register(question.socket, select.POLLIN)
            left_s = until_s - time.monotonic()
            arrived = {socket for socket, _ in poll.poll(max(0.0, left_s) * 1000)}
            for question in waiting:
                if question.socket in arrived:
                    question.look()
            if not arrived and left_s <= 0:
                return

    def close(self) -> None:
        """May be called twice."""
        self._read.close()
        self._write.close()
