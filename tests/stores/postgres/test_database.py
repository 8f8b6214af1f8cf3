"""One PostgreSQL database: other processes, other schemas, and servers that are lost."""

import logging
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from chronoline.core.errors import (
    OutcomeUnknown,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from chronoline.databases import postgres as database
from chronoline.databases import postgres_listener
from chronoline.runtime.child_process import LineProcess
from chronoline.stores.contract import Notice, Watch
from chronoline.stores.postgres import PostgresStore
from chronoline.stores.postgres.listener import parse_notice, write_notice
from chronoline.testing.postgres import PostgresServer
from tests.stores.line import NOW, OWNERS, Line, new, words

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


def child(url: str) -> LineProcess:
    """Another process on the database; it ends with its block."""
    return LineProcess([sys.executable, "-m", "tests.stores.postgres.child", url], cwd=ROOT)


# The schema


def test_a_newer_schema_is_refused_and_left_alone(new_url: str) -> None:
    PostgresStore(new_url).close()
    with psycopg.connect(new_url, autocommit=True) as connection:
        connection.execute("UPDATE chronoline.schema_version SET version = version + 1")
        found = connection.execute("SELECT version FROM chronoline.schema_version").fetchall()
        version = found[0][0]
        with pytest.raises(SchemaTooNew, match=f"version {version}.*upgrade Chronoline"):
            PostgresStore(new_url)
        left = connection.execute("SELECT version FROM chronoline.schema_version").fetchall()
        assert left == found


def test_processes_can_open_a_new_database_together(new_url: str) -> None:
    with ExitStack() as stack:
        others = [stack.enter_context(child(new_url)) for _ in range(4)]
        assert [other.read_line() for other in others] == ["ready"] * 4
        for other in others:
            other.write_line("open")
        assert [other.read_line() for other in others] == ["done"] * 4
    with psycopg.connect(new_url) as connection:
        rows = connection.execute("SELECT version FROM chronoline.schema_version").fetchall()
    assert len(rows) == 1


def test_threads_can_open_a_new_database_together(new_url: str) -> None:
    start = threading.Barrier(8)

    def open_one() -> None:
        start.wait(PATIENCE_S)
        PostgresStore(new_url).close()

    with ThreadPoolExecutor(8) as threads:
        opened = [threads.submit(open_one) for _ in range(8)]
    assert [each.exception() for each in opened] == [None] * 8


# Settings of databases and sessions


@pytest.mark.parametrize(
    ("of_the_database", "of_the_store"),
    [("off", "on"), ("on", "on"), ("local", "local"), ("remote_apply", "remote_apply")],
)
def test_synchronous_commit_is_on_whatever_the_database_default(
    new_url: str, of_the_database: str, of_the_store: str
) -> None:
    with psycopg.connect(new_url, autocommit=True) as connection:
        name = psycopg.sql.Identifier(connection.info.dbname)
        command = psycopg.sql.SQL("ALTER DATABASE {} SET synchronous_commit = {}")
        connection.execute(command.format(name, of_the_database))
    with PostgresStore(new_url) as store:
        assert store.engine.database.read("SHOW synchronous_commit", {}) == [(of_the_store,)]


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_database_without_utf8_is_refused_and_left_alone(
    postgres_server: PostgresServer, encoding: str
) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        command = "CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0"
        name = psycopg.sql.Identifier(encoding)
        connection.execute(psycopg.sql.SQL(command).format(name, encoding))
    url = postgres_server.url(encoding)
    with pytest.raises(StoreError, match=f"encoded as .*{encoding}.*ENCODING 'UTF8'"):
        PostgresStore(url)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regnamespace('chronoline')").fetchone()
    assert found == (None,)


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_call_that_waits_too_long_is_busy(
    pg_line: Line, postgres_url: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    before = pg_line.put("a")
    for each in ("lock_timeout", "statement_timeout"):
        # No setting: the test does not wait for the usual time.
        monkeypatch.setitem(database._SESSION_SETTINGS, each, "50ms" if each == limit else "0")
    with PostgresStore(postgres_url) as store, psycopg.connect(postgres_url) as foreign:
        foreign.execute("SELECT 1 FROM chronoline.messages WHERE id = 'a' FOR UPDATE")
        line = Line(store, pg_line.topic)
        with pytest.raises(StoreBusy, match="nothing was changed"):
            line.cancel("a")
        assert line["a"] == before  # reading goes on
        foreign.commit()
        assert line.cancel("a") == ["done"]


def test_client_that_freezes_in_a_transaction_holds_its_rows_for_a_time_only(
    pg_line: Line, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pg_line.put("a")
    lock = "SELECT 1 FROM chronoline.messages WHERE id = 'a' FOR UPDATE"
    # No setting: the test does not wait for the usual time.
    monkeypatch.setitem(database._SESSION_SETTINGS, "idle_in_transaction_session_timeout", "50ms")
    bounded = f"-c statement_timeout={PATIENCE_S}s"
    with (
        PostgresStore(postgres_url) as store,
        psycopg.connect(postgres_url, options=bounded) as other,
    ):

        def freeze(connection: psycopg.Connection) -> None:
            connection.execute(lock)
            other.execute(lock)  # waits for the row
            other.rollback()

        with pytest.raises(StoreBusy, match="paused within the transaction; nothing was changed"):
            store.engine.transact(freeze)
    assert pg_line.cancel("a") == ["done"]


# Where a reservation left nothing


def test_complete_reservation_left_nothing_before_now(pg_line: Line) -> None:
    pg_line.put("a", due=NOW - 10)
    assert pg_line.reserve(ahead_ms=100).clear_ms == NOW
    assert pg_line.reserve(ahead_ms=100).clear_ms == NOW


def test_limited_reservation_left_nothing_before_its_latest(pg_line: Line) -> None:
    for number in range(3):
        pg_line.put(f"m{number}", due=NOW - 10 + number)
    assert pg_line.reserve(limit=2).clear_ms == NOW - 9


def test_reservation_beside_a_held_message_may_leave_something(
    pg_line: Line, postgres_url: str
) -> None:
    pg_line.put("held", due=NOW - 10)
    pg_line.put("free", due=NOW - 5)
    with psycopg.connect(postgres_url) as foreign:
        foreign.execute("SELECT 1 FROM chronoline.messages WHERE id = 'held' FOR UPDATE")
        grant = pg_line.reserve()
    assert [each.lease.id for each in grant.leased] == ["free"]
    assert grant.clear_ms == 0


# A lost server


def test_unreachable_server_is_named(mortal_server: PostgresServer) -> None:
    mortal_server.kill()
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            PostgresStore(mortal_server.url())
    finally:
        mortal_server.start()


def test_lost_server_leaves_the_outcome_unknown_and_recovers(
    mortal_server: PostgresServer,
) -> None:
    with PostgresStore(mortal_server.create_database("lost")) as store:
        topic = store.create_topic("t", now_ms=NOW)
        store.create(topic.uid, [new("before")], now_ms=NOW)
        mortal_server.kill()
        # The connection was open, so the request may have reached the server: the outcome is unknown.
        with pytest.raises(OutcomeUnknown):
            store.create(topic.uid, [new("a")], now_ms=NOW)
        mortal_server.start()
        wait_until_back(store, topic.uid)
        assert words(store.create(topic.uid, [new("b")], now_ms=NOW)) == ["done"]
        assert store.lookup(topic.uid, ["before", "b"]).keys() == {"before", "b"}


def wait_until_back(store: PostgresStore, uid: int) -> None:
    """Repeats a read until the store answers."""
    for _ in range(100):
        try:
            store.get_topic(uid)
        except StoreUnavailable:
            continue
        return
    pytest.fail("the store did not come back")


def test_silent_server_times_out(
    mortal_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresStore(mortal_server.create_database("frozen")) as store:
        topic = store.create_topic("t", now_ms=NOW)
        store.create(topic.uid, [new("before")], now_ms=NOW)
        mortal_server.pause()
        try:
            monkeypatch.setattr(database, "ANSWER_TIMEOUT_S", 0.2)
            with pytest.raises(OutcomeUnknown):
                store.create(topic.uid, [new("a")], now_ms=NOW)
        finally:
            mortal_server.resume()
        monkeypatch.undo()
        wait_until_back(store, topic.uid)
        store.create(topic.uid, [new("a")], now_ms=NOW)  # done now or by the first attempt
        assert store.lookup(topic.uid, ["a"]).keys() == {"a"}


def test_read_from_a_lost_server_is_unavailable(mortal_server: PostgresServer) -> None:
    with PostgresStore(mortal_server.create_database("looking")) as store:
        topic = store.create_topic("t", now_ms=NOW)
        mortal_server.kill()
        try:
            with pytest.raises(StoreUnavailable):
                store.lookup(topic.uid, ["a"])
        finally:
            mortal_server.start()
        wait_until_back(store, topic.uid)


# Watches


def hear_of(watch: Watch, wanted: Notice) -> None:
    """Waits for this notice, of any buckets; others may come before it."""
    for _ in range(100):
        notices = watch.wait(PATIENCE_S)
        assert notices, f"{wanted} was not noticed"
        if wanted in [replace(each, buckets=None) for each in notices]:
            return
    pytest.fail(f"{wanted} was not among a hundred notices")


def test_create_of_another_process_is_noticed(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    with child(postgres_url) as other, pg.watch() as watch:
        assert other.read_line() == "ready"
        other.write_line("create a")
        assert other.read_line() == "done"
        (message,) = pg.lookup(pg_line.uid, ["a"]).values()
        hear_of(watch, Notice(topic_uid=pg_line.uid, due=message.due))


def test_reconnection_wakes_all_watches(mortal_server: PostgresServer) -> None:
    with PostgresStore(mortal_server.create_database("waking")) as store, store.watch() as watch:
        hear_of(watch, Notice())
        assert watch.wait(0.05) == []
        mortal_server.kill()
        mortal_server.start()
        hear_of(watch, Notice())


MALFORMED = [
    "",
    "look",
    ":",
    "1:",
    ":1",
    "1:2:",
    "1:2:3,",
    "1:2:x",
    "1:2:3:4",
    "-1:5",
    "1.5:2",
    f"{'9' * 60}:1",
    "é:é",
    "1:²",
]
MALFORMED += [f"returned:{told}" for told in ("", "5", "[]", '["1", 2, "s", "c"]', "[1, 2, 3, 4]")]


@pytest.mark.parametrize("payload", MALFORMED)
def test_malformed_notice_becomes_an_empty_one(payload: str) -> None:
    assert parse_notice(payload) == Notice()


@pytest.mark.parametrize("buckets", [None, (7,), tuple(range(0, 64_000, 4_000))])
def test_notice_names_few_buckets(buckets: tuple[int, ...] | None) -> None:
    notice = Notice(topic_uid=2**62, due=2**53, buckets=buckets)
    assert parse_notice(write_notice(notice)) == notice


def test_malformed_notice_does_not_stop_the_listener(
    pg: PostgresStore, pg_line: Line, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as other, pg.watch() as watch:
        for payload in MALFORMED:
            watch.wait(0)
            other.execute("SELECT pg_notify('chronoline', %s)", [payload])
            hear_of(watch, Notice())
        pg_line.put("a", due=NOW + 7)
        hear_of(watch, Notice(topic_uid=pg_line.uid, due=NOW + 7))
    assert "listening on 'chronoline' failed" not in caplog.text


class Failures(logging.Handler):
    """Signals when the listener logs a failure."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "listening on 'chronoline' failed" in record.getMessage():
            self.heard.set()


def test_silently_dead_connection_is_replaced(
    mortal_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = Failures()
    postgres_listener.logger.addHandler(failures)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(postgres_listener, "_CHECK_S", 0.05)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(postgres_listener, "_PATIENCE_S", 0.2)
    with PostgresStore(mortal_server.create_database("silent")) as store, store.watch() as watch:
        hear_of(watch, Notice())
        mortal_server.pause()  # the connection stays open and silent
        try:
            assert failures.heard.wait(PATIENCE_S)
        finally:
            mortal_server.resume()
            monkeypatch.undo()
            postgres_listener.logger.removeHandler(failures)
        # The moment at which it is connected has no event.
        assert store.engine._listener is not None
        while not store.engine._listener.connected:
            assert watch.wait(PATIENCE_S), "nobody said that the line is back"
        topic = store.create_topic("t", now_ms=NOW)
        store.create(topic.uid, [new("a")], now_ms=NOW)
        hear_of(watch, Notice(topic_uid=topic.uid, due=NOW))


# Deadlocks


def deadlocks(server: PostgresServer) -> int:
    """Returns the number of deadlocks that the server found."""
    return server.log_path.read_text().count("deadlock detected")


def test_batches_in_opposite_order_do_not_deadlock(
    postgres_server: PostgresServer, pg_line: Line
) -> None:
    before = deadlocks(postgres_server)
    ids = [f"m{number}" for number in range(200)]
    pg_line.put(*ids)

    def move(order: int) -> list[str]:
        words: list[str] = []
        for number in range(10):
            left = ids[::order]
            while left:
                try:
                    words += pg_line.reschedule(*((each, NOW + number) for each in left))
                    left = []
                except StoreBusy:
                    pass  # on a busy machine the batches before it take longer than it waits for them
                except OutcomeUnknown as error:  # for the same reason, for some of them
                    left = [each.id for each in error.answered or [] if not each.done]
        return words

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(move, [1, -1] * 4))
    assert {word for answer in answers for word in answer} == {"done"}
    assert {message.version for message in pg_line.store.lookup(pg_line.uid, ids).values()} == {
        NOW + 80
    }
    assert deadlocks(postgres_server) == before


def test_statement_aborted_by_a_deadlock_is_retried(
    postgres_server: PostgresServer,
    postgres_url: str,
    pg_line: Line,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = deadlocks(postgres_server)
    first, second = sorted(
        (pg_line.put(each) for each in "ab"), key=lambda message: (message.bucket, message.id)
    )
    # The server looks for deadlocks when a statement has waited for a second.
    monkeypatch.setitem(database._SESSION_SETTINGS, "lock_timeout", "0")
    with (
        PostgresStore(postgres_url) as store,
        psycopg.connect(postgres_url) as foreign,
        ThreadPoolExecutor(1) as threads,
    ):
        # The transaction with this time-out finds the deadlock and is aborted, not the foreign one.
        foreign.execute("SET deadlock_timeout = '1h'")
        lock = "SELECT 1 FROM chronoline.messages WHERE topic = %s AND id = %s FOR UPDATE"
        foreign.execute(lock, [pg_line.uid, second.id])
        answer = threads.submit(Line(store, pg_line.topic).cancel, "a", "b")
        wait_until_blocked(postgres_url)  # it holds the first, and waits for the second
        foreign.execute(lock, [pg_line.uid, first.id])  # granted when the other was aborted
        assert not answer.done()
        foreign.commit()
        assert answer.result(PATIENCE_S) == ["done", "done"]
    assert deadlocks(postgres_server) > before


def wait_until_blocked(url: str) -> None:
    """Waits until some statement waits for a lock."""
    blocked = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(10_000):
            (row,) = connection.execute(blocked)
            if row[0]:
                return
    pytest.fail("nothing is blocked")


# Inside the caller's own transaction


def test_create_in_a_transaction_exists_after_commit(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    message = new("a", NOW + 5, body=b"x", key=b"k", headers=(("h", b"v"), ("h", None)))
    with psycopg.connect(postgres_url) as caller:
        assert words(pg.create_in(caller, pg_line.uid, [message], now_ms=NOW)) == ["done"]
        assert "a" not in pg_line
        caller.commit()
    assert pg_line["a"].headers == message.headers
    assert pg_line["a"].version == NOW


def test_create_in_a_transaction_is_undone_by_rollback(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as caller:
        assert words(pg.create_in(caller, pg_line.uid, [new("a")], now_ms=NOW)) == ["done"]
        caller.rollback()
    assert "a" not in pg_line
    assert pg_line.create(new("a")) == ["done"]


def test_refusals_leave_a_transaction_usable(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    pg_line.put("taken")
    batch = [new("a"), new("taken"), new(""), new("a")]
    with psycopg.connect(postgres_url) as caller:
        outcomes = pg.create_in(caller, pg_line.uid, batch, now_ms=NOW)
        assert words(outcomes) == ["done", "exists", "invalid", "exists"]
        moved = [new("taken", NOW + 9)]
        replaced = pg.create_in(caller, pg_line.uid, moved, if_exists="replace", now_ms=NOW)
        assert words(replaced) == ["done"]
        caller.commit()
    assert pg_line["taken"].due == NOW + 9
    assert "a" in pg_line


def test_commit_of_the_caller_wakes_a_watch(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as caller, pg.watch() as watch:
        pg.create_in(caller, pg_line.uid, [new("a", NOW + 7)], now_ms=NOW)
        caller.commit()
        hear_of(watch, Notice(topic_uid=pg_line.uid, due=NOW + 7))


def test_a_transaction_works_with_any_row_factory(
    pg: PostgresStore, pg_line: Line, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url) as caller:
        caller.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]  # as callers do
        pg.create_in(caller, pg_line.uid, [new("a"), new("a")], now_ms=NOW)
        caller.commit()
    assert pg_line.cancel("a", group=OWNERS) == ["done"]


@pytest.mark.parametrize(
    "use",
    ["from chronoline.stores.postgres import PostgresStore", "open_store('postgresql://h/d')"],
)
def test_a_missing_driver_is_answered_with_the_command(use: str) -> None:
    script = (
        f"import sys; sys.modules['psycopg'] = None\nfrom chronoline.store import open_store\n{use}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert "MissingExtra" in done.stderr
    assert "pip install 'chronoline[postgres]'" in done.stderr


# Machines that are gone


def test_connection_to_a_vanished_machine_ends_soon(postgres_url: str) -> None:
    """The socket has the options with which the system notices it; a URL may name others."""
    for url, idle_s in ((postgres_url, 5), (f"{postgres_url}?keepalives_idle=30", 30)):
        found = database.PostgresDatabase(
            url, package="chronoline.stores.postgres", schema="chronoline"
        )
        with closing(found), found.connection() as pooled, found.connect() as outside:
            for connection in (pooled, outside):
                with socket.socket(fileno=os.dup(connection.fileno())) as tcp:
                    assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                    assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle_s
                    assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 11_000
