"""The schema of the SQL engines: the first process makes it; a newer version is refused."""

import sqlite3
from pathlib import Path

import psycopg
import pytest

from chronoline.core.errors import SchemaTooNew
from chronoline.log.index.postgres import PostgresIndex
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.testing.postgres import PostgresServer
from tests.log.index.steps import TOPIC, at_once


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "index.db")
    SqliteIndex(path).close()
    with sqlite3.connect(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
        with pytest.raises(SchemaTooNew, match=f"version {version + 1}.*upgrade Chronoline"):
            SqliteIndex(path)
        assert connection.execute("PRAGMA user_version").fetchone() == (version + 1,)
    connection.close()


def test_a_newer_database_is_refused_and_left_alone(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("newer index")
    PostgresIndex(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE chronoline_log.schema_version SET version = version + 1")
        found = connection.execute("SELECT version FROM chronoline_log.schema_version").fetchall()
        with pytest.raises(SchemaTooNew, match=f"version {found[0][0]}.*upgrade Chronoline"):
            PostgresIndex(url)
        left = connection.execute("SELECT version FROM chronoline_log.schema_version").fetchall()
        assert left == found


def test_new_database_can_be_opened_concurrently(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("new index")
    handles = at_once(PostgresIndex, [url] * 8)
    handles[0].create_topic(TOPIC)
    assert [handle.list_topics() for handle in handles] == [[TOPIC]] * 8
    for handle in handles:
        handle.close()
