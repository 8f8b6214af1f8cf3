"""NOTIFY is optional: without it, watches poll and no notification is sent."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.stores.contract import Notice, Store
from chronoline.stores.factory import open_store
from chronoline.stores.postgres import PostgresStore
from tests.stores.conftest import empty
from tests.stores.line import NOW, OWNERS, Line, MakeLine, new, words
from tests.stores.postgres.test_database import child, hear_of
from tests.stores.test_conformance_watch import CHANGES, drain, hears, prepare

PATIENCE_S = 60
MARKER = "nothing was announced before this"


@pytest.fixture
def quiet(postgres_url: str) -> Iterator[PostgresStore]:
    """An empty store without NOTIFY."""
    with open_store(f"{postgres_url}?notify=off") as store:
        assert isinstance(store, PostgresStore)
        empty(store)
        yield store


@pytest.fixture
def ear(postgres_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Listens to all notifications of the database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("LISTEN chronoline")
        yield connection


def heard(ear: psycopg.Connection[tuple[Any, ...]]) -> list[str]:
    """Returns the notifications so far, in the order of their commits."""
    ear.execute("SELECT pg_notify('chronoline', %s)", [MARKER])
    payloads: list[str] = []
    for notify in ear.notifies(timeout=PATIENCE_S):
        if notify.payload == MARKER:
            return payloads
        payloads.append(notify.payload)
    pytest.fail("not even the marker was heard")


def test_quiet_store_announces_no_change(
    quiet: PostgresStore, ear: psycopg.Connection[tuple[Any, ...]]
) -> None:
    for act, *_ in CHANGES.values():
        act(prepare(MakeLine(quiet)))
        empty(quiet)
    assert heard(ear) == []


def test_quiet_store_does_not_listen(quiet: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(PostgresListener, "__init__", lambda *_, **__: made.append(1))
    with quiet.watch() as watch:
        assert watch.wait(PATIENCE_S) == [Notice()]
    assert made == []


# Watches without NOTIFY


@pytest.mark.parametrize("change", CHANGES)
def test_own_change_is_noticed(quiet: PostgresStore, change: str) -> None:
    line = prepare(MakeLine(quiet))
    act, due, _ = CHANGES[change]
    with quiet.watch() as watch:
        drain(watch)
        act(line)
        hear_of(watch, Notice(topic_uid=line.uid, due=due))


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_another_store_is_noticed(
    quiet: PostgresStore, postgres_store: Store, change: str
) -> None:
    line = prepare(MakeLine(postgres_store))
    act, due, message_id = CHANGES[change]
    with quiet.watch() as watch:
        drain(watch)
        act(line)
        assert hears(watch, line, due, message_id)


def test_create_of_another_process_is_noticed(quiet: PostgresStore, postgres_url: str) -> None:
    line = MakeLine(quiet)()
    with child(postgres_url) as other, quiet.watch() as watch:
        assert other.read_line() == "ready"
        other.write_line("create a")
        assert other.read_line() == "done"
        drain(watch)
        assert watch.wait(PATIENCE_S) == [Notice()]
        assert "a" in line


# Inside the caller's own transaction


@pytest.mark.parametrize(("notify", "announced"), [(True, 1), (False, 0)])
def test_create_in_announces_as_its_store_does(
    postgres_url: str,
    ear: psycopg.Connection[tuple[Any, ...]],
    notify: bool,
    announced: int,
) -> None:
    with PostgresStore(postgres_url, notify=notify) as store:
        empty(store)
        line = MakeLine(store)()
        with psycopg.connect(postgres_url) as caller:
            outcomes = store.create_in(caller, line.uid, [new("a")], now_ms=NOW)
        assert words(outcomes) == ["done"]
        assert "a" in line
    bucket = bucket_of("a", line.topic.settings.buckets)
    assert heard(ear) == [f"{line.uid}:{NOW}:{bucket}"] * announced


@pytest.mark.parametrize(("setting", "announced"), [(None, 1), ("on", 1), ("off", 0)])
def test_send_announces_unless_the_session_disables_it(
    pg_line: Line,
    postgres_url: str,
    ear: psycopg.Connection[tuple[Any, ...]],
    setting: str | None,
    announced: int,
) -> None:
    with psycopg.connect(postgres_url) as caller:
        if setting is not None:
            caller.execute("SELECT set_config('chronoline.notify', %s, false)", [setting])
        caller.execute(
            "SELECT chronoline.send(%s, 'a', %s, NULL, %s, %s)",
            [pg_line.topic.name, NOW, NOW, OWNERS],
        )
    assert "a" in pg_line
    assert heard(ear) == [f"{pg_line.uid}:{NOW}"] * announced


# The URL


@pytest.mark.parametrize(
    ("query", "notify"),
    [
        ("", True),
        ("?notify=on", True),
        ("?notify=off", False),
        ("?options=-cchronoline.probe%3D7&notify=off", False),
        ("?notify=off&options=-cchronoline.probe%3D7", False),
    ],
)
def test_other_url_parameters_reach_the_driver(postgres_url: str, query: str, notify: bool) -> None:
    with open_store(postgres_url + query) as store:
        assert isinstance(store, PostgresStore)
        # The driver does not show the parameter that the store took out of the URL.
        assert store.engine._notify == notify
        rows = store.engine.database.read("SELECT current_setting('chronoline.probe', true)", {})
    assert rows == [("7" if "probe" in query else None,)]


@pytest.mark.parametrize("query", ["?notify=no", "?notify=", "?notify=off&notify=maybe"])
def test_invalid_parameter_is_named_without_the_url(query: str) -> None:
    with pytest.raises(InvalidInput, match="notify is either on or off") as raised:
        open_store(f"postgresql://me:secret@nowhere/db{query}")
    assert "secret" not in str(raised.value)
