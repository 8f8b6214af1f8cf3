"""Connections to a PostgreSQL database: pool, settings, errors, schema."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    RowsLocked,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from chronoline.databases.queries import load_migrations
from chronoline.runtime.extras import needs
from chronoline.runtime.fork_guard import ForkGuard
from chronoline.runtime.partner_traffic import PartnerTraffic, socket_bytes

with needs("PostgreSQL", "postgres"):
    import psycopg
    import psycopg_pool
    from psycopg.abc import PQGen
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

    from chronoline.databases.postgres_arrays import ListDumper

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
"""How long to wait for the answer to a statement; after that its outcome is unknown."""
DEFAULT_LOCK_TIMEOUT_MS = 5_000
"""How long a statement waits for a lock; after that it fails and nothing was changed."""
_TCP_SETTINGS = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
}
"""A server whose machine or network is gone is given up after 11 s, not after `ANSWER_TIMEOUT_S`.

The kernel of a server that is only slow, or stopped, still answers. A URL may set others by these names.
"""
_LOOK_EVERY_S = 0.1
_MOST_CONNECTIONS = 9
_TRIES = 5
_RANDOM = random.Random()  # the state of the caller's own is left alone
_SESSION_LOOKS = 5
NO_LISTEN = (
    "the database is behind a pooler that keeps no sessions, as PgBouncer does in transaction mode, and "
    "LISTEN is lost there: add ?notify=off to the URL, or connect to the server itself"
)
_MIGRATION_LOCK = 0x6368726F6E6F
_MIGRATION_LOCK_MS = 300
MIGRATION_S = 60.0
"""How long to try to migrate a schema whose tables others use."""
_WAIT_FOR_STANDBY = "SyncRepWaitForLSN"
_GIVEN_UP = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)

SAFE_PATH = "pg_catalog, pg_temp"
"""The search_path under which our statements run: their names and operators are those of PostgreSQL.

Where others can create in a schema of the role's own path, an operator of theirs would be called instead.
"""

_SET_PATH = """
    WITH before AS MATERIALIZED (SELECT pg_catalog.current_setting('search_path') AS path)
    SELECT path, pg_catalog.set_config('search_path', %(path)s, true) FROM before
"""

# The plans are always the same: walk an index, oldest first. A planner that has not seen the table grow yet
# must not choose a scan, and planning again for every batch costs more than it could find.
_SESSION_SETTINGS = {
    "application_name": "chronoline",
    "client_encoding": "UTF8",
    "search_path": SAFE_PATH,
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",  # where an index has the order
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "max_parallel_workers_per_gather": "0",
    # A longer statement fails, with nothing changed, before the client gives up on its answer.
    "statement_timeout": "50s",
    # A client that freezes within a transaction, or whose machine does, holds its rows no longer.
    "idle_in_transaction_session_timeout": "10s",
    "default_transaction_isolation": "read committed",
}


DURABLE_MARK = "SELECT pg_catalog.pg_logical_emit_message(true, 'chronoline', '')"
"""Writes a few bytes to the log of the database, and changes nothing.

So the commit waits like that of a change: for the disk, and for synchronous standbys. A transaction that only
reads waits for neither, and one that only has a number does not either.
"""
_NO_DURABLE_MARK = (psycopg.errors.UndefinedFunction, psycopg.errors.FeatureNotSupported)
"""The errors of a server that is no PostgreSQL, and has no such log."""

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]
Answer = TypeVar("Answer")


class _ImpatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """Gives up on a server that keeps the connection and does not answer."""

    patience_s: float | None = None
    """How long to wait for an answer; None means the time for any statement."""
    local: dict[str, str] | None = None
    """Settings that each transaction needs anew, since a pooler may give it another session."""
    is_only_local = False
    """Whether the wait of its last commit for a synchronous standby was cancelled."""

    counted_bytes = (0, 0)
    """The bytes to and from the server that are counted."""

    def count_bytes(self, traffic: PartnerTraffic) -> None:
        """Counts the bytes since the last call."""
        found = None if self.closed else socket_bytes(self.fileno())
        if found is not None:
            out_bytes, in_bytes = self.counted_bytes
            self.counted_bytes = found
            traffic.moved(out_bytes=found[0] - out_bytes, in_bytes=found[1] - in_bytes)

    def hear(self, notice: psycopg.errors.Diagnostic) -> None:
        """Handles a notice of the server. A cancelled wait is no error to it, and its text has a language."""
        self.is_only_local |= notice.source_function == _WAIT_FOR_STANDBY

    def wait(
        self,
        gen: PQGen[Answer],
        interval: float = _LOOK_EVERY_S,
        timeout: float | None = None,
    ) -> Answer:
        if timeout is None:
            timeout = ANSWER_TIMEOUT_S if self.patience_s is None else self.patience_s
        return super().wait(gen, interval, timeout)


class PostgresDatabase:
    """A pool of connections that commit each statement by itself."""

    def __init__(
        self, url: str, *, package: str, schema: str, lock_timeout_ms: int = DEFAULT_LOCK_TIMEOUT_MS
    ) -> None:
        self.url = url
        self._lock_timeout_ms = lock_timeout_ms
        # The server did not answer, and no connection succeeded since.
        self._is_lost = False
        self._fork_guard = ForkGuard("the store")
        self.traffic = PartnerTraffic()
        """The traffic of the pool's connections."""
        self.keeps_sessions = True
        """False behind a pooler in transaction mode: LISTEN and all session state are lost there."""
        self.has_mark = True
        """Whether the server knows `DURABLE_MARK`."""
        try:
            named = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            # The driver's message quotes the invalid part, which may be the password.
            raise InvalidInput(
                "the URL of the PostgreSQL database is not valid; write postgresql://user:password@host:5432/"
                "database, with % signs in its parts written as %25"
            ) from error
        self._connect_settings: dict[str, Any] = {
            "connect_timeout": int(CONNECT_TIMEOUT_S),
            **{name: value for name, value in _TCP_SETTINGS.items() if name not in named},
        }
        try:
            self._migrate(load_migrations(package), schema)
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreError(
                f"the database role may not use or make the schema {schema}: {error}; see "
                "docs/library.md for the rights it needs"
            ) from error
        except psycopg.Error as error:
            raise StoreError(f"the schema cannot be read or made: {_one_line(error)}") from error
        self._pool = psycopg_pool.ConnectionPool[_ImpatientConnection](
            url,
            connection_class=_ImpatientConnection,
            min_size=1,
            max_size=_MOST_CONNECTIONS,
            timeout=CONNECT_TIMEOUT_S,
            reconnect_timeout=CONNECT_TIMEOUT_S,  # it retries forever, at a constant pace
            kwargs={"autocommit": True, **self._connect_settings},
            configure=self._configure,
            open=True,
        )

    def check_open(self) -> None:
        if self._pool.closed:
            raise StoreClosed
        self.check_process()

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that opened it."""
        return self._fork_guard.is_forked

    def check_process(self) -> None:
        """Raises `StoreError` in a fork of the process that opened it."""
        self._fork_guard.check()

    def run(
        self,
        query: str,
        values: dict[str, Any],
        *,
        turn_ms: int | None = None,
        lock_ms: int | None = None,
        statement_ms: int | None = None,
    ) -> list[Row]:
        """Runs one statement that may change something; its rows come back when it is committed.

        If it waits for its turn longer than `turn_ms`, it is not sent. `lock_ms` bounds the wait for each
        lock, `statement_ms` the whole statement; None: as for any other.
        """
        bounds = {"lock_timeout": lock_ms, "statement_timeout": statement_ms}
        local = {name: f"{bound}ms" for name, bound in bounds.items() if bound is not None}
        return self._tried(
            lambda connection: self._fetch(connection, query, values, local),
            OutcomeUnknown,
            turn_ms,
        )

    def read(self, query: str, values: dict[str, Any]) -> list[Row]:
        """Runs one statement that changes nothing."""
        return self._tried(
            lambda connection: self._fetch(connection, query, values, {}), StoreUnavailable
        )

    def await_durable(self) -> None:
        """Waits until all commits that a read has shown are where a change that was answered is.

        A commit becomes visible before a synchronous standby has it if the server was started anew meanwhile,
        or the wait was cancelled. The log has an order, so a commit of ours behind them is enough.
        """
        if self.has_mark:
            self.run(DURABLE_MARK, {})

    def mark(self, connection: Connection) -> None:
        """Within a transaction: its commit waits as `await_durable` does."""
        if self.has_mark:
            fetch(connection, DURABLE_MARK, {})

    def transact(
        self,
        work: Callable[[Connection], Answer],
        *,
        turn_ms: int | None = None,
        lock_ms: int | None = None,
    ) -> Answer:
        """Runs several statements as one transaction; all of them again if the server gave it up.

        If it waits for its turn longer than `turn_ms`, it is not begun. `lock_ms` bounds the wait for each
        lock.
        """
        local = {} if lock_ms is None else {"lock_timeout": f"{lock_ms}ms"}

        def inside(connection: Connection) -> Answer:
            with connection.transaction():
                settings = _needed(connection) | local
                if settings:
                    _set_local(connection, settings)
                return work(connection)

        return self._tried(inside, OutcomeUnknown, turn_ms)

    def _tried(
        self,
        work: Callable[[Connection], Answer],
        when_lost: type[StoreError],
        turn_ms: int | None = None,
    ) -> Answer:
        begun = time.monotonic()
        for left in reversed(range(_TRIES)):
            try:
                with self.connection(turn_ms) as connection:
                    if turn_ms is not None and time.monotonic() > begun + turn_ms / 1000:
                        raise StoreBusy("its turn came too late; nothing was changed. Try again")
                    return work(connection)
            except _GIVEN_UP as error:
                if not left:
                    raise StoreUnavailable(
                        f"the server gave the statement up {_TRIES} times; nothing was changed: {error}"
                    ) from error
                time.sleep(_RANDOM.uniform(0.001, 0.01))  # so that the same two do not meet again
            except psycopg.errors.DiskFull as error:
                raise StoreFull(
                    f"the server has no room left; nothing was changed: {error}"
                ) from error
            except psycopg.errors.LockNotAvailable as error:
                raise RowsLocked(
                    f"others hold the rows for too long; nothing was changed: {error}"
                ) from error
            except psycopg.errors.QueryCanceled as error:
                raise StoreBusy(
                    f"the server took too long; nothing was changed: {error}"
                ) from error
            except psycopg.errors.IdleInTransactionSessionTimeout as error:
                raise StoreBusy(
                    f"this process paused within the transaction; nothing was changed: {error}"
                ) from error
            except psycopg.errors.ReadOnlySqlTransaction as error:
                self._pool.drain()  # the server has become a standby; another may have taken over
                raise StoreUnavailable(f"nothing was changed: {error}") from error
            except psycopg.OperationalError as error:
                self._is_lost = True
                self._pool.drain()
                raise when_lost(f"the server did not answer: {error}") from error
            except psycopg.Error as error:
                raise StoreError(f"the server refused a statement: {error}") from error
        raise AssertionError("unreachable")

    def _fetch(
        self, connection: Connection, query: str, values: dict[str, Any], local: dict[str, str]
    ) -> list[Row]:
        """The rows of one statement, with settings of its own in the same round trip and transaction."""
        local = _needed(connection) | local
        if not local:
            return fetch(connection, query, values)
        with connection.cursor(row_factory=tuple_row) as cursor:
            with connection.pipeline():
                _set_local(connection, local)
                cursor.execute(query.encode(), values, binary=True)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def connection(self, turn_ms: int | None = None) -> Iterator[_ImpatientConnection]:
        self.check_open()
        timeout_s = CONNECT_TIMEOUT_S if turn_ms is None else turn_ms / 1000
        try:
            connection = self._pool.getconn(timeout_s)
        except psycopg_pool.PoolClosed as error:
            raise StoreClosed from error
        except psycopg_pool.PoolTimeout as error:
            late = StoreUnavailable if turn_ms is None or self._is_lost else StoreBusy
            raise late(
                f"no connection to PostgreSQL within {timeout_s:.0f} s; nothing was changed"
            ) from error
        self._is_lost = False
        connection.is_only_local = False
        try:
            yield connection
            if connection.is_only_local:
                raise OutcomeUnknown(
                    "the wait for a synchronous standby was cancelled, and it may not have the change"
                )
        except psycopg.OperationalError:
            if connection.info.transaction_status is TransactionStatus.ACTIVE:
                connection.close()  # the answer may still come, and would be taken for another's
            raise
        finally:
            connection.count_bytes(self.traffic)
            self._pool.putconn(connection)

    def close(self) -> None:
        """May be called twice. In a fork it does nothing: the connections are its parent's."""
        if not self.forked:
            self._pool.close()

    def connect(
        self, *, patience_s: float | None = None, connect_s: float = CONNECT_TIMEOUT_S
    ) -> Connection:
        """A connection outside the pool, for a caller that waits on it, with its own time-outs."""
        try:
            connection = _ImpatientConnection.connect(
                self.url,
                autocommit=True,
                prepare_threshold=None,
                **self._connect_settings | {"connect_timeout": int(connect_s)},
            )
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"PostgreSQL cannot be reached: {_one_line(error)}") from error
        connection.patience_s = patience_s
        return connection

    def _configure(self, connection: _ImpatientConnection) -> None:
        connection.add_notice_handler(connection.hear)
        connection.adapters.register_dumper(list, ListDumper)
        settings = {"lock_timeout": f"{self._lock_timeout_ms}ms"} | _SESSION_SETTINGS
        row = connection.execute(
            "SELECT pg_catalog.current_setting('synchronous_commit')"
        ).fetchone()
        if row == ("off",):
            # An acknowledged commit survives a crash, whatever the database's default.
            settings["synchronous_commit"] = "on"
        if _is_pooled(connection):
            connection.local = settings
            connection.prepare_threshold = None  # the next transaction may have another session
            return
        for name, value in settings.items():
            connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])

    def _keeps_sessions(self, connection: Connection) -> bool:
        """Whether a connection keeps its session when it is idle."""
        if not _is_pooled(connection):
            return True
        with self.connect() as other:
            for _ in range(_SESSION_LOOKS):
                session = _session(connection)
                with other.transaction():
                    if _session(other) == session:
                        return False
        return True

    def _migrate(self, scripts: Sequence[str], schema: str) -> None:
        with self.connect() as connection:
            self.keeps_sessions = self._keeps_sessions(connection)
            self.has_mark = _has_mark(connection)
        with self.connect() as connection:
            _check_encoding(connection)
            if _known_version(connection, schema, len(scripts)) == len(scripts):
                return
            give_up = time.monotonic() + MIGRATION_S
            while True:
                try:
                    self._migrate_once(connection, scripts, schema)
                    return
                except (psycopg.errors.LockNotAvailable, *_GIVEN_UP) as error:
                    if time.monotonic() > give_up:
                        raise StoreBusy(
                            f"the schema {schema} cannot be migrated: a transaction of another client has "
                            f"held its tables for {MIGRATION_S:.0f} s. Nothing was changed; end it, and "
                            "start again"
                        ) from error
                time.sleep(_RANDOM.uniform(0.5, 1.0))  # those who waited behind it come first

    @staticmethod
    def _migrate_once(connection: Connection, scripts: Sequence[str], schema: str) -> None:
        """Makes the missing versions in one transaction.

        While it waits for a table, all other statements on that table wait behind it. So it waits for a
        moment only: brokers of an older version serve meanwhile.
        """
        with connection.transaction():
            connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
            connection.execute(f"SET LOCAL lock_timeout = {_MIGRATION_LOCK_MS}".encode())
            connection.execute(f"SET LOCAL search_path = {SAFE_PATH}".encode())
            if connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchone() == (None,):
                # It also fails for want of a right if the schema is there.
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {schema}.schema_version (version integer NOT NULL)".encode()
            )
            found = _known_version(
                connection, schema, len(scripts)
            )  # another process may have been faster
            for script in scripts[found:]:
                connection.execute(script.encode())
            connection.execute(f"DELETE FROM {schema}.schema_version".encode())
            connection.execute(
                f"INSERT INTO {schema}.schema_version VALUES (%s)".encode(),
                [len(scripts)],
            )


def _has_mark(connection: Connection) -> bool:
    """Whether a server knows `DURABLE_MARK`. A rollback waits for nothing."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(DURABLE_MARK.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            "the database role may not call pg_logical_emit_message, by which answers wait for standbys: "
            "grant EXECUTE on it"
        ) from error
    except _NO_DURABLE_MARK as error:
        logger.warning(
            "the database takes no pg_logical_emit_message (%s): an answer by a read, such as exists, is as "
            "durable as what the database shows",
            error.diag.message_primary,
            extra={"action": "no_mark"},
        )
        return False
    except psycopg.Error:  # a standby: it says so when something is changed
        return True
    return True


def _one_line(error: Exception) -> str:
    """The driver's text, whose hints have lines of their own. It never has the password."""
    return " ".join(str(error).split())


def _set_local(connection: Connection, settings: dict[str, str]) -> None:
    """Sets settings until the transaction ends. All values are our own; as text the statement is prepared."""
    calls = ", ".join(
        f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items()
    )
    connection.execute(f"SELECT {calls}".encode())


@contextmanager
def safe_path(connection: Connection) -> Iterator[None]:
    """Within the transaction of a connection that others use too, the search_path of our statements."""
    ((before, _),) = fetch(connection, _SET_PATH, {"path": SAFE_PATH})
    try:
        yield
    finally:
        # After an error of the server the rollback brings it back.
        if connection.info.transaction_status is TransactionStatus.INTRANS:
            fetch(connection, _SET_PATH, {"path": before})


def _needed(connection: Connection) -> dict[str, str]:
    """The settings that a transaction on this connection has to bring."""
    return getattr(connection, "local", None) or {}


def _session(connection: Connection) -> int:
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def _is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands in between: it invents the backend process id that it announces."""
    return _session(connection) != connection.info.backend_pid


def split_notify(url: str) -> tuple[str, bool]:
    """A URL without our own parameter `notify`, which libpq refuses, and whether it is on.

    `notify=off` is for servers behind a pooler that cannot LISTEN, and for many writers on a slow disk:
    commits that notify are flushed one after the other.
    """
    base, mark, query = url.rpartition("?")
    parameters = query.split("&") if mark else []
    wanted = [each for each in parameters if each.startswith("notify=")]
    if not wanted:
        return url, True
    if wanted not in (["notify=on"], ["notify=off"]):
        raise InvalidInput(
            "notify is either on or off: write ?notify=on or ?notify=off in the URL of the database"
        )
    others = "&".join(each for each in parameters if each not in wanted)
    return (f"{base}?{others}" if others else base), wanted == ["notify=on"]


def fetch(connection: Connection, query: str, values: dict[str, Any]) -> list[Row]:
    """The rows of one statement on a connection, whatever its row factory."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query.encode(), values, binary=True)
        return cursor.fetchall() if cursor.description else []


def _schema_version(connection: Connection, schema: str) -> int:
    table = f"{schema}.schema_version"
    known = connection.execute("SELECT pg_catalog.to_regclass(%s)", [table]).fetchone()
    if known is None or known[0] is None:
        return 0
    row = connection.execute(f"SELECT pg_catalog.max(version) FROM {table}".encode()).fetchone()
    return int(row[0] or 0) if row else 0


def _known_version(connection: Connection, schema: str, known: int) -> int:
    found = _schema_version(connection, schema)
    if found > known:
        raise SchemaTooNew(
            f"the database has schema version {found}, and this Chronoline knows up to {known}: "
            "upgrade Chronoline, or open another database"
        )
    return found


def _check_encoding(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"the database is encoded as {encoding}; make one with ENCODING 'UTF8'")
