"""Fixtures of the index engines: a test that uses `index` runs on every engine.

An engine is one function in `ENGINES`: it makes ready an empty index for a test, and answers how to open it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psycopg
import pytest

from chronoline.log.contract import Index
from chronoline.log.index.postgres import PostgresIndex
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.testing.postgres import PostgresServer
from tests.log.index.dynamo import dynamodb, dynamodb_client, dynamodb_url
from tests.log.index.steps import TOPIC

__all__ = ["dynamodb_client", "dynamodb_url"]  # fixtures

Open = Callable[[], Index]
_TABLES = (
    "log",
    "topics",
    "deleted_topics",
    "heads",
    "objects",
    "chunks",
    "cursors",
    "members",
    "reader_groups",
)


def sqlite(request: pytest.FixtureRequest) -> Open:
    path = str(request.getfixturevalue("tmp_path") / "index.db")
    return lambda: SqliteIndex(path)


def postgres(request: pytest.FixtureRequest) -> Open:
    """One database for the session: a database for each test would take most of the time."""

    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url, autocommit=True) as connection:
        for table in _TABLES:
            connection.execute(f"DELETE FROM chronoline_log.{table}".encode())
        connection.execute("DELETE FROM chronoline_log.floors WHERE prefix <> ''")
        connection.execute("UPDATE chronoline_log.floors SET floor = '', reached = ''")
    return lambda: PostgresIndex(url)


ENGINES: dict[str, Callable[[pytest.FixtureRequest], Open]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "dynamodb": dynamodb,
}


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    url = postgres_server.create_database("index")
    PostgresIndex(url).close()  # makes the tables
    return url


@pytest.fixture(params=ENGINES)
def another(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens one more handle to the index of this test, as another process would."""
    open_one = ENGINES[request.param](request)
    with ExitStack() as stack:

        def opened() -> Index:
            index = open_one()
            stack.callback(index.close)
            return index

        yield opened


@pytest.fixture
def empty_index(another: Open) -> Index:
    return another()


@pytest.fixture
def index(empty_index: Index) -> Index:
    """An index with one topic, `steps.TOPIC`, in which there is nothing yet."""
    empty_index.create_topic(TOPIC)
    return empty_index
