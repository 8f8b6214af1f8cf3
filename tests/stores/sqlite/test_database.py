"""One SQLite file: other processes, other schemas, and disks that fail.

Some tests wrap the private writing connection of the database: no public call makes it fail at a given step.
"""

import itertools
import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from chronoline.core.errors import (
    ChronolineError,
    InvalidInput,
    SchemaTooNew,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from chronoline.core.limits import TURN_BOUND_MS
from chronoline.core.schedule import Recurrence, Schedule
from chronoline.core.topic import Topic, TopicSettings
from chronoline.databases import sqlite
from chronoline.runtime.child_process import LineProcess
from chronoline.stores.contract import NOTICE_HORIZON_MS, Notice
from chronoline.stores.factory import open_store
from chronoline.stores.sqlite import SqliteStore
from tests.stores.line import NOW, OWNERS, Line, new, words
from tests.stores.sqlite.flush import BrokenDisk

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "t.db")


def child(what: str, path: str, **environment: str) -> LineProcess:
    """Another process on the file; it ends with its block."""
    command = [sys.executable, "-m", "tests.stores.sqlite.child", what, path]
    return LineProcess(command, cwd=ROOT, environment=os.environ | environment)


def make_topic(store: SqliteStore) -> Topic:
    return store.create_topic("t", now_ms=NOW)


# Files that are not ours


def test_a_newer_schema_is_refused_and_left_alone(path: str) -> None:
    SqliteStore(path).close()
    newer = sqlite3.connect(path)
    version = newer.execute("PRAGMA user_version").fetchone()[0] + 1
    newer.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SchemaTooNew, match=f"version {version}.*upgrade Chronoline") as raised:
        SqliteStore(path)
    assert path in str(raised.value)
    assert newer.execute("PRAGMA user_version").fetchone()[0] == version
    newer.close()


def test_other_file_is_named_and_left_alone(path: str) -> None:
    text = b"Dear diary, today I was not a database. " * 100
    Path(path).write_bytes(text)
    with pytest.raises(StoreError, match="is not a SQLite database") as raised:
        SqliteStore(path)
    assert path in str(raised.value)
    assert Path(path).read_bytes() == text


@contextmanager
def closed_folder(prepare: Callable[[Path], None] = lambda _: None) -> Iterator[Path]:
    """A folder that this process cannot write, after it was prepared."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        folder.chmod(0o555)
        was = os.geteuid()
        if was == 0:  # to root every folder is open
            os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            yield folder
        finally:
            os.seteuid(was)
            folder.chmod(0o755)


@pytest.mark.parametrize("inside", ["t.db", "new/folder/t.db"])
def test_read_only_folder_is_refused_by_name(inside: str) -> None:
    with (
        closed_folder() as folder,
        pytest.raises(StoreUnavailable, match=f"{folder}/{inside}.* cannot be"),
    ):
        SqliteStore(str(folder / inside))


def test_read_only_file_is_refused() -> None:
    def make_file(folder: Path) -> None:
        SqliteStore(f"{folder}/t.db").close()
        Path(folder, "t.db").chmod(0o444)

    with (
        closed_folder(make_file) as folder,
        pytest.raises(StoreUnavailable, match="cannot be written"),
    ):
        SqliteStore(f"{folder}/t.db")


def test_threads_can_open_a_new_file_together(path: str) -> None:
    for number in range(10):
        start = threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            opened = [threads.submit(open_at, start, f"{path}{number}") for _ in range(8)]
        assert [each.exception() for each in opened] == [None] * 8


def open_at(start: threading.Barrier, path: str) -> None:
    start.wait(PATIENCE_S)
    SqliteStore(path).close()


@pytest.mark.parametrize("application_id", [0, 0x47504B47])  # none; a GeoPackage
def test_database_of_another_program_is_left_alone(path: str, application_id: int) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE places (name TEXT)")
    other.execute("INSERT INTO places VALUES ('here')")
    other.execute(f"PRAGMA application_id = {application_id}")
    with pytest.raises(StoreError, match="of another program") as raised:
        SqliteStore(path)
    assert path in str(raised.value)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("places",)]
    assert other.execute("SELECT name FROM places").fetchall() == [("here",)]
    assert other.execute("PRAGMA application_id").fetchone() == (application_id,)
    assert other.execute("PRAGMA user_version").fetchone() == (0,)
    other.close()


def test_empty_file_becomes_a_store(path: str) -> None:
    Path(path).touch()
    with SqliteStore(path) as store:
        topic = make_topic(store)
    with SqliteStore(path) as store:
        assert store.list_topics() == [topic]


@pytest.mark.parametrize("name", ["t.db", "./t.db", "inside/../t.db", "link.db", "other/t.db"])
def test_all_names_of_a_file_name_the_same_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "link.db").symlink_to("t.db")
    (tmp_path / "other").symlink_to(".")
    with open_store(f"sqlite:///{tmp_path}/t.db") as first:
        topic = first.create_topic("t", now_ms=NOW)
        monkeypatch.chdir(tmp_path)
        with open_store(f"sqlite:///{name}") as second, second.watch() as watch:
            assert second.list_topics() == [topic]
            monkeypatch.chdir(tmp_path / "inside")  # a name means what it meant when it was opened
            second.create(topic.uid, [new("a")], now_ms=NOW)
            assert first.lookup(topic.uid, ["a"]).keys() == {"a"}
            watch.wait(0)
            first.create(topic.uid, [new("b")], now_ms=NOW)
            assert watch.wait(PATIENCE_S) == [Notice()]
            assert second.lookup(topic.uid, ["b"]).keys() == {"b"}
    made = {each.name for each in tmp_path.iterdir()}
    assert made == {"t.db", "inside", "link.db", "other"}
    assert list((tmp_path / "inside").iterdir()) == []


# Other processes


def test_lock_of_another_process_times_out_as_busy(path: str) -> None:
    with SqliteStore(path, busy_ms=50) as store:
        topic = make_topic(store)
        store.create(topic.uid, [new("a")], now_ms=NOW)
        with child("lock", path) as other:
            assert other.read_line() == "locked"
            with pytest.raises(StoreBusy, match="locked by another process; nothing was changed"):
                store.create(topic.uid, [new("b")], now_ms=NOW)
            with pytest.raises(StoreBusy):
                store.cancel(topic.uid, ["a"], producer_group=OWNERS, now_ms=NOW)
            assert store.lookup(topic.uid, ["a", "b"]).keys() == {"a"}  # reading goes on
            other.write_line("enough")
            other.wait(PATIENCE_S)
        assert words(store.create(topic.uid, [new("b")], now_ms=NOW)) == ["done"]


def test_create_waits_at_most_a_second_for_its_turn(path: str) -> None:
    with SqliteStore(path, busy_ms=PATIENCE_S * 1000) as store:
        topic = make_topic(store)
        with child("lock", path) as other:
            assert other.read_line() == "locked"
            with pytest.raises(StoreBusy, match="locked by another process; nothing was changed"):
                store.create(topic.uid, [new("a")], now_ms=NOW)
        # A writer that another thread waits for.
        with store.engine.database._alone(1_000), ThreadPoolExecutor(1) as threads:
            made = threads.submit(store.create, topic.uid, [new("a")], now_ms=NOW)
            with pytest.raises(StoreBusy, match=r"other threads write .* nothing was changed"):
                made.result(PATIENCE_S)
        assert store.lookup(topic.uid, ["a"]) == {}


def test_a_create_whose_turn_comes_too_late_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        late = itertools.count(0, TURN_BOUND_MS / 1000 + 0.001)
        monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: next(late)))
        with pytest.raises(StoreBusy, match="too late; nothing was changed"):
            store.create(topic.uid, [new("a")], now_ms=NOW)
        monkeypatch.undo()
        assert store.lookup(topic.uid, ["a"]) == {}
        assert words(store.create(topic.uid, [new("a")], now_ms=NOW)) == ["done"]


def test_a_lock_that_ends_in_time_is_not_noticed(path: str) -> None:
    with SqliteStore(path, busy_ms=PATIENCE_S * 1000) as store:
        topic = make_topic(store)
        with child("lock", path) as other:
            assert other.read_line() == "locked"
            threading.Timer(0.05, other.write_line, ("enough",)).start()
            assert words(store.create(topic.uid, [new("a")], now_ms=NOW)) == ["done"]


def test_a_commit_of_another_process_wakes_a_watch(path: str) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        with child("create", path) as other, store.watch() as watch:
            assert other.read_line() == "ready"
            watch.wait(0.05)  # what the other did to open the file
            other.write_line("a")
            assert watch.wait(PATIENCE_S) == [Notice()]
            assert other.read_line() == "done"
            assert "a" in store.lookup(topic.uid, ["a"])


def test_watch_wakes_by_another_process_during_own_write(path: str) -> None:
    with SqliteStore(path) as store:
        make_topic(store)
        with child("create", path) as other, store.watch() as watch:
            assert other.read_line() == "ready"
            watch.wait(0.05)  # what the other did to open the file
            other.write_line("a")
            assert other.read_line() == "done"
            with store.engine.database.writing():  # the writing connection is in use now
                assert watch.wait(PATIENCE_S) == [Notice()]


def test_own_commits_do_not_hide_those_of_others(path: str) -> None:
    far = NOW + 10 * NOTICE_HORIZON_MS  # too far away for a notice
    with SqliteStore(path) as store:
        topic = make_topic(store)
        with child("create", path) as other, store.watch() as watch:
            assert other.read_line() == "ready"
            watch.wait(0.05)  # what the other did to open the file
            other.write_line("a")
            assert other.read_line() == "done"
            for number in range(20):
                store.create(topic.uid, [new(f"own{number}", far)], now_ms=NOW)
            assert watch.wait(PATIENCE_S) == [Notice()]


def test_a_watch_survives_a_lock_of_another_process(path: str) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        with child("lock", path) as other, store.watch() as watch:
            assert other.read_line() == "locked"
            watch.wait(0.03)
            other.write_line("enough")
            other.wait(PATIENCE_S)
            store.create(topic.uid, [new("a")], now_ms=NOW)
            assert (topic.uid, NOW) in [
                (each.topic_uid, each.due) for each in watch.wait(PATIENCE_S)
            ]


# A full disk


def fill(store: SqliteStore, topic: Topic) -> int:
    """Creates messages until the store is full; returns their number."""
    for made in range(0, 10_000, 10):
        batch = [new(f"m{made + n}", body=os.urandom(1_500)) for n in range(10)]
        try:
            assert words(store.create(topic.uid, batch, now_ms=NOW)) == ["done"] * 10
        except StoreFull:
            assert store.lookup(topic.uid, [each.id for each in batch]) == {}
            return made
    pytest.fail("it never was full")


def count(store: SqliteStore, topic: Topic) -> int:
    return store.count(topic.uid, topic.all_buckets, start=0, end=NOW + 1, now_ms=NOW).total


def cancel(store: SqliteStore, topic: Topic, many: int) -> list[str]:
    ids = [f"m{number}" for number in range(many)]
    return words(store.cancel(topic.uid, ids, producer_group=OWNERS, now_ms=NOW))


def test_full_file_refuses_creates_until_there_is_room(path: str) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        with store.engine.database.writing() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 50}")
        made = fill(store, topic)
        assert count(store, topic) == made
        assert cancel(store, topic, 20) == ["done"] * 20  # needs no more room
        connection.execute(f"PRAGMA max_page_count = {pages + 100}")
        assert words(store.create(topic.uid, [new("after")], now_ms=NOW)) == ["done"]
        assert count(store, topic) == made - 20 + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root; max_page_count stands for it elsewhere")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_refuses_creates_until_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    with SqliteStore(str(small_disk / "t.db")) as store:
        topic = make_topic(store)
        made = fill(store, topic)
        assert count(store, topic) == made
        ballast.unlink()
        assert words(store.create(topic.uid, [new("after")], now_ms=NOW)) == ["done"]
    with SqliteStore(str(small_disk / "t.db")) as store:
        assert count(store, topic) == made + 1


def test_deleting_works_on_a_full_disk(small_disk: Path) -> None:
    with SqliteStore(str(small_disk / "t.db")) as store:
        topic = make_topic(store)
        made = fill(store, topic)
        for _ in range(5):
            assert cancel(store, topic, 20) == ["done"] * 20
        assert count(store, topic) == made - 20


# A disk whose flushes fail


@pytest.mark.parametrize("ending", ["-wal", ".db"])
def test_a_failed_flush_stops_the_process(path: str, tmp_path: Path, ending: str) -> None:
    disk = BrokenDisk(tmp_path)
    with child("flood", path, **disk.environment) as writer:
        answered = [writer.read_line() for _ in range(100)]
        disk.trigger.write_text(ending)
        answered += writer.read_rest()
        assert writer.exit_code == 70
    with SqliteStore(path) as store:
        (topic,) = store.list_topics()
        assert set(answered) - store.lookup(topic.uid, answered).keys() == set()


def test_nothing_is_answered_from_a_log_that_was_not_flushed(path: str, tmp_path: Path) -> None:
    """A process that ends within a flush leaves a commit that the next one sees, and the disk may lack."""
    disk = BrokenDisk(tmp_path)
    with child("flood", path, **disk.environment) as writer:
        answered = [writer.read_line() for _ in range(10)]
        disk.trigger.write_text("-wal")
        answered += writer.read_rest()
    unanswered = f"m{len(answered)}"
    with child("create", path, **disk.environment) as again:
        with suppress(ChronolineError):  # it has ended already
            again.write_line(unanswered)
        again.close_input()
        said = again.read_rest()
        assert (said, again.exit_code) == ([], 70)
    disk.trigger.unlink()
    with child("create", path, **disk.environment) as again:
        assert again.read_line() == "ready"
        again.write_line(unanswered)
        assert again.read_line().startswith("a message with this id exists")


# The write-ahead log


class Probe:
    """Wraps the writing connection: counts checkpoints, and makes them fail on demand."""

    def __init__(self, connection: sqlite3.Connection, error: str = "") -> None:
        self._connection, self._error = connection, error
        self.checkpoints = 0

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if "wal_checkpoint" in sql:
            self.checkpoints += 1
            if self._error:
                error = sqlite3.OperationalError("the checkpoint failed")
                error.sqlite_errorname = self._error
                raise error
        return self._connection.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def probe(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, error: str = "") -> Probe:
    # A connection whose disk is full.
    found = Probe(store.engine.database._writer, error)
    monkeypatch.setattr(store.engine.database, "_writer", found)
    return found


def write_much(store: SqliteStore, topic: Topic) -> None:
    """More than the log holds before it is moved into the file."""
    for number in range(12):
        message = new(f"big{number}", body=bytes(1_000_000))
        assert words(store.create(topic.uid, [message], now_ms=NOW)) == ["done"]


@pytest.mark.parametrize("error", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY"])
def test_failed_checkpoint_does_not_undo_a_change(
    path: str, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        found = probe(store, monkeypatch, error)
        write_much(store, topic)
        assert found.checkpoints


def test_checkpoint_runs_now_and_then(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
        found = probe(store, monkeypatch)
        write_much(store, topic)
        assert found.checkpoints
        before = found.checkpoints
        for number in range(100):
            store.create(topic.uid, [new(f"small{number}")], now_ms=NOW)
        assert found.checkpoints <= before + 1  # not at every commit from then on


def test_nobody_writes_during_a_checkpoint(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite before 3.51.3 can lose what another process commits then."""
    with SqliteStore(path) as store, closing(sqlite3.connect(path, timeout=0)) as other:
        topic = make_topic(store)
        tried: list[str] = []

        def try_to_write(sql: str) -> None:
            if "wal_checkpoint" in sql:
                with pytest.raises(sqlite3.OperationalError, match="locked") as raised:
                    other.execute("BEGIN IMMEDIATE")
                tried.append(raised.value.sqlite_errorname)

        store.engine.database._writer.set_trace_callback(try_to_write)
        write_much(store, topic)
        assert set(tried) == {"SQLITE_BUSY"}
        store.engine.database._writer.set_trace_callback(None)


def test_no_checkpoint_runs_while_another_process_writes(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(path) as kept:
        topic = make_topic(kept)
        with SqliteStore(path) as store:
            found = probe(store, monkeypatch)
            store.create(topic.uid, [new("a")], now_ms=NOW)
            with child("lock", path) as other:
                assert other.read_line() == "locked"
                store.close()
        assert found.checkpoints == 0
        assert kept.lookup(topic.uid, ["a"]).keys() == {"a"}


def test_file_that_was_moved_away_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "odd?#% name" / "t.db"
    with open_store(f"sqlite:///{quote(str(path))}") as store:
        store.create_topic("t", now_ms=NOW)
        away = path.parent.rename(tmp_path / "away")
        path.parent.mkdir()
    assert list(path.parent.iterdir()) == []
    assert (away / "t.db").exists()


def test_store_is_opened_while_another_process_writes(path: str) -> None:
    with SqliteStore(path) as store:
        topic = make_topic(store)
    with child("lock", path) as other:
        assert other.read_line() == "locked"
        with SqliteStore(path, busy_ms=0) as store:
            assert store.list_topics() == [topic]


def test_removed_folder_is_named_and_nothing_changes(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with SqliteStore(str(folder / "t.db")) as store:
        topic = make_topic(store)
        shutil.rmtree(folder)
        with pytest.raises(StoreUnavailable, match=r"folder .* nothing was changed"):
            store.create(topic.uid, [new("a")], now_ms=NOW)


def test_interrupt_after_begin_leaves_no_transaction_open(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(path) as store:
        # An interruption between two steps.
        begin = store.engine.database._retried

        def interrupted(*arguments: Any) -> None:
            begin(*arguments)
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(store.engine.database, "_retried", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.create_topic("a", now_ms=NOW)
        assert store.create_topic("b", now_ms=NOW).name == "b"
        assert [each.name for each in store.list_topics()] == ["b"]


def test_names_of_earlier_releases_stay_usable(path: str) -> None:
    """`.` and `..` are refused for new topics, messages and schedules."""
    with SqliteStore(path) as store:
        uid = store.create_topic("t", TopicSettings(buckets=1), now_ms=NOW).uid
        store.create(uid, [new("a"), new("b")], now_ms=NOW)
        often = Recurrence(every_ms=60_000)
        store.put_schedule(Schedule(name="s", topic_uid=uid, recurrence=often), now_ms=NOW)
    with closing(sqlite3.connect(path)) as file:
        for change in (
            "UPDATE topics SET name = '..'",
            "UPDATE messages SET id = '.' WHERE id = 'a'",
            "UPDATE messages SET id = '..' WHERE id = 'b'",
            "UPDATE schedules SET name = '..'",
        ):
            file.execute(change)
        file.commit()
    with SqliteStore(path) as store:
        topic = store.find_topic("..")
        assert topic is not None
        line = Line(store, topic)
        assert line.cancel(".") == ["done"]
        assert line.ack(line.take()) == ["done"]
        assert line.create(new(".")) == ["invalid"]
        (found,) = store.list_schedules(limit=10)
        paused = replace(found, paused=True)
        assert store.put_schedule(paused, instead_of=found, now_ms=NOW) is not None
        with pytest.raises(InvalidInput, match="schedule name cannot be"):
            store.put_schedule(Schedule(name=".", topic_uid=uid, recurrence=often), now_ms=NOW)
        assert store.delete_topic(topic.uid, now_ms=NOW)
