"""The state of a PostgreSQL database for a diagnosis. Nothing is made, migrated or changed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from chronoline.core.errors import InvalidInput, StoreError, StoreUnavailable
from chronoline.databases.postgres import SAFE_PATH
from chronoline.runtime.extras import needs

with needs("PostgreSQL", "postgres"):
    import psycopg

Connection = psycopg.Connection[tuple[object, ...]]

_SETTINGS = ("fsync", "full_page_writes", "autovacuum", "max_connections")
_STATE = """
    SELECT current_setting('server_version'), current_setting('server_encoding'),
        pg_is_in_recovery(), to_regclass(%(schema)s || '.schema_version') IS NOT NULL,
        (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        has_database_privilege(current_database(), 'CREATE')
            OR coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'CREATE'), false)
"""
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_OLDEST = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8
    FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_INVALID = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %(schema)s AND NOT (i.indisvalid AND i.indisready) ORDER BY 1
"""
_INDEXES = "SELECT indexname FROM pg_indexes WHERE schemaname = %(schema)s"
_DEAD = """
    SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint
    FROM pg_stat_user_tables WHERE schemaname = %(schema)s
"""
_BYTES = "SELECT pg_database_size(current_database())"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresFacts:
    """The state of a database, read by one short connection."""

    version: str
    encoding: str
    is_standby: bool
    may_create: bool
    """Whether the role may make the schema, or its tables in a schema that is there."""
    schema_version: int | None
    """None: the database has no tables of this schema."""
    settings: Mapping[str, str]
    """`fsync`, `full_page_writes`, `autovacuum`, `max_connections`."""
    connections: int
    """The connections of all clients to the server."""
    oldest_transaction_s: float
    """The age of the oldest open transaction of another client."""
    clock_offset_ms: int
    clock_error_ms: int
    """The offset may be wrong by this."""
    indexes: frozenset[str]
    invalid_indexes: tuple[str, ...]
    live_rows: int
    dead_rows: int
    """Of all tables of the schema, by the statistics of the server."""
    size_bytes: int
    answer_ms: float
    """The duration of a statement that reads nothing."""


def read_facts(url: str, *, schema: str, timeout_s: float) -> PostgresFacts:
    """Reads the facts in one connection that cannot write.

    Raises `StoreUnavailable` if the server does not answer, `InvalidInput` for a wrong URL.
    """
    with _looking(url, timeout_s) as connection:
        return _read(connection, schema)


def read_identity(url: str, *, timeout_s: float) -> str | None:
    """The identity of a timeline store; None before its tables have one. Raises as `read_facts`."""
    with _looking(url, timeout_s) as connection:
        row = connection.execute("SELECT to_regclass('chronoline.identity') IS NOT NULL").fetchone()
        if row != (True,):
            return None
        found = connection.execute("SELECT id FROM chronoline.identity").fetchone()
        return None if found is None else str(found[0])


@contextmanager
def _looking(url: str, timeout_s: float) -> Iterator[Connection]:
    """A connection that cannot write."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # The driver's message quotes the invalid part, which may be the password.
        raise InvalidInput(
            "the URL of the PostgreSQL database is not valid; write "
            "postgresql://user:password@host:5432/database, with % signs in its parts written as %25"
        ) from error
    try:
        with psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=math.ceil(timeout_s),
            application_name="chronoline doctor",
            prepare_threshold=None,
        ) as connection:
            connection.execute("SET default_transaction_read_only = on")
            connection.execute(f"SET search_path = {SAFE_PATH}".encode())
            connection.execute(f"SET statement_timeout = {round(timeout_s * 1000)}".encode())
            yield connection
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached: {_one_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"the server refused a statement: {_one_line(error)}") from error


def _read(connection: Connection, schema: str) -> PostgresFacts:
    def row(query: str) -> tuple[object, ...]:
        found = connection.execute(query.encode(), {"schema": schema}).fetchone()
        assert found is not None
        return found

    begun = time.monotonic()
    connection.execute("SELECT 1")
    answer_ms = (time.monotonic() - begun) * 1000
    before_ns = time.time_ns()
    (clock_ms,) = row(_CLOCK)
    after_ns = time.time_ns()
    version, encoding, is_standby, has_schema, connections, may_create = row(_STATE)
    schema_version = None
    if has_schema:
        (schema_version,) = row(f"SELECT max(version) FROM {schema}.schema_version")
    (oldest_s,) = row(_OLDEST)
    live_rows, dead_rows = row(_DEAD)
    (size_bytes,) = row(_BYTES)
    settings = {name: str(row(f"SELECT current_setting('{name}')")[0]) for name in _SETTINGS}
    names = {"schema": schema}
    indexes = connection.execute(_INDEXES.encode(), names).fetchall()
    invalid = connection.execute(_INVALID.encode(), names).fetchall()
    return PostgresFacts(
        version=str(version),
        encoding=str(encoding),
        is_standby=bool(is_standby),
        may_create=bool(may_create),
        schema_version=None if schema_version is None else int(str(schema_version)),
        settings=settings,
        connections=int(str(connections)),
        oldest_transaction_s=float(str(oldest_s)),
        clock_offset_ms=round(int(str(clock_ms)) - (before_ns + after_ns) / 2_000_000),
        clock_error_ms=math.ceil((after_ns - before_ns) / 2_000_000),
        indexes=frozenset(str(name) for (name,) in indexes),
        invalid_indexes=tuple(str(name) for (name,) in invalid),
        live_rows=int(str(live_rows)),
        dead_rows=int(str(dead_rows)),
        size_bytes=int(str(size_bytes)),
        answer_ms=answer_ms,
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
