"""A database that has no `pg_logical_emit_message`, as some that only speak PostgreSQL's protocol."""

from __future__ import annotations

import psycopg

_KINDS = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'pg_logical_emit_message'"


def take_mark_away(url: str) -> None:
    """Renames the function in this database, in all its kinds."""
    with psycopg.connect(url, autocommit=True) as connection:
        for (kind,) in connection.execute(_KINDS).fetchall():
            connection.execute(f"ALTER FUNCTION {kind} RENAME TO gone".encode())


def forbid_mark(url: str, role: str) -> None:
    """Makes a role that may do all but call it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {role}".encode())
        for (kind,) in connection.execute(_KINDS).fetchall():
            connection.execute(f"REVOKE EXECUTE ON FUNCTION {kind} FROM PUBLIC".encode())
