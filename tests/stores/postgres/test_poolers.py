"""A store behind PgBouncer: changing sessions between transactions costs neither safety nor plans."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from chronoline.core.errors import StoreBusy, StoreError
from chronoline.databases.postgres import _SESSION_SETTINGS  # a pooler must keep them
from chronoline.log.index.postgres import PostgresIndex
from chronoline.stores.factory import open_store
from chronoline.stores.postgres import PostgresStore
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.pgbouncer import PgBouncerServer
from tests.conftest import running
from tests.stores.line import NOW, MakeLine, new

SETTINGS = [*_SESSION_SETTINGS.items(), ("lock_timeout", "200ms"), ("synchronous_commit", "on")]


def behind(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory, mode: str
) -> Iterator[PgBouncerServer]:
    folder = tmp_path_factory.mktemp(f"pgbouncer-{mode}")
    pooler = PgBouncerServer(folder, postgres_server.url(), pool_mode=mode)  # type: ignore[arg-type]  # one of two
    yield from running(pooler)


@pytest.fixture(scope="module")
def by_transaction(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PgBouncerServer]:
    yield from behind(postgres_server, tmp_path_factory, "transaction")


@pytest.fixture(scope="module")
def by_session(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PgBouncerServer]:
    yield from behind(postgres_server, tmp_path_factory, "session")


@pytest.fixture(scope="module")
def pooled(
    postgres_server: PostgresServer, by_transaction: PgBouncerServer
) -> Iterator[PostgresStore]:
    """A store behind a pooler, in a database whose own settings are the opposite of ours."""
    direct = postgres_server.create_database("pooled")
    with psycopg.connect(direct, autocommit=True) as connection:
        connection.execute("ALTER DATABASE pooled SET synchronous_commit = off")
    store = open_store(f"{by_transaction.url('pooled')}?notify=off")
    assert isinstance(store, PostgresStore)
    with store:
        yield store


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_every_transaction_has_the_settings_of_the_store(
    pooled: PostgresStore, by_transaction: PgBouncerServer, name: str, value: str
) -> None:
    if name == "client_encoding":
        return
    query = "SELECT current_setting(%(name)s)"
    for _ in range(3):
        assert pooled.engine.database.read(query, {"name": name}) == [(value,)]
        assert pooled.engine.database.run(query, {"name": name}) == [(value,)]
        inside = pooled.engine.database.transact(
            lambda connection: connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        )
        assert inside == (value,)
    # No setting stays in a session that another client may get.
    with psycopg.connect(by_transaction.url("pooled"), autocommit=True) as other:
        for _ in range(5):
            row = other.execute("SELECT current_setting('enable_seqscan')").fetchone()
            assert row == ("on",)


@pytest.fixture(scope="module")
def make_line(pooled: PostgresStore) -> MakeLine:
    return MakeLine(pooled)


def test_timeline_works_behind_a_pooler(make_line: MakeLine) -> None:
    line = make_line()
    ids = [f"m{number}" for number in range(20)]
    for _ in range(8):  # more often than the driver takes to prepare a statement
        assert line.create(*map(new, ids)) == ["done"] * len(ids)
        grant = line.reserve(limit=100)
        assert len(grant.leased) == len(ids)
        assert line.ack(*(each.lease for each in grant.leased)) == ["done"] * len(ids)
        line.now += line.topic.settings.dedupe_ms


def test_locked_id_is_set_aside_behind_a_pooler(
    pooled: PostgresStore, make_line: MakeLine, by_transaction: PgBouncerServer
) -> None:
    line = make_line()
    with psycopg.connect(by_transaction.url("pooled")) as caller:
        caller.execute("SELECT chronoline.send(%s, 'a', %s, '', %s)", [line.topic.name, NOW, NOW])
        with pytest.raises(StoreBusy, match="nothing was changed"):
            pooled.create(line.uid, [new("a")], now_ms=NOW)


@pytest.mark.parametrize("open_it", [open_store, PostgresIndex])
def test_a_pooler_that_loses_listen_is_refused(
    postgres_server: PostgresServer, by_transaction: PgBouncerServer, open_it: type[PostgresIndex]
) -> None:
    name = f"refused {open_it.__name__}".replace(" ", "_")
    postgres_server.create_database(name)
    with pytest.raises(StoreError, match=r"keeps no sessions.*\?notify=off"):
        open_it(by_transaction.url(name))


def test_session_pooler_is_accepted_with_notices(
    postgres_server: PostgresServer, by_session: PgBouncerServer
) -> None:
    name = urlsplit(postgres_server.create_database("by_session")).path[1:]
    with PostgresStore(by_session.url(name)) as store, store.watch() as watch:
        line = MakeLine(store)()
        line.put("a")
        assert watch.wait(60)
