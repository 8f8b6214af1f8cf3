"""Receipts survive the process that writes them, and become Parquet files."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from chronoline.pipe import receipts
from chronoline.pipe.receipts import Fired, Receipts, as_batch, receipts_url
from tests.runtime.nfs import flock_of_nfs

FIRED = [Fired("a", 7, 1_000, 1_002, False), Fired("b", 8, 2_000, 2_000, True)]


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the visible files, as Spark and Arrow read a folder."""
    found = pq.read_table(folder) if list(folder.glob("*.parquet")) else None
    return [] if found is None else found.to_pylist()


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.name != ".collector"]


@contextmanager
def limited_files(folder: Path, *, more_bytes: int) -> Iterator[None]:
    """Lets a journal grow by so much only: a write beyond it is short, and the next one fails."""
    (journal,) = folder.glob(".journal-*")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + more_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_receipt_has_times_and_version() -> None:
    one, two = as_batch(FIRED, "n").to_pylist()
    assert (one["id"], one["version"], one["lateness_ms"], one["redelivered"]) == ("a", 7, 2, False)
    assert (two["id"], two["version"], two["lateness_ms"], two["redelivered"]) == ("b", 8, 0, True)
    assert one["due"].timestamp() == 1
    assert one["fired"].timestamp() == 1.002
    assert {one["node"], two["node"]} == {"n"}


def test_journals_of_several_tasks_become_one_file(tmp_path: Path) -> None:
    for node in ("n", "m"):
        with Receipts(receipts_url(str(tmp_path))) as written:
            written.write(FIRED, node)
            written.write(FIRED[:1], node)
    assert rows(tmp_path) == []  # they are young
    Receipts(tmp_path.as_uri()).collect(0)
    assert sorted((row["node"], row["id"]) for row in rows(tmp_path)) == [
        ("m", "a"),
        ("m", "a"),
        ("m", "b"),
        ("n", "a"),
        ("n", "a"),
        ("n", "b"),
    ]
    assert len(names(tmp_path)) == 1


def test_journals_beyond_the_open_files_of_a_process_are_collected(tmp_path: Path) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")
    (journal,) = tmp_path.glob(".journal-*")
    for number in range(500):
        shutil.copy(journal, f"{journal}-{number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 250, hard))
    try:
        written.collect(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(rows(tmp_path)) == 2 * 501
    assert len(names(tmp_path)) == 3


def test_task_without_messages_leaves_no_file(tmp_path: Path) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        pass
    written.collect(0)
    assert names(tmp_path) == []


def test_journal_in_use_is_left_alone(tmp_path: Path) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")
        Receipts(tmp_path.as_uri()).collect(0)
        assert rows(tmp_path) == []
        written.write(FIRED, "n")
    Receipts(tmp_path.as_uri()).collect(0)
    assert len(rows(tmp_path)) == 4


def test_old_journals_are_collected_at_the_end_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")
    monkeypatch.setattr(time, "time", lambda: 1e12)
    with Receipts(tmp_path.as_uri()):
        pass
    assert len(rows(tmp_path)) == 2


_KILLED = """
import os, sys
from chronoline.pipe.receipts import Receipts, Fired
written = Receipts(sys.argv[1])
for number in range(3):
    written.write([Fired(f"{number}", 1, 0, 0, False)], "n")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("torn", [0, 7])
def test_killed_task_leaves_its_receipts(tmp_path: Path, torn: int) -> None:
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path.as_uri()], check=False)
    (journal,) = tmp_path.glob(".journal-*")
    if torn:  # it was killed while it wrote the last one
        journal.write_bytes(journal.read_bytes()[:-torn])
    Receipts(tmp_path.as_uri()).collect(0)
    assert [row["id"] for row in rows(tmp_path)] == ["0", "1", "2"][: 2 if torn else 3]
    assert len(names(tmp_path)) == 1


def test_journals_are_collected_where_locks_need_files_open_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", flock_of_nfs)
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")
    written.collect(0)
    assert len(rows(tmp_path)) == 2


def test_unreadable_journal_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / ".journal-0-x").write_bytes(b"torn")
    Receipts(tmp_path.as_uri()).collect(0)
    assert names(tmp_path) == []


def test_failed_write_is_repeated_by_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "before")
        with limited_files(tmp_path, more_bytes=100):
            written.write(FIRED, "torn")
        written.write(FIRED, "soon")  # too soon for another try
        assert len(list(tmp_path.glob(".journal-*"))) == 1
        later_s = time.monotonic() + 10
        monkeypatch.setattr(time, "monotonic", lambda: later_s)
        written.write(FIRED, "after")
        Receipts(tmp_path.as_uri()).collect(0)  # that of the first journal
        assert [row["node"] for row in rows(tmp_path)] == ["before"] * 2
    written.collect(0)
    assert sorted({row["node"] for row in rows(tmp_path)}) == ["after", "before", "soon", "torn"]
    assert len(rows(tmp_path)) == 8


def test_failed_write_is_repeated_at_the_end(tmp_path: Path) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "before")
        with limited_files(tmp_path, more_bytes=100):
            written.write(FIRED, "torn")
    written.collect(0)
    assert sorted(row["node"] for row in rows(tmp_path)) == ["before"] * 2 + ["torn"] * 2


def test_failed_write_is_repeated_by_a_later_task_of_the_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "receipts"
    blocked.touch()  # no folder
    for node in ("first", "second"):
        task = Receipts(blocked.as_uri())
        task.write(FIRED, node)
        with pytest.raises(OSError, match="receipts"):
            task.close()
    assert "are lost" not in caplog.text
    blocked.unlink()
    Receipts(blocked.as_uri()).close(0)  # without messages
    assert [row["node"] for row in rows(blocked)] == ["first"] * 2 + ["second"] * 2

    blocked = tmp_path / "other"
    blocked.touch()
    last = Receipts(blocked.as_uri())
    last.write(FIRED, "last")
    with pytest.raises(OSError, match="other"):
        last.close(0)
    assert caplog.messages[-1] == "2 receipts are lost: they could not be written"


def test_receipts_beyond_the_bound_are_lost_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # No setting: the bound is far above what a test writes.
    monkeypatch.setattr(receipts, "_MOST_UNWRITTEN", 3)
    blocked = tmp_path / "receipts"
    blocked.touch()  # no folder
    written = Receipts(blocked.as_uri())
    written.write(FIRED, "kept")
    written.write(FIRED, "lost")
    assert caplog.messages[-1] == "2 receipts are lost: too many wait to be written"
    blocked.unlink()
    written.close(0)
    assert [row["node"] for row in rows(blocked)] == ["kept"] * 2


def test_failed_collection_leaves_the_journals_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(pq.ParquetWriter, "write_table", fail)
        with pytest.raises(OSError, match="full"):
            written.collect(0)
    (left,) = names(tmp_path)
    assert left.startswith(".journal-")
    written.collect(0)
    assert len(rows(tmp_path)) == 2


def test_incomplete_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    young = time.time_ns() // 1_000_000
    for name in (".new-{}-x", ".receipts-{}-x.parquet"):
        for moment in (0, young):
            (tmp_path / name.format(moment)).touch()
    with Receipts(tmp_path.as_uri()) as written:
        written.write(FIRED, "n")
    written.collect(0)
    hidden = {name for name in names(tmp_path) if name.startswith(".")}
    assert hidden == {f".new-{young}-x", f".receipts-{young}-x.parquet"}


_ELSEWHERE = "s3://bucket/receipts"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of a process whose receipts go to a file system that is not local."""
    bucket, own = tmp_path / "bucket", tmp_path / "temporary"
    bucket.mkdir()
    own.mkdir()
    system = fs.SubTreeFileSystem(str(bucket), fs.LocalFileSystem())
    found = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=lambda _: (system, "")))
    monkeypatch.setattr(receipts, "fs", found)
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own


def test_journals_of_an_object_store_are_in_a_private_folder(temporary: Path) -> None:
    with Receipts(_ELSEWHERE) as receipts:
        receipts.write(FIRED, "node")
        (folder,) = temporary.iterdir()
        (journal,) = folder.glob(".journal-*")
        assert (_mode(folder), _mode(journal)) == (0o700, 0o600)


def test_foreseen_folder_in_the_temporary_folder_is_not_used(temporary: Path) -> None:
    with Receipts(_ELSEWHERE) as before:
        before.write(FIRED, "node")
    (known,) = temporary.iterdir()
    prefix = known.name.rpartition("-")[0]
    shutil.rmtree(known)
    elsewhere = temporary.parent / "elsewhere"
    elsewhere.mkdir()
    (temporary / prefix).symlink_to(elsewhere)
    open_to_all = temporary / f"{prefix}-0"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with Receipts(_ELSEWHERE) as receipts:
        receipts.write(FIRED, "node")
        assert not any(elsewhere.iterdir())
        assert not any(open_to_all.iterdir())


def test_journals_in_all_own_folders_are_collected(temporary: Path) -> None:
    first = Receipts(_ELSEWHERE)
    first.write(FIRED, "node")
    (known,) = temporary.iterdir()
    other = known.with_name(f"{known.name}-other")  # made at the same moment by another process
    shutil.copytree(known, other)
    first.close(after_s=0)
    assert list(temporary.glob("*/.journal-*")) == []


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
