"""Fixtures of the engines: a test that uses `store` runs on every engine."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chronoline.core.limits import MAX_TIME_MS
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.stores.line import NOW, Line, MakeLine


@dataclass(frozen=True)
class Engine:
    """An engine, and the database of this test."""

    name: str
    url: str

    def open(self) -> Store:
        """One more store on the same database; on memory a store of its own."""
        return open_store(self.url)


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database("conformance")


@pytest.fixture(scope="session")
def postgres_store(postgres_url: str) -> Iterator[Store]:
    """One store for the session: a connection for each test would take most of the time."""
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    match request.param:
        case "sqlite":
            return Engine("sqlite", f"sqlite:///{tmp_path}/t.db")
        case "postgres":
            return Engine("postgres", request.getfixturevalue("postgres_url"))
    return Engine("memory", "memory:")


@pytest.fixture
def store(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store."""
    if engine.name != "postgres":
        with engine.open() as fresh:
            yield fresh
        return
    shared: Store = request.getfixturevalue("postgres_store")
    empty(shared)
    yield shared


@pytest.fixture
def other_store(engine: Engine, store: Store) -> Iterator[Store]:
    """Another store on the same database; the same store where an engine allows only one."""
    if not store.capabilities.shared:
        yield store
        return
    with engine.open() as other:
        yield other


def empty(store: Store) -> None:
    """Removes everything by calls of the contract."""
    for topic in store.list_topics():
        store.delete_topic(topic.uid, now_ms=NOW)
    while store.purge(limit=10_000, now_ms=NOW):
        pass
    # An engine may remember the uids of deleted topics for a while; this forgets them too.
    store.purge(limit=10_000, now_ms=MAX_TIME_MS)


@pytest.fixture
def make_line(store: Store) -> MakeLine:
    """Makes a topic with these settings, seen by someone who works on it."""
    return MakeLine(store)


@pytest.fixture
def line(make_line: Callable[[], Line]) -> Line:
    """A topic with default settings."""
    return make_line()
