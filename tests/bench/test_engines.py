"""Raw engines have the store's settings and rows, and a filled timeline equals one that the store made."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.ids import bucket_of
from chronoline.core.permissions import System
from chronoline_bench.engines.contract import Database, Engine, raw_row
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.engines.sqlite import PRAGMAS, SqliteDatabase, SqliteEngine, connect
from chronoline_bench.workload import Filling, count_all, make_due

NOW = 1_800_000_000_000
DAY_MS = 86_400_000


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    with SqliteEngine(folder) if request.param == "sqlite" else PostgresEngine(folder) as engine:
        yield engine


@pytest.fixture
def database(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Database]:
    name = "".join(each for each in request.node.name if each.isalnum())[:60]
    with engine.open(name) as database:
        yield database


def test_store_reads_raw_rows_as_messages(database: Database) -> None:
    store = database.store
    topic = store.create_topic("t", now_ms=NOW)
    one, *many = make_due(20, NOW)
    database.insert_one(raw_row(topic, one, NOW))
    database.insert_many([raw_row(topic, message, NOW) for message in many])
    grant = store.reserve(
        topic.uid, topic.all_buckets, consumer="c", limit=100, lease_ms=1_000, now_ms=NOW
    )
    given = {leased.message.id: (leased.message.due, leased.body) for leased in grant.leased}
    assert given == {message.id: (message.due, message.body) for message in (one, *many)}
    assert database.count(topic) == 20


@pytest.mark.parametrize("shuffled", [True, False])
def test_filled_timeline_is_as_described(database: Database, shuffled: bool) -> None:
    store = database.store
    topic = store.create_topic("t", now_ms=NOW)
    filling = Filling(
        total=21_001, start_ms=NOW - 1_000, span_ms=DAY_MS, now_ms=NOW, shuffled=shuffled
    )
    steps: list[int] = []
    database.fill(topic, filling, steps.append)
    database.settle()
    assert sum(steps) == database.count(topic) == count_all(store, topic, NOW) == filling.total
    assert database.bytes_on_disk() > filling.total * filling.body_bytes

    numbers = [0, 1, 19_999, 20_000, filling.total - 1]
    found = store.lookup(topic.uid, [filling.id(number) for number in numbers])
    for number in numbers:
        message = found[filling.id(number)]
        assert message.due == message.ts == filling.due(number)
        assert message.bucket == bucket_of(message.id, topic.settings.buckets)
        assert message.version == NOW
    page = store.select(topic.uid, topic.all_buckets, limit=300, max_ts=NOW + DAY_MS)
    assert [message.due for message in page.messages] == [filling.moment(n) for n in range(300)]
    bodies = store.bodies(topic.uid, [filling.id(0)], actor=System(), now_ms=NOW)
    assert bodies.found == {filling.id(0): bytes(filling.body_bytes)}


def test_a_closed_database_is_gone(engine: Engine) -> None:
    for _ in range(2):
        with engine.open("again") as database:
            assert database.store.list_topics() == []
            database.store.create_topic("t", now_ms=NOW)


def test_shuffled_filling_has_every_place_once() -> None:
    filling = Filling(total=20_000, start_ms=0, span_ms=20_000, now_ms=0)
    dues = [filling.due(number) for number in range(filling.total)]
    assert sorted(dues) == list(range(20_000))
    assert dues != sorted(dues)


def test_raw_connection_has_the_settings_of_the_store(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with SqliteDatabase(path) as database:
        inner: Any = database.store
        # The connection whose checkpoints are counted.
        writer: sqlite3.Connection = inner.engine.database._writer
        raw = connect(path)
        # The store makes its own checkpoints, after the same number of pages.
        for name in PRAGMAS.keys() - {"wal_autocheckpoint"}:
            query = f"PRAGMA {name}"
            assert raw.execute(query).fetchone() == writer.execute(query).fetchone(), name
        raw.close()


def test_bodies_are_kept_in_the_requested_place(tmp_path: Path) -> None:
    with SqliteDatabase(tmp_path / "t.db") as database:
        topic = database.store.create_topic("t", now_ms=NOW)
        (small,), (large,) = make_due(1, NOW, 10), make_due(1, NOW, 100_000)
        with database.keeping_bodies("apart"):
            database.store.create(topic.uid, [small], now_ms=NOW)
        with database.keeping_bodies("inline"):
            database.store.create(topic.uid, [large], now_ms=NOW)
        raw = connect(tmp_path / "t.db")
        kept = dict(raw.execute("SELECT id, apart FROM messages").fetchall())
        raw.close()
    assert kept == {small.id: 1, large.id: 0}
