"""Plans of the queries of schedules: one index serves each, whatever the statistics say."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import psycopg
import pytest

from chronoline.core.topic import Topic
from chronoline.databases.queries import load_queries
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.sqlite import SqliteStore
from chronoline.testing.postgres import PostgresServer
from tests.stores import samples
from tests.stores.plans import explain, forget_statistics, nodes

ROWS = 20_000
BY_NAME, BY_TIME, BY_TOPIC = "schedules_pkey", "schedules_next", "schedules_topic"
INDEXES = {
    "insert_schedule": set(),
    "replace_schedule": {BY_NAME},
    "remove_schedule": {BY_NAME},
    "move_schedules": {BY_NAME},
    "schedule_named": {BY_NAME},
    "schedules": {BY_NAME},
    "due_schedules": {BY_TIME},
    "next_schedule": {BY_TIME},
    "forget_schedules": {BY_TOPIC},
    "schedule_floor": {BY_NAME},
    "count_schedules": {BY_TOPIC},
    "forget_floors": {BY_TOPIC},
}
_COLUMNS = "name, uid, topic, version, next_ms, paused, producer_group, rule"
_VALUES = f"'s' || n, n, {samples.TOPIC}, 1, {samples.NOW} + n"


def test_postgres_has_one_index_for_each(postgres_server: PostgresServer) -> None:
    queries = load_queries("chronoline.stores.postgres")
    with PostgresStore(postgres_server.create_database("plans of schedules")) as store:
        store.engine.insert_topic(Topic(uid=samples.TOPIC, name="t"))
        with psycopg.connect(store.engine.database.url, autocommit=True) as admin:
            admin.execute("ALTER TABLE chronoline.schedules SET (autovacuum_enabled = off)")

            def check(state: str) -> None:
                with store.engine.database.connection() as own:
                    for name, wanted in INDEXES.items():
                        plan = explain(own, queries[name], samples.POSTGRES[name])
                        read = [
                            each
                            for each in nodes(plan)
                            if each.get("Relation Name") == "schedules"
                            and "Scan" in each["Node Type"]
                        ]
                        assert {each.get("Index Name") for each in read} == wanted, (state, plan)
                        sorts = [each for each in nodes(plan) if "Sort" in each["Node Type"]]
                        assert sorts == [], (state, plan)

            check("empty")
            admin.execute(
                f"INSERT INTO chronoline.schedules ({_COLUMNS}) SELECT {_VALUES}, false, 'g', '{{}}' "
                f"FROM generate_series(1, {ROWS}) n".encode()
            )
            check("grown")
            admin.execute("VACUUM ANALYZE chronoline.schedules")
            check("analyzed")
            forget_statistics(admin, "chronoline.schedules")
            check("without statistics")


@pytest.mark.parametrize("analyzed", [False, True])
def test_sqlite_reads_no_whole_table(tmp_path: Path, analyzed: bool) -> None:
    SqliteStore(str(tmp_path / "t.db")).close()  # makes the tables
    connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    connection.execute(
        f"INSERT INTO schedules ({_COLUMNS}) SELECT {_VALUES}, 0, 'g', '{{}}' FROM "
        f"(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {ROWS}) SELECT n FROM r)"
    )
    if analyzed:
        connection.execute("ANALYZE")
    queries = load_queries("chronoline.stores.sqlite")
    by_name = "sqlite_autoindex_schedules_1"
    for name, wanted in INDEXES.items():
        steps = connection.execute(
            f"EXPLAIN QUERY PLAN {queries[name]}", samples.SQLITE[name]
        ).fetchall()
        read = [step[3] for step in steps if re.match(r"(SEARCH|SCAN) (schedules|s)\b", step[3])]
        used = {match[1] for step in read if (match := re.search(r"INDEX (\w+)", step))}
        assert used == {by_name if each == BY_NAME else each for each in wanted}, (name, steps)
        assert all(step.startswith("SEARCH") for step in read), (name, steps)
        assert not any("TEMP B-TREE" in step[3] for step in steps), (name, steps)
    connection.close()
