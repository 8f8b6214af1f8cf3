"""Waits for others: a create that waits too long is refused; locked rows do not block reservations.

The tests use private members of the database and of the listener: no public call takes all connections, and
none shows the state of the listener.
"""

import select
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from types import SimpleNamespace

import psycopg
import pytest

from chronoline.core.errors import StoreBusy, StoreUnavailable
from chronoline.core.limits import CLOCK_BOUND_MS, SETTLED_AFTER_MS, TURN_BOUND_MS, WRITE_BOUND_MS
from chronoline.databases import postgres as database
from chronoline.databases.postgres_listener import PostgresListener
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.postgres import engine as engine_module
from tests.stores.line import NOW, Line, MakeLine, new
from tests.stores.test_forks import in_a_fork

PATIENCE_S = 60


# The turn of a create


def test_longest_create_lies_within_the_write_bound() -> None:
    # The bound that is tested.
    assert TURN_BOUND_MS + engine_module._CREATE_MS < WRITE_BOUND_MS
    assert SETTLED_AFTER_MS == CLOCK_BOUND_MS + WRITE_BOUND_MS


def test_create_without_a_connection_is_busy(pg: PostgresStore, pg_line: Line) -> None:
    with ExitStack() as stack:
        # The bound that is tested.
        for _ in range(database._MOST_CONNECTIONS):
            stack.enter_context(pg.engine.database.connection())
        with pytest.raises(StoreBusy, match="within 1 s; nothing was changed"):
            pg.create(pg_line.uid, [new("a")], now_ms=NOW)
    assert "a" not in pg_line


def test_create_after_a_lost_server_is_unavailable(pg: PostgresStore, pg_line: Line) -> None:
    with ExitStack() as stack:
        for _ in range(database._MOST_CONNECTIONS):
            stack.enter_context(pg.engine.database.connection())
        # As after the loss of the server.
        pg.engine.database._is_lost = True
        with pytest.raises(StoreUnavailable, match="within 1 s; nothing was changed") as away:
            pg.create(pg_line.uid, [new("a")], now_ms=NOW)
        assert not isinstance(away.value, StoreBusy)
    assert "a" not in pg_line
    assert not pg.engine.database._is_lost  # there are connections again


def test_a_create_whose_turn_comes_too_late_is_refused(
    pg_line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = count(0, TURN_BOUND_MS / 1000 + 0.001)
    monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: next(late)))
    with pytest.raises(StoreBusy, match="too late; nothing was changed"):
        pg_line.create(new("a"))
    monkeypatch.undo()
    assert "a" not in pg_line


def test_create_gives_up_a_lock_within_its_bound(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    before = pg_line.put("a")
    with psycopg.connect(postgres_url) as foreign:
        foreign.execute("SELECT 1 FROM chronoline.messages WHERE id = 'a' FOR UPDATE")
        with pytest.raises(StoreBusy, match="other transactions hold 1 of the messages"):
            pg.create(pg_line.uid, [new("a")], if_exists="replace", now_ms=NOW)
    assert pg_line["a"] == before


# Rows locked by another transaction


@pytest.mark.parametrize("buckets", [1, 64])
@pytest.mark.parametrize(("locked", "limit"), [(1, 1), (3, 2), (20, 20), (35, 10), (35, 40)])
def test_reserve_skips_rows_that_another_transaction_locked(
    pg: PostgresStore, postgres_url: str, locked: int, limit: int, buckets: int
) -> None:
    line = MakeLine(pg)(buckets=buckets)
    names = [f"m{number:03}" for number in range(100)]
    line.create(*(new(each, NOW - 1_000 + n) for n, each in enumerate(names)))
    with psycopg.connect(postgres_url) as foreign:
        foreign.execute(
            "SELECT 1 FROM chronoline.messages WHERE topic = %s AND id = ANY(%s) FOR UPDATE",
            [line.uid, names[:locked]],
        )
        grant = line.reserve(limit=limit)
        got = [each.message.id for each in grant.leased]
        assert got == names[locked : locked + len(got)]
        assert 2 * len(got) >= limit
        assert grant.more
        rest = line.reserve(limit=100)
        assert len(got) + len(rest.leased) == len(names) - locked
    assert [each.message.id for each in line.reserve().leased] == names[:locked]


def test_reserve_of_only_locked_rows_says_more(
    pg: PostgresStore, postgres_url: str, pg_line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(engine_module, "_RESERVE_LOOKS", 1)
    pg_line.put("a", "b")
    with psycopg.connect(postgres_url) as foreign:
        foreign.execute("SELECT 1 FROM chronoline.messages FOR UPDATE")
        grant = pg_line.reserve(limit=2)
        assert grant.leased == ()
        assert grant.more
        assert not pg_line.reserve(limit=3).more


# The listener


def test_watch_opened_during_close_leaves_no_listener(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    check_open = store.engine.database.check_open
    checked, closing = threading.Event(), threading.Event()

    def slow() -> None:
        check_open()
        checked.set()
        closing.wait(0.2)

    monkeypatch.setattr(store.engine.database, "check_open", slow)
    with ThreadPoolExecutor(1) as threads:
        watch = threads.submit(store.watch)
        assert checked.wait(PATIENCE_S)
        store.close()
        closing.set()
        watch.result(PATIENCE_S).close()
    # The listener and its thread have no public name.
    assert store.engine._listener is None
    assert listeners_of(store) == []


def listeners_of(store: PostgresStore) -> list[threading.Thread]:
    """Returns the listener threads of this store."""
    found = []
    for thread in threading.enumerate():
        listener = getattr(getattr(thread, "_target", None), "__self__", None)
        # Whose listener it is.
        if isinstance(listener, PostgresListener) and listener._database is store.engine.database:
            found.append(thread)
    return found


def test_close_in_a_fork_leaves_the_listener_alone(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, store.watch():
        listener = store.engine._listener
        assert listener is not None

        def close() -> None:
            store.close()
            listener.close()
            assert store.engine._listener is listener, "the store was closed"
            # Its own state, in a fork.
            assert not listener._stopped, "the listener was closed"

        assert in_a_fork(close) == "done"


def test_spurious_bell_rings_once(postgres_url: str) -> None:
    with PostgresStore(postgres_url) as store, store.watch():
        listener = store.engine._listener
        assert listener is not None
        # A ring that nobody asked for.
        listener._bell_rope.send(b"x")
        for _ in range(PATIENCE_S * 100):
            # Whether the ring was heard.
            ready, _, _ = select.select([listener._bell], [], [], 0)
            if not ready:
                return
            # It waits for the thread that hears it.
            listener._thread.join(0.01)
        pytest.fail("the bell is never read")
