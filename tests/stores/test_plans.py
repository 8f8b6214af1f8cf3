"""Query plans: every query runs on an index, and what was done lies in nobody's way.

With 200,000 rows, every named query of the two engines. Not a second is measured here: what is counted are
steps of SQLite's machine and pages that PostgreSQL touched, beside the same on a small fresh table.
"""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from chronoline.core.topic import Topic, TopicSettings
from chronoline.databases.queries import load_queries
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.rows import pack_settings
from chronoline.stores.sqlite import SqliteStore
from chronoline.testing.postgres import PostgresServer
from tests.stores import samples
from tests.stores.plans import Connection, Plan, explain, nodes
from tests.stores.samples import BUCKETS, COLUMNS, HOT, NOW, ROWS, STRIPES, TOPIC, VALUES

SQLITE_QUERIES = load_queries("chronoline.stores.sqlite")
POSTGRES_QUERIES = load_queries("chronoline.stores.postgres")
SETTINGS = pack_settings(TopicSettings(buckets=BUCKETS))
NEW_ROWS = 1_000
LATEST = NOW + 10 * 3_600_000
UPKEEP = {"purge_marks", "purge_dead", "purge_dropped"}
"""Only the store's own session runs these. On any other the planner may read a table of which most rows are
wanted from its beginning up to the limit, which is no fault."""

BY_TOPIC = {"purge_dropped", "free_names", "forget_topics"}
"""What is left of a topic is found by the beginning of the key."""


def test_every_query_has_a_sample_and_every_sample_a_query() -> None:
    assert samples.SQLITE.keys() == SQLITE_QUERIES.keys()
    assert samples.POSTGRES.keys() == POSTGRES_QUERIES.keys()
    assert SQLITE_QUERIES.keys() | POSTGRES_QUERIES.keys() >= HOT


def insert(table: str, rows: str, first: int, count: int) -> str:
    """Inserts rows with these numbers."""
    return f"INSERT INTO {table} ({COLUMNS}) SELECT {VALUES} FROM {rows.format(first, first + count - 1)}"


# SQLite

_NUMBERS = "(WITH RECURSIVE r(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM r WHERE n < {}) SELECT n FROM r)"


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


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "t.db"
    connection = fill_sqlite(str(path), ROWS)
    yield connection
    connection.close()


@pytest.fixture(scope="module", params=["as it is", "analyzed"])
def sqlite(sqlite_file: sqlite3.Connection, request: pytest.FixtureRequest) -> sqlite3.Connection:
    if request.param == "analyzed":
        sqlite_file.execute("ANALYZE")
    return sqlite_file


@pytest.mark.parametrize("name", SQLITE_QUERIES)
def test_sqlite_finds_messages_by_an_index(sqlite: sqlite3.Connection, name: str) -> None:
    values = samples.SQLITE[name]
    rows = sqlite.execute(f"EXPLAIN QUERY PLAN {SQLITE_QUERIES[name]}", values)
    steps = [detail for *_, detail in rows]
    assert [step for step in steps if step.startswith("SCAN messages")] == [], steps
    if name in HOT:
        assert [step for step in steps if "TEMP B-TREE" in step] == [], steps


def sqlite_steps(connection: sqlite3.Connection, name: str) -> int:
    """How many steps of its machine SQLite takes for a query, over all cells."""
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


def test_what_was_leased_and_acked_does_not_slow_the_head_in_sqlite(
    sqlite_file: sqlite3.Connection, tmp_path: Path
) -> None:
    fresh = fill_sqlite(str(tmp_path / "fresh.db"), 0)
    lease = "UPDATE messages SET ts = ts + 60000, lock_consumer = 'c', version = version + 1"
    ack = f"UPDATE messages SET life = 1, ts = {LATEST}, version = version + 1"
    sqlite_file.execute(f"{lease} WHERE life = 0")
    sqlite_file.execute(f"{ack} WHERE life = 0")
    for connection in (sqlite_file, fresh):
        connection.execute(insert("messages", _NUMBERS, ROWS, NEW_ROWS))
    for name in ("due", "select", "next_ts"):
        assert sqlite_steps(sqlite_file, name) <= sqlite_steps(fresh, name) * 1.1
    fresh.close()


# PostgreSQL


def fill_postgres(store: PostgresStore, rows: int) -> None:
    store._insert_topic(Topic(uid=TOPIC, name="t", settings=TopicSettings(buckets=BUCKETS)))
    with psycopg.connect(store._database.url, autocommit=True) as connection:
        # No statistics before the test asks for them.
        connection.execute("ALTER TABLE chronoline.messages SET (autovacuum_enabled = off)")
        connection.execute("SET synchronous_commit = off")
        if rows:
            insert_postgres(connection, 0, rows)


def insert_postgres(connection: Connection, first: int, count: int) -> None:
    numbers = "generate_series({}::bigint, {}::bigint) AS n"
    connection.execute(insert("chronoline.messages", numbers, first, count).encode())


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[PostgresStore]:
    with PostgresStore(postgres_server.create_database("plans")) as store:
        fill_postgres(store, ROWS)
        yield store


SESSIONS = ["own session, never analyzed", "own session, analyzed", "plain session, analyzed"]


@pytest.fixture(scope="module", params=SESSIONS)
def session(full: PostgresStore, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A connection of the store's own; or of anybody's, as that of a caller's transaction is."""
    own, analyzed = "own" in request.param, "never" not in request.param
    with psycopg.connect(full._database.url, autocommit=True) as plain:
        if analyzed:
            plain.execute("ANALYZE chronoline.messages")
        if not own:
            yield plain
            return
    with full._database._connection() as connection:
        yield connection


def plan_of(connection: Connection, name: str, options: str = "", **other: object) -> Plan:
    return explain(connection, POSTGRES_QUERIES[name], samples.POSTGRES[name] | other, options)


def reads_messages(node: Plan) -> bool:
    return bool(node.get("Relation Name") == "messages" and "Scan" in node["Node Type"])


def is_whole(node: Plan) -> bool:
    """Whether it reads the whole table, or the whole of an index."""
    if node["Node Type"] == "Bitmap Heap Scan":
        return False  # what it reads is what the index scans below it find
    of_messages = reads_messages(node) or str(node.get("Index Name", "")).startswith("messages_")
    return of_messages and "Scan" in node["Node Type"] and "Index Cond" not in node


def sorts_messages(node: Plan) -> bool:
    below = node.get("Plans", ())
    return "Sort" in node["Node Type"] and any(reads_messages(child) for child in below)


@pytest.mark.parametrize("name", POSTGRES_QUERIES)
def test_postgres_finds_messages_by_an_index(
    session: Connection, name: str, request: pytest.FixtureRequest
) -> None:
    own = "own" in request.node.callspec.params["session"]
    plan = plan_of(session, name)
    text = json.dumps(plan, indent=1)
    if own or name not in UPKEEP:
        assert not any(is_whole(node) for node in nodes(plan)), text
    if own and name in HOT:
        assert not any(sorts_messages(node) for node in nodes(plan)), text


@pytest.fixture(scope="module")
def young(postgres_server: PostgresServer) -> Iterator[PostgresStore]:
    """A table of which the planner knows nothing yet; plans that it makes now are kept while it grows."""
    with PostgresStore(postgres_server.create_database("plans of a young one")) as store:
        fill_postgres(store, 0)
        yield store


@pytest.mark.parametrize("name", [n for n in POSTGRES_QUERIES if n not in BY_TOPIC])
def test_postgres_finds_single_messages_by_the_whole_key_in_a_young_table(
    young: PostgresStore, name: str
) -> None:
    with young._database._connection() as connection:
        plan = plan_of(connection, name)
    by_key = [node for node in nodes(plan) if node.get("Index Name") == "messages_pkey"]
    assert all("id =" in node["Index Cond"] for node in by_key), json.dumps(plan, indent=1)


def pages(connection: Connection, name: str) -> int:
    """How many pages PostgreSQL touches for a query; what it changes is taken back."""
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
    """Whether the server has vacuumed and analyzed the table by itself."""
    row = connection.execute(
        "SELECT autovacuum_count > 0 AND autoanalyze_count > 0 FROM pg_stat_user_tables "
        "WHERE relname = 'messages'"
    ).fetchone()
    return row == (True,)


@pytest.mark.usefixtures("hasty_autovacuum")
def test_what_was_leased_and_acked_does_not_slow_the_head_in_postgres(
    full: PostgresStore, postgres_server: PostgresServer
) -> None:
    lease = (
        "UPDATE chronoline.messages SET ts = ts + 60000, lock_consumer = 'c', version = version + 1"
    )
    ack = f"UPDATE chronoline.messages SET life = 1, ts = {LATEST}, version = version + 1"
    with psycopg.connect(full._database.url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(f"{lease} WHERE life = 0".encode())
        connection.execute(f"{ack} WHERE life = 0".encode())
        # From here on the table cares for itself, by the settings that the store gave it.
        connection.execute("ALTER TABLE chronoline.messages RESET (autovacuum_enabled)")
        while not is_cared_for(connection):
            pass
        insert_postgres(connection, ROWS, NEW_ROWS)
    with PostgresStore(postgres_server.create_database("plans of a fresh one")) as fresh:
        fill_postgres(fresh, 0)
        with psycopg.connect(fresh._database.url, autocommit=True) as connection:
            insert_postgres(connection, ROWS, NEW_ROWS)
        with full._database._connection() as old, fresh._database._connection() as new:
            for name in ("next_ts", "select", "reserve"):
                assert pages(old, name) <= pages(new, name) * 1.5 + 100, name


@pytest.fixture(scope="module", params=["never filled", "emptied"])
def empty(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A store's own session on a timeline without messages, of which autovacuum has taken note."""
    name = f"plans {request.param}"
    with PostgresStore(postgres_server.create_database(name)) as store:
        fill_postgres(store, 0 if request.param == "never filled" else NEW_ROWS)
        with psycopg.connect(store._database.url, autocommit=True) as connection:
            connection.execute("DELETE FROM chronoline.messages WHERE topic = %s", [TOPIC])
            # It often cannot give the pages back, since that needs a moment in which nobody reads.
            connection.execute("VACUUM (ANALYZE, TRUNCATE off) chronoline.messages")
        with store._database._connection() as connection:
            yield connection


@pytest.mark.parametrize("name", POSTGRES_QUERIES)
def test_a_table_that_was_noted_as_empty_is_not_read_as_a_whole_when_it_grows(
    empty: Connection, name: str
) -> None:
    plan = plan_of(empty, name)
    assert not any(is_whole(node) for node in nodes(plan)), json.dumps(plan, indent=1)
