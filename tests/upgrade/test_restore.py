"""Backups: a dump of PostgreSQL restored into an empty cluster, a copy of SQLite made while it is used."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from chronoline.client import AsyncClient
from chronoline.coordination.cluster_store import STORE, is_store
from chronoline.coordination.factory import open_coordination
from chronoline.databases.queries import load_migrations
from chronoline.databases.sqlite_facts import foreign_object
from chronoline.runtime.clock import SystemClock
from chronoline.store import NewMessage, Store
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from tests.node.processes import call
from tests.upgrade import sample

_PATIENCE_S = 60.0


@pytest.fixture
def databases(postgres_server: PostgresServer) -> tuple[str, str]:
    """The names of two empty databases."""
    names = (f"origin-{uuid4()}", f"restored-{uuid4()}")
    for name in names:
        postgres_server.create_database(name)
    return names


class _Writer:
    """Creates messages in a thread, and remembers those that were answered."""

    def __init__(self, store: Store, uid: int, now_ms: int) -> None:
        self.done: list[str] = []
        self._store, self._uid, self._now_ms = store, uid, now_ms
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> _Writer:
        self._thread.start()
        while len(self.done) < 100:  # it works
            assert self._thread.is_alive()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.is_set():
            ids = [f"extra-{len(self.done) + number}" for number in range(50)]
            due = self._now_ms + 10 * sample.HOUR
            new = [NewMessage(id=each, due=due) for each in ids]
            outcomes = self._store.create(self._uid, new, now_ms=self._now_ms)
            self.done += [each.id for each in outcomes if each.done]


def _check_copy(copy: Store, before: list[str], now_ms: int) -> None:
    """A copy holds all that was answered before it began, and is whole."""
    topic = copy.find_topic("sample")
    assert topic is not None
    assert set(copy.lookup(topic.uid, before)) == set(before)
    sample.check(copy, now_ms)


def test_dump_of_a_working_cluster_is_restored_into_an_empty_one(
    postgres_server: PostgresServer,
    etcd_server: EtcdServer,
    databases: tuple[str, str],
    tmp_path: Path,
) -> None:
    origin, restored = databases
    now_ms = SystemClock().now_ms()
    with open_store(postgres_server.url(origin)) as store:
        uid = sample.fill(store, now_ms).uid
        with _Writer(store, uid, now_ms) as writer:
            before = list(writer.done)
            postgres_server.dump(origin, tmp_path / "dump", "--schema=chronoline")
        identity = store.identity()
    postgres_server.restore(restored, tmp_path / "dump")
    cluster = etcd_server.url(f"restored-{uuid4()}")
    with open_store(postgres_server.url(restored)) as copy:
        assert copy.identity() == identity
        coordination = open_coordination(cluster)
        with LocalBroker(copy, coordination=coordination) as broker:
            leased = asyncio.run(_receive(broker.address))
            named = asyncio.run(_named_store(cluster))
        assert leased == "leased"  # by a consumer that the new cluster has never heard of
        assert is_store(named, identity)
        _check_copy(copy, before, now_ms)


async def _receive(address: str) -> str:
    async with AsyncClient(address) as client, asyncio.timeout(_PATIENCE_S):
        assert [topic.name for topic in await client.topics()] == ["sample"]
        async for lease in client.consume("sample"):
            await lease.release(delay=1)
            return lease.id
    raise AssertionError("nothing came")


async def _named_store(cluster: str):  # type: ignore[no-untyped-def]  # a view
    async with open_coordination(cluster) as coordination:
        return await coordination.read(STORE)


def test_copied_store_gets_an_identity_of_its_own(
    postgres_server: PostgresServer, databases: tuple[str, str]
) -> None:
    """The statement of docs/operations.md."""
    url = postgres_server.url(databases[0])
    with open_store(url) as store:
        before = store.identity()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE chronoline.identity SET id = gen_random_uuid()::text")
    with open_store(url) as store:
        assert store.identity() != before


# SQLite


def test_backup_of_a_store_in_use_is_restored(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    data = tmp_path / "data"
    with open_store(f"sqlite:///{data}/timeline.db") as store:
        uid = sample.fill(store, now_ms).uid
        with _Writer(store, uid, now_ms) as writer:
            before = list(writer.done)
            done = call(tmp_path, "backup", "monday.db", "--data", "data")
        assert done.returncode == 0, done.stderr
    again = call(tmp_path, "backup", "monday.db", "--data", "data")
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    restored = call(tmp_path, "restore", "monday.db", "--data", "elsewhere/new")
    assert restored.returncode == 0, restored.stderr
    with open_store(f"sqlite:///{tmp_path}/elsewhere/new/timeline.db") as copy:
        _check_copy(copy, before, now_ms)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "elsewhere", "monday.db"]


def test_restore_never_replaces_a_store(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/backup.db").close()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "timeline.db-wal").touch()  # of a store that was moved away alone
    done = call(tmp_path, "restore", "backup.db", "--data", "data")
    assert done.returncode == 1
    assert "timeline.db-wal' is there: stop its node" in done.stderr
    assert not (tmp_path / "data" / "timeline.db").exists()


@pytest.mark.parametrize("content", [b"", b"no database" * 1_000])
def test_file_that_is_no_backup_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "backup.db").write_bytes(content)
    done = call(tmp_path, "restore", "backup.db", "--data", "data")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER INSERT ON messages BEGIN DELETE FROM messages; END",
        "CREATE VIEW evil AS SELECT * FROM messages",
        "CREATE TABLE evil (a)",
        "CREATE INDEX evil ON messages (id)",
        "DROP TRIGGER bodies_of_removed; CREATE TRIGGER bodies_of_removed AFTER DELETE ON messages "
        "BEGIN DELETE FROM topics; END",
    ],
)
def test_backup_with_a_foreign_schema_is_refused(tmp_path: Path, statement: str) -> None:
    open_store(f"sqlite:///{tmp_path}/backup.db").close()
    with closing(sqlite3.connect(tmp_path / "backup.db")) as connection:
        connection.execute("ANALYZE")  # its tables are SQLite's own
        connection.commit()
        assert call(tmp_path, "restore", "backup.db", "--data", "fine").returncode == 0
        connection.executescript(statement)
    done = call(tmp_path, "restore", "backup.db", "--data", "data")
    assert (done.returncode, "that Chronoline does not make" in done.stderr) == (1, True)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("version", range(1, len(load_migrations("chronoline.stores.sqlite"))))
def test_backup_of_an_earlier_version_has_no_foreign_schema(tmp_path: Path, version: int) -> None:
    scripts = load_migrations("chronoline.stores.sqlite")
    path = tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as connection:
        for script in scripts[:version]:
            connection.executescript(script)
    assert foreign_object(path, scripts[:version]) is None


def test_backup_of_postgres_names_its_tool(tmp_path: Path) -> None:
    store = "--store=postgresql://127.0.0.1:1/x"
    for command, tool in (("backup", "pg_dump"), ("restore", "pg_restore")):
        assert tool in call(tmp_path, command, "file", store).stderr


def test_backup_without_a_store_makes_none(tmp_path: Path) -> None:
    assert "there is no store" in call(tmp_path, "backup", "file", "--data", "data").stderr
    assert list(tmp_path.iterdir()) == []
