"""Plans of PostgreSQL's, for the tests of the timeline's queries and of the log's."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

Plan = dict[str, Any]
Connection = psycopg.Connection[tuple[Any, ...]]


def explain(
    connection: Connection, query: str, values: Mapping[str, Any], options: str = ""
) -> Plan:
    """The plan of the real statement, prepared as the store's own driver does it.

    On the store's own session that is a plan for whatever values may come. What was changed is taken back.
    """
    with connection.transaction(force_rollback=True):
        connection.execute("DEALLOCATE ALL")
        connection.execute(query.encode(), values, prepare=True)
        ((statement, types),) = connection.execute(
            "SELECT statement, parameter_types::text[] FROM pg_prepared_statements "
            "WHERE statement NOT LIKE '%pg_prepared_%'"
        ).fetchall()
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


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
