"""Objects in files: flushes, folders, and failing disks."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from chronoline.core.errors import StoreError, StoreFull, StoreUnavailable
from chronoline.log import Log
from chronoline.log.contract import MARK, Objects
from chronoline.log.format import DamagedObject
from chronoline.log.objects.address import path_of
from chronoline.log.objects.local import LocalObjects

NAME = "01KDVDN00000000000000000AA"


class Stopped(BaseException):
    """Raised instead of the end of the process."""


def stop(error: BaseException) -> NoReturn:
    raise Stopped from error


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "deep" / "objects", on_failed_flush=stop)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The flushed paths, in order."""
    paths: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        paths.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return paths


def path_in(folder: Path) -> Path:
    return folder / NAME[:5] / f"{NAME}.events"


def test_file_and_its_folders_are_flushed(tmp_path: Path, flushed: list[Path]) -> None:
    root = tmp_path / "deep" / "objects"
    LocalObjects(root).put(NAME, b"events")
    assert flushed == [tmp_path, root.parent, root, path_in(root), path_in(root).parent]


def test_a_folder_that_another_made_is_flushed_too(
    objects: LocalObjects, tmp_path: Path, flushed: list[Path]
) -> None:
    root = tmp_path / "deep" / "objects"
    path_in(root).parent.mkdir()
    objects.put(NAME, b"events")
    assert flushed == [root, path_in(root), path_in(root).parent]
    del flushed[:]
    objects.put(NAME[:-1] + "B", b"events")
    assert root not in flushed


def test_a_folder_that_was_removed_is_made_again(objects: LocalObjects, tmp_path: Path) -> None:
    objects.put(NAME, b"events")
    objects.delete([NAME])
    path_in(tmp_path / "deep" / "objects").parent.rmdir()
    with pytest.raises(StoreUnavailable):
        objects.put(NAME, b"events")
    objects.put(NAME, b"events")
    assert objects.get(NAME, 0, 6) == b"events"


def test_after_a_failed_flush_the_process_stops(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(Stopped):
        objects.put(NAME, b"events")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreUnavailable)]
)
def test_a_write_that_fails_leaves_nothing(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(kind):
            objects.put(NAME, b"events")
    assert list(objects.list()) == []
    objects.put(NAME, b"events")


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [(errno.ENOSPC, StoreFull, "no room"), (errno.EACCES, StoreUnavailable, "Permission denied")],
)
def test_failed_mark_says_why_and_leaves_nothing(
    objects: LocalObjects,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    number: int,
    kind: type[StoreError],
    said: str,
) -> None:
    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(kind, match=said):
            objects.mark("mine")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert objects.mark("mine") == "mine"


def test_mark_is_visible_only_when_complete(
    objects: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    seen: list[str | None] = []

    def look_and_write(descriptor: int, data: bytes) -> int:
        seen.append(objects.marked())
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", look_and_write)
    assert objects.mark("mine") == "mine"
    assert objects.mark("another's") == "mine"
    assert seen == [None, "mine"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        Path(path_of(MARK)).name
    ]


def test_empty_mark_counts_as_missing(objects: LocalObjects) -> None:
    objects.put(MARK, b"")
    assert objects.marked() is None
    with pytest.raises(StoreError, match="exists already"):
        Objects.mark(objects, "mine")


def test_a_second_put_does_not_harm_the_first(objects: LocalObjects) -> None:
    objects.put(NAME, b"events")
    with pytest.raises(StoreError, match="exists already"):
        objects.put(NAME, b"others")
    assert objects.get(NAME, 0, 100) == b"events"


def test_failed_read_or_delete_is_unavailable(objects: LocalObjects, tmp_path: Path) -> None:
    path_in(tmp_path / "deep" / "objects").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        objects.get(NAME, 0, 1)
    with pytest.raises(StoreUnavailable, match="cannot be deleted"):
        objects.delete([NAME])


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        LocalObjects(tmp_path / "file" / "objects")


def test_other_files_are_passed_over(objects: LocalObjects, tmp_path: Path) -> None:
    root = tmp_path / "deep" / "objects"
    objects.put(NAME, b"events")
    for other in ("notes.txt", "01KDV/notes.txt", f"OTHER/{NAME}.events", "01KDV/.events"):
        (root / other).parent.mkdir(exist_ok=True)
        (root / other).touch()
    assert [stored.name for stored in objects.list()] == [NAME]


@pytest.mark.parametrize("kept_bytes", [0, 3, 5, 20])
def test_a_file_that_was_cut_is_reported_as_damaged(tmp_path: Path, kept_bytes: int) -> None:
    with Log(f"file://{tmp_path}") as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"one")
        (path,) = (tmp_path / "objects").glob("0*/*")
        os.truncate(path, kept_bytes)
        with pytest.raises(DamagedObject, match=path.stem):
            list(log.read("t", follow=False))
