"""One transaction for several works."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chronoline.stores.sqlite.engine as module
from chronoline.core.errors import OutcomeUnknown, StoreBusy, StoreFull
from chronoline.core.topic import Topic
from chronoline.stores.sqlite import SqliteStore
from tests.stores.line import NOW, new, words


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(str(tmp_path / "timeline.db")) as opened:
        yield opened


@pytest.fixture
def topic(store: SqliteStore) -> Topic:
    return store.create_topic("t", now_ms=NOW)


class Spy:
    """Wraps the writing connection: counts commits, and fails on demand."""

    def __init__(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        # A connection that fails between two steps.
        self._connection = store.engine.database._writer
        self.commits = 0
        self.fail_at = ""
        self.error = "SQLITE_IOERR_WRITE"
        self.rolls_back = False
        monkeypatch.setattr(store.engine.database, "_writer", self)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if self.fail_at and self.fail_at in sql:
            if self.rolls_back:
                self._connection.execute("ROLLBACK")
            error = sqlite3.OperationalError("it failed")
            error.sqlite_errorname = self.error
            raise error
        self.commits += sql == "COMMIT"
        return self._connection.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def creating(store: SqliteStore, topic: Topic, *ids: str) -> Any:
    return lambda: words(store.create(topic.uid, [new(each) for each in ids], now_ms=NOW))


def found(store: SqliteStore, topic: Topic) -> list[str]:
    return sorted(store.lookup(topic.uid, ["a", "b", "c"]))


def test_together_is_one_commit(
    store: SqliteStore, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(store, monkeypatch)
    works = [creating(store, topic, each) for each in "abc"]
    assert store.together(works) == [["done"]] * 3
    assert spy.commits == 1
    works[0]()
    assert spy.commits == 2


def test_failed_commit_undoes_all_works(
    store: SqliteStore, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(store, monkeypatch)
    spy.fail_at = "COMMIT"
    with pytest.raises(OutcomeUnknown):
        store.together([creating(store, topic, each) for each in "ab"])
    spy.fail_at = ""
    assert found(store, topic) == []
    assert creating(store, topic, "a")() == ["done"]


def test_engine_rollback_stops_the_remaining_works(
    store: SqliteStore, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(store, monkeypatch)
    spy.fail_at, spy.error, spy.rolls_back = "SET\n    life = 1", "SQLITE_FULL", True
    begun: list[str] = []

    def cancel() -> object:
        return store.cancel(topic.uid, ["a"], producer_group="owners", now_ms=NOW)

    def last() -> object:
        begun.append("last")
        return creating(store, topic, "c")()

    with pytest.raises(StoreFull):
        store.together([creating(store, topic, "a"), cancel, last])
    assert (begun, found(store, topic)) == ([], [])


def test_full_disk_refuses_only_the_creates(
    store: SqliteStore, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    creating(store, topic, "a")()

    def full() -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(store.engine.database, "check_room", full)
    refused, done = store.together(
        [
            creating(store, topic, "b"),
            lambda: words(store.cancel(topic.uid, ["a"], producer_group="owners", now_ms=NOW)),
        ]
    )
    assert isinstance(refused, StoreFull)
    assert done == ["done"]
    assert found(store, topic) == []


def test_late_turn_refuses_a_create_and_not_a_cancel(
    store: SqliteStore, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    creating(store, topic, "a")()
    monkeypatch.setattr(module, "TURN_BOUND_MS", -1)
    late, done = store.together(
        [
            creating(store, topic, "b"),
            lambda: words(store.cancel(topic.uid, ["a"], producer_group="owners", now_ms=NOW)),
        ]
    )
    assert isinstance(late, StoreBusy)
    assert done == ["done"]


def test_watches_wake_after_the_commit(store: SqliteStore, topic: Topic) -> None:
    seen: list[object] = []
    with store.watch() as watch:
        watch.wait(0)

        def look() -> object:
            seen.extend(watch.wait(0))
            return None

        store.together([creating(store, topic, "a"), look])
        assert seen == []
        assert [each.due for each in watch.wait(60)] == [NOW]
