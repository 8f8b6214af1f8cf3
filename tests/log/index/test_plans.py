"""Query plans: no query of the SQL engines reads a whole table, however long the log is.

Every named query runs on 50,000 chunks. The tests measure no time: they count the steps of SQLite's virtual
machine and the pages that PostgreSQL touches. They use the private connection of the index, because only its
session prepares statements as the index does.
"""

import json
import sqlite3
from collections.abc import Iterator

import psycopg
import pytest

from chronoline.databases.queries import load_queries
from chronoline.log.index.postgres import PostgresIndex
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.testing.postgres import PostgresServer
from tests.log.index import samples
from tests.stores.plans import Connection, Plan, explain, nodes

SQLITE_QUERIES = load_queries("chronoline.log.index.sqlite")
POSTGRES_QUERIES = load_queries("chronoline.log.index.postgres")
WHOLE = {"log", "topics", "deleted_topics", "floors", "objects_unreferenced", "CONSTANT"}
"""Tables that may be read whole: one row, all topics and sources, an index of the wanted rows."""
LISTED = {"groups"}
"""Answers everything there is of a topic."""
MOST_STEPS = 5_000
MOST_PAGES = 1_000


def test_queries_and_samples_match() -> None:
    assert samples.SQLITE.keys() == SQLITE_QUERIES.keys()
    assert samples.POSTGRES.keys() == POSTGRES_QUERIES.keys()


# SQLite


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "index.db"
    SqliteIndex(str(path)).close()  # makes the tables
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    for table, (rows, columns, values) in samples.ROWS.items():
        connection.execute(
            "WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n + 1 < ?) "
            f"INSERT INTO {table} ({columns}) SELECT {values} FROM r",
            [rows],
        )
    connection.execute(samples.FLOOR.format(floors="floors"))
    yield connection
    connection.close()


@pytest.fixture(scope="module", params=["as it is", "analyzed"])
def sqlite(sqlite_file: sqlite3.Connection, request: pytest.FixtureRequest) -> sqlite3.Connection:
    if request.param == "analyzed":
        sqlite_file.execute("ANALYZE")
    return sqlite_file


@pytest.mark.parametrize("name", SQLITE_QUERIES)
def test_sqlite_reads_no_whole_table(sqlite: sqlite3.Connection, name: str) -> None:
    query, values = SQLITE_QUERIES[name], samples.SQLITE[name]
    plan = [detail for *_, detail in sqlite.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    scans = [step for step in plan if step.startswith("SCAN") and not WHOLE & set(step.split())]
    assert scans == [], plan
    assert [step for step in plan if "TEMP B-TREE" in step] == [], plan


@pytest.mark.parametrize("name", [name for name in SQLITE_QUERIES if name not in LISTED])
def test_sqlite_takes_few_steps(sqlite_file: sqlite3.Connection, name: str) -> None:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 10
        return 0

    sqlite_file.execute("BEGIN")
    sqlite_file.set_progress_handler(count, 10)
    try:
        sqlite_file.execute(SQLITE_QUERIES[name], samples.SQLITE[name]).fetchall()
    finally:
        sqlite_file.set_progress_handler(None, 0)
        sqlite_file.execute("ROLLBACK")
    assert steps <= MOST_STEPS


# PostgreSQL


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[PostgresIndex]:
    url = postgres_server.create_database("plans of the index")
    index = PostgresIndex(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        unattended(connection)
        fill(connection)
    yield index
    index.close()


def unattended(connection: Connection) -> None:
    """No statistics before the test asks for them."""
    for table in samples.ROWS:
        target = f"chronoline_log.{table}"
        connection.execute(f"ALTER TABLE {target} SET (autovacuum_enabled = off)".encode())


def fill(connection: Connection, share: float = 1) -> None:
    """Puts this share of the rows into each table, apart from those that it has."""
    for table, (rows, columns, values) in samples.ROWS.items():
        numbers = f"generate_series(0, {max(1, int(rows * share)) - 1}) AS n"
        connection.execute(
            f"INSERT INTO chronoline_log.{table} ({columns}) SELECT {values} FROM {numbers} "
            "ON CONFLICT DO NOTHING".encode()
        )
    connection.execute(samples.FLOOR.format(floors="chronoline_log.floors").encode())
    connection.execute("UPDATE chronoline_log.floors SET reached = floor")


@pytest.fixture(scope="module", params=["never analyzed", "analyzed"])
def session(full: PostgresIndex, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection of the index's own."""
    # Plans are asked of the index's own connection.
    with full._database.connection() as connection:
        if request.param == "analyzed":
            connection.execute("ANALYZE")
        yield connection


def is_whole(node: Plan) -> bool:
    """Returns whether a plan node reads a whole table or index."""
    reads = node.get("Schema", "chronoline_log") == "chronoline_log" and "Relation Name" in node
    if not reads or "Scan" not in node["Node Type"] or node["Node Type"] == "Tid Scan":
        return False
    return "Index Cond" not in node and not WHOLE & {node["Relation Name"], node.get("Index Name")}


@pytest.mark.parametrize("name", POSTGRES_QUERIES)
def test_postgres_reads_no_whole_table(session: Connection, name: str) -> None:
    query, values = POSTGRES_QUERIES[name], samples.POSTGRES[name]
    plan = explain(session, query, values, ", ANALYZE, BUFFERS")
    assert not any(is_whole(node) for node in nodes(plan)), json.dumps(plan, indent=1)
    if name not in LISTED:
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= MOST_PAGES


SHARES = [0.004, 0.04, 1]


@pytest.fixture(scope="module")
def states(postgres_server: PostgresServer) -> Iterator[dict[str, dict[str, Plan]]]:
    """All plans, by what the planner knows of the tables."""
    url = postgres_server.create_database("plans of a growing index")
    index = PostgresIndex(url)
    tables = ", ".join(f"chronoline_log.{table}" for table in samples.ROWS)

    def plans() -> dict[str, Plan]:
        with index._database.connection() as own:
            return {
                name: explain(own, query, samples.POSTGRES[name])
                for name, query in POSTGRES_QUERIES.items()
            }

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        unattended(connection)
        found = {"made": plans()}
        connection.execute(f"VACUUM (ANALYZE) {tables}".encode())
        found["noted as empty"] = plans()
        for share in SHARES:
            fill(connection, share)
            found[f"grown to {share}"] = plans()
            connection.execute(f"VACUUM (ANALYZE) {tables}".encode())
            found[f"vacuumed at {share}"] = plans()
        for table in samples.ROWS:
            connection.execute(f"DELETE FROM chronoline_log.{table}".encode())
        connection.execute(f"VACUUM (ANALYZE, TRUNCATE off) {tables}".encode())
        found["emptied"] = plans()
    yield found
    index.close()


@pytest.mark.parametrize("name", POSTGRES_QUERIES)
def test_postgres_plans_do_not_depend_on_statistics(
    states: dict[str, dict[str, Plan]], name: str
) -> None:
    seen = {}
    for state, plans in states.items():
        found = [node for node in nodes(plans[name]) if "Relation Name" in node]
        assert not any(is_whole(node) for node in found), (state, json.dumps(plans[name], indent=1))
        seen[state] = sorted(
            f"{node['Node Type']} {node.get('Index Name')} {node.get('Index Cond')}"
            for node in found
        )
    assert all(indexes == seen["made"] for indexes in seen.values()), json.dumps(seen, indent=1)
