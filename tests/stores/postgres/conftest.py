"""PostgreSQL alone: the shared database, a new one, and a server that may be killed."""

from collections.abc import Iterator

import pytest

from chronoline.stores.contract import Store
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from tests.stores.conftest import empty
from tests.stores.line import Line, MakeLine


@pytest.fixture
def new_url(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> str:
    """An empty database of this test."""
    return postgres_server.create_database(request.node.name[-60:])


@pytest.fixture
def pg(postgres_store: Store) -> PostgresStore:
    """An empty store."""
    assert isinstance(postgres_store, PostgresStore)
    empty(postgres_store)
    return postgres_store


@pytest.fixture
def pg_line(pg: PostgresStore) -> Line:
    return MakeLine(pg)()


@pytest.fixture(scope="module")
def mortal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server of its own, which the test may kill."""
    with PostgresServer(tmp_path_factory.mktemp("mortal") / "data") as server:
        yield server
