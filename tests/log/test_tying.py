"""Objects and index belong together: with the wrong one nothing is opened, and nothing deleted."""

from pathlib import Path

import pytest

from chronoline.core.errors import StoreError
from chronoline.log import Log
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.log.objects.local import LocalObjects
from chronoline.log.opening import open_parts


def make(url: str, index: str | None = None) -> None:
    with Log(url, index=index) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"kept")


def kept(url: str, index: str | None = None) -> bool:
    with Log(url, index=index) as log:
        assert log.sweep(grace_ms=-60_000) == 0
        return [event.value for event in log.read("t", follow=False)] == [b"kept"]


def test_an_index_that_was_lost_is_not_made_anew(tmp_path: Path, url: str) -> None:
    make(url)
    (tmp_path / "log" / "index.db").rename(tmp_path / "saved.db")
    for path in (tmp_path / "log").glob("index.db-*"):
        path.unlink()
    with pytest.raises(StoreError, match="the index is new: was the old one lost"):
        Log(url)
    assert kept(url, f"sqlite:///{tmp_path}/saved.db")


def test_two_places_cannot_share_an_index(tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    make(f"file://{tmp_path}/one", index)
    with pytest.raises(StoreError, match="belongs to the objects of another log"):
        Log(f"file://{tmp_path}/two", index=index)
    assert kept(f"file://{tmp_path}/one", index)


def test_a_first_opening_that_died_in_between_is_done_again(tmp_path: Path, url: str) -> None:
    LocalObjects(tmp_path / "log" / "objects").mark("made")
    make(url)
    assert kept(url)


def test_a_log_from_before_there_were_marks_is_taken_over(tmp_path: Path, url: str) -> None:
    make(url)
    (mark,) = (tmp_path / "log" / "objects").glob("*/chronoline-log.events")
    mark.unlink()
    index = SqliteIndex(str(tmp_path / "log" / "index.db"))
    with index._database.writing() as connection:
        connection.execute("DELETE FROM log")
    index.close()
    assert kept(url)


def test_the_mark_is_no_object(url: str) -> None:
    objects, index = open_parts(url)
    assert list(objects.list()) == []
    objects.close()
    index.close()
