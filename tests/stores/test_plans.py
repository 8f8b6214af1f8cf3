"""Query plans: one index serves each query, whatever the statistics say, and old rows slow no query.

Every named query of the two engines runs on 0 to 100,000 rows. The tests measure no time: they read plans,
and compare the steps of SQLite's virtual machine and the pages that PostgreSQL touches with those of a small
fresh table. They use the private connection of the store, because only its session prepares statements as
the store does.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from chronoline.core.topic import Topic, TopicSettings
from chronoline.databases.queries import load_queries
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.sql import pack_settings
from chronoline.stores.sqlite import SqliteStore
from chronoline.testing.postgres import PostgresServer
from tests.stores import samples
from tests.stores.plans import Connection, Plan, explain, forget_statistics, nodes
from tests.stores.samples import (
    BUCKETS,
    COLUMNS,
    NOW,
    POSTGRES_INDEXES,
    SORTED,
    SQLITE_INDEXES,
    STRIPES,
    TOPIC,
    VALUES,
)

SQLITE_QUERIES = load_queries("chronoline.stores.sqlite")
POSTGRES_QUERIES = load_queries("chronoline.stores.postgres")
SETTINGS = pack_settings(TopicSettings(buckets=BUCKETS))
SIZES = [200, 2_000, 20_000, 100_000]
OLD_ROWS = 100_000
NEW_ROWS = 1_000
LATEST = NOW + 10 * 3_600_000
BY_TOPIC = {"purge_dropped", "free_names", "forget_topics", "forget_topic", "select_keys"}
"""The rows of a topic, or of a bucket, are found by the prefix of the key."""


def test_queries_and_samples_match() -> None:
    assert samples.SQLITE.keys() == SQLITE_QUERIES.keys()
    assert samples.POSTGRES.keys() == POSTGRES_QUERIES.keys()
    assert SQLITE_QUERIES.keys() >= SQLITE_INDEXES.keys()
    assert POSTGRES_QUERIES.keys() >= POSTGRES_INDEXES.keys()


def insert(table: str, rows: str, first: int, count: int) -> str:
    """Inserts rows with these numbers."""
    return f"INSERT INTO {table} ({COLUMNS}) SELECT {VALUES} FROM {rows.format(first, first + count - 1)}"


# SQLite

_NUMBERS = "(WITH RECURSIVE r(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM r WHERE n < {}) SELECT n FROM r)"
Steps = list[str]


def fill_sqlite(path: str, rows: int) -> sqlite3.Connection:
    SqliteStore(path).close()  # makes the tables
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(
        "INSERT INTO topics (uid, name, settings) VALUES (?, 't', ?)", (TOPIC, SETTINGS)
    )
    if rows:
        connection.execute(insert("messages", _NUMBERS, 0, rows))
    return connection


def sqlite_plans(connection: sqlite3.Connection) -> dict[str, Steps]:
    return {
        name: [
            detail
            for *_, detail in connection.execute(
                f"EXPLAIN QUERY PLAN {query}", samples.SQLITE[name]
            )
        ]
        for name, query in SQLITE_QUERIES.items()
    }


@pytest.fixture(scope="module")
def sqlite_states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Steps]]:
    """All plans, by what SQLite knows of the table."""
    connection = fill_sqlite(str(tmp_path_factory.mktemp("plans") / "t.db"), 0)
    found = {"empty": sqlite_plans(connection)}
    connection.execute("ANALYZE")
    found["analyzed when empty"] = sqlite_plans(connection)
    rows = 0
    for size in SIZES:
        connection.execute(insert("messages", _NUMBERS, rows, size - rows))
        rows = size
        found[f"grown to {size}"] = sqlite_plans(connection)
        connection.execute("ANALYZE")
        found[f"analyzed at {size}"] = sqlite_plans(connection)
    # As if every index but the right one found a row at once.
    for index in sorted(frozenset[str]().union(*SQLITE_INDEXES.values()) - {samples.BY_NUMBER}):
        connection.execute(
            "UPDATE sqlite_stat1 SET stat = CASE idx WHEN ? THEN '500000 500000 500000 500000' "
            "ELSE '500000 1 1 1' END WHERE tbl = 'messages'",
            [index],
        )
        connection.execute("ANALYZE sqlite_schema")
        found[f"with {index} made bad"] = sqlite_plans(connection)
    connection.execute("DELETE FROM sqlite_stat1")
    connection.execute("ANALYZE sqlite_schema")
    found["never analyzed"] = sqlite_plans(connection)
    connection.close()
    return found


@pytest.mark.parametrize("name", SQLITE_QUERIES)
def test_sqlite_finds_messages_by_one_index_whatever_it_knows(
    sqlite_states: dict[str, dict[str, Steps]], name: str
) -> None:
    for state, plans in sqlite_states.items():
        of_messages = [
            step for step in plans[name] if re.match(r"(SEARCH|SCAN) (messages|m) USING\b", step)
        ]
        used = {
            match[1] if (match := re.search(r"INDEX (messages_\w+)", step)) else samples.BY_NUMBER
            for step in of_messages
        }
        assert used == SQLITE_INDEXES.get(name, set()), (state, plans[name])
        assert [step for step in of_messages if step.startswith("SCAN")] == [], (state, plans[name])
        if "messages_id" in used and name not in BY_TOPIC:
            assert any("bucket=? AND id=?" in step for step in of_messages), (state, plans[name])
        if used and name not in SORTED:
            assert [step for step in plans[name] if "TEMP B-TREE" in step] == [], (
                state,
                plans[name],
            )


def sqlite_steps(connection: sqlite3.Connection, name: str) -> int:
    """Returns the steps of SQLite's virtual machine for a query, over all cells."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    values = samples.SQLITE[name]
    assert isinstance(values, dict)
    connection.set_progress_handler(count, 10)
    for stripe in range(STRIPES):
        cell = {"stripe": stripe, "start": stripe * 4, "stop": stripe * 4 + 4, "limit": 32}
        late = {"now": LATEST, "horizon": LATEST, "max_ts": LATEST}
        connection.execute(SQLITE_QUERIES[name], values | cell | late).fetchall()
    connection.set_progress_handler(None, 0)
    return steps


def test_acked_rows_do_not_slow_sqlite_reads(tmp_path: Path) -> None:
    old = fill_sqlite(str(tmp_path / "old.db"), OLD_ROWS)
    fresh = fill_sqlite(str(tmp_path / "fresh.db"), 0)
    lease = "UPDATE messages SET ts = ts + 60000, lock_consumer = 'c', version = version + 1"
    ack = f"UPDATE messages SET life = 1, ts = {LATEST}, version = version + 1"
    old.execute(f"{lease} WHERE life = 0")
    old.execute(f"{ack} WHERE life = 0")
    for connection in (old, fresh):
        connection.execute(insert("messages", _NUMBERS, OLD_ROWS, NEW_ROWS))
    for name in ("due", "select", "next_ts"):
        assert sqlite_steps(old, name) <= sqlite_steps(fresh, name) * 1.1
    old.close()
    fresh.close()


# PostgreSQL


def fill_postgres(store: PostgresStore, rows: int) -> None:
    store.engine.insert_topic(Topic(uid=TOPIC, name="t", settings=TopicSettings(buckets=BUCKETS)))
    with psycopg.connect(store.engine.database.url, autocommit=True) as connection:
        # No statistics before the test asks for them.
        connection.execute("ALTER TABLE chronoline.messages SET (autovacuum_enabled = off)")
        connection.execute("SET synchronous_commit = off")
        if rows:
            insert_postgres(connection, 0, rows)


def insert_postgres(connection: Connection, first: int, count: int) -> None:
    numbers = "generate_series({}::bigint, {}::bigint) AS n"
    connection.execute(insert("chronoline.messages", numbers, first, count).encode())


def plan_of(connection: Connection, name: str, options: str = "", **other: object) -> Plan:
    return explain(connection, POSTGRES_QUERIES[name], samples.POSTGRES[name] | other, options)


def postgres_plans(store: PostgresStore) -> dict[str, Plan]:
    """As the store's own session makes them: for whatever values may come, and kept by a connection."""
    with store.engine.database.connection() as own:
        return {name: plan_of(own, name) for name in POSTGRES_QUERIES}


@pytest.fixture(scope="module")
def growing(postgres_server: PostgresServer) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_server.create_database("plans")) as store:
        fill_postgres(store, 0)
        yield store


@pytest.fixture(scope="module")
def postgres_states(growing: PostgresStore) -> dict[str, dict[str, Plan]]:
    """All plans, by what the planner knows of the table."""
    table = "chronoline.messages"
    with psycopg.connect(growing.engine.database.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        found = {"made": postgres_plans(growing)}
        connection.execute(f"VACUUM (ANALYZE) {table}".encode())
        found["noted as empty"] = postgres_plans(growing)
        rows = 0
        for size in SIZES:
            insert_postgres(connection, rows, size - rows)
            rows = size
            found[f"grown to {size}"] = postgres_plans(growing)
            forget_statistics(connection, table)
            found[f"fresh with {size}"] = postgres_plans(growing)
            connection.execute(f"ANALYZE {table}".encode())
            found[f"analyzed at {size}"] = postgres_plans(growing)
            connection.execute(f"VACUUM {table}".encode())
            found[f"vacuumed at {size}"] = postgres_plans(growing)
        connection.execute(f"DELETE FROM {table}".encode())
        # Vacuum often cannot free the pages, since that needs a moment without readers.
        connection.execute(f"VACUUM (ANALYZE, TRUNCATE off) {table}".encode())
        found["emptied"] = postgres_plans(growing)
        insert_postgres(connection, 0, NEW_ROWS)
        found["emptied, then grown"] = postgres_plans(growing)
    return found


def reads_messages(node: Plan) -> bool:
    return bool(node.get("Relation Name") == "messages" and "Scan" in node["Node Type"])


def sorts_messages(node: Plan) -> bool:
    below = node.get("Plans", ())
    return "Sort" in node["Node Type"] and any(reads_messages(child) for child in below)


@pytest.mark.parametrize("name", POSTGRES_QUERIES)
def test_postgres_finds_messages_by_one_index_whatever_it_knows(
    postgres_states: dict[str, dict[str, Plan]], name: str
) -> None:
    for state, plans in postgres_states.items():
        told = f"{state}: {json.dumps(plans[name], indent=1)}"
        found = [node for node in nodes(plans[name]) if reads_messages(node)]
        assert {node.get("Index Name") for node in found} == POSTGRES_INDEXES.get(name, set()), told
        assert all("Index Cond" in node for node in found), told
        if name not in BY_TOPIC:
            by_key = [node for node in found if node["Index Name"] == "messages_pkey"]
            assert all("id =" in node["Index Cond"] for node in by_key), told
        sorts = {node["Node Type"] for node in nodes(plans[name]) if sorts_messages(node)}
        assert sorts <= ({"Incremental Sort"} if name in SORTED else set()), told


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, index) for name, some in POSTGRES_INDEXES.items() for index in sorted(some)],
)
def test_no_other_index_could_serve_in_postgres(
    growing: PostgresStore, name: str, index: str
) -> None:
    with (
        growing.engine.database.connection() as connection,
        connection.transaction(force_rollback=True),
    ):
        if index == "messages_pkey":
            connection.execute("ALTER TABLE chronoline.messages DROP CONSTRAINT messages_pkey")
        else:
            connection.execute(f"DROP INDEX chronoline.{index}".encode())
        plan = plan_of(connection, name)
    instead = [node.get("Index Name") for node in nodes(plan) if reads_messages(node)]
    assert set(instead) == POSTGRES_INDEXES[name] - {index} | {None}, json.dumps(plan, indent=1)


IN_A_CALLERS_TRANSACTION = ["create", "rows", "topic"]


@pytest.mark.parametrize("name", IN_A_CALLERS_TRANSACTION)
def test_a_callers_session_reads_no_whole_table(
    growing: PostgresStore, postgres_states: object, name: str
) -> None:
    with psycopg.connect(growing.engine.database.url, autocommit=True) as plain:
        plan = plan_of(plain, name)
    found = [node for node in nodes(plan) if reads_messages(node)]
    assert all("Index Cond" in node for node in found), json.dumps(plan, indent=1)


def pages(connection: Connection, name: str) -> int:
    """Returns the pages that PostgreSQL touches for a query; changes are rolled back."""
    late = {"now": LATEST, "horizon": LATEST, "max_ts": LATEST}
    plan = plan_of(connection, name, ", ANALYZE, BUFFERS", **late)
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.fixture
def hasty_autovacuum(postgres_server: PostgresServer) -> Iterator[None]:
    """The server looks every second whether a table wants vacuuming; when it does is up to the table."""
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET autovacuum_naptime = '1s'")
        connection.execute("SELECT pg_reload_conf()")
        yield
        connection.execute("ALTER SYSTEM RESET autovacuum_naptime")
        connection.execute("SELECT pg_reload_conf()")


def is_cared_for(connection: Connection) -> bool:
    """Whether the server has vacuumed and analyzed the table by itself, and removed its dead rows.

    A vacuum that runs beside another transaction removes nothing, and is repeated.
    """
    row = connection.execute(
        "SELECT autovacuum_count > 0 AND autoanalyze_count > 0 AND n_dead_tup = 0 "
        "FROM pg_stat_user_tables WHERE relname = 'messages'"
    ).fetchone()
    return row == (True,)


@pytest.mark.usefixtures("hasty_autovacuum")
def test_acked_rows_do_not_slow_postgres_reads(
    postgres_server: PostgresServer,
) -> None:
    lease = (
        "UPDATE chronoline.messages SET ts = ts + 60000, lock_consumer = 'c', version = version + 1"
    )
    ack = f"UPDATE chronoline.messages SET life = 1, ts = {LATEST}, version = version + 1"
    with (
        PostgresStore(postgres_server.create_database("plans of an old one")) as used,
        PostgresStore(postgres_server.create_database("plans of a fresh one")) as fresh,
    ):
        fill_postgres(used, OLD_ROWS)
        with psycopg.connect(used.engine.database.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute(f"{lease} WHERE life = 0".encode())
            connection.execute(f"{ack} WHERE life = 0".encode())
            # From here on autovacuum works by the settings that the store gave the table.
            connection.execute("ALTER TABLE chronoline.messages RESET (autovacuum_enabled)")
            while not is_cared_for(connection):
                connection.execute("SELECT pg_sleep(0.05)")  # nothing tells of it
            insert_postgres(connection, OLD_ROWS, NEW_ROWS)
        fill_postgres(fresh, 0)
        with psycopg.connect(fresh.engine.database.url, autocommit=True) as connection:
            insert_postgres(connection, OLD_ROWS, NEW_ROWS)
        with used.engine.database.connection() as old, fresh.engine.database.connection() as new:
            for name in ("next_times", "reserve_for", "select", "reserve"):
                assert pages(old, name) <= pages(new, name) * 1.5 + 100, name
