"""Plans of PostgreSQL's, for the tests of the timeline's queries and of the log's."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

Plan = dict[str, Any]
Connection = psycopg.Connection[tuple[Any, ...]]


_prepared: dict[str, tuple[str, list[str]]] = {}
"""Queries as the driver prepared them: the statement, and the types of its parameters."""


def explain(
    connection: Connection, query: str, values: Mapping[str, Any], options: str = ""
) -> Plan:
    """The plan of the real statement, prepared as the store's own driver does it.

    On the store's own session that is a plan for whatever values may come. Changes are rolled back.
    """
    if query not in _prepared:
        _prepared[query] = _prepare(connection, query, values)
    statement, types = _prepared[query]
    named = dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", query))
    arguments = f"({', '.join(f'%({each})s' for each in named)})" if named else ""
    signature = f"({', '.join(types)})" if types else ""
    with connection.transaction(force_rollback=True), psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"PREPARE probe {signature} AS {statement}".encode())
        text = f"EXPLAIN (FORMAT JSON{options}) EXECUTE probe {arguments}"
        row = cursor.execute(text.encode(), values).fetchone()
        cursor.execute("DEALLOCATE probe")
    assert row is not None
    found: Plan = row[0][0]["Plan"]
    return found


def _prepare(
    connection: Connection, query: str, values: Mapping[str, Any]
) -> tuple[str, list[str]]:
    with connection.transaction(force_rollback=True):
        connection.execute("DEALLOCATE ALL")
        connection.execute(query.encode(), values, prepare=True)
        ((statement, types),) = connection.execute(
            "SELECT statement, parameter_types::text[] FROM pg_prepared_statements "
            "WHERE statement NOT LIKE '%pg_prepared_%'"
        ).fetchall()
    return statement, types


def forget_statistics(connection: Connection, table: str) -> None:
    """Removes the statistics of a table; this needs a superuser."""
    ours = "SELECT %s::regclass UNION SELECT indexrelid FROM pg_index WHERE indrelid = %s::regclass"
    connection.execute(f"DELETE FROM pg_statistic WHERE starelid IN ({ours})".encode(), [table] * 2)
    connection.execute(
        f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid IN ({ours})".encode(),
        [table] * 2,
    )


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
