"""Objects and index belong together: a wrong pair is not opened, and nothing is deleted."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from chronoline.core.errors import StoreError, StoreUnavailable
from chronoline.log import Log, factory
from chronoline.log.contract import MARK, Index, Objects
from chronoline.log.factory import open_parts, prepare
from chronoline.log.index.sqlite import SqliteIndex
from chronoline.log.log_identity import tie
from chronoline.log.objects.address import path_of
from chronoline.log.objects.local import LocalObjects
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.servers.aws import DynamoDBServer, S3Server
from tests.log.internals import objects_of, upkeep_of
from tests.log.places import PLACES, place

NEW_INDEX = "the index is new: was the old one lost"
OTHER_LOG = "belongs to the objects of another log"


def make(url: str, index: str | None = None) -> None:
    with Log(url, index=index) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=b"kept")


def kept(url: str, index: str | None = None) -> bool:
    with Log(url, index=index) as log:
        # The time of the log's own clock.
        upkeep_of(log).sweep(grace_ms=-60_000, now_ms=log._clock.now_ms(), progress=lambda _: None)
        return [event.value for event in log.read("t", follow=False)] == [b"kept"]


def mark_file(folder: Path) -> Path:
    return folder / "objects" / path_of(MARK)


def test_lost_index_is_not_recreated(tmp_path: Path, url: str) -> None:
    make(url)
    (tmp_path / "log" / "index.db").rename(tmp_path / "saved.db")
    for path in (tmp_path / "log").glob("index.db-*"):
        path.unlink()
    with pytest.raises(StoreError, match=NEW_INDEX):
        Log(url)
    assert not (tmp_path / "log" / "index.db").exists()
    assert kept(url, f"sqlite:///{tmp_path}/saved.db")


def test_two_places_cannot_share_an_index(tmp_path: Path) -> None:
    index = f"sqlite:///{tmp_path}/index.db"
    make(f"file://{tmp_path}/one", index)
    with pytest.raises(StoreError, match=OTHER_LOG):
        Log(f"file://{tmp_path}/two", index=index)
    assert not (tmp_path / "two").exists()
    assert kept(f"file://{tmp_path}/one", index)


@pytest.mark.parametrize(("objects", "index"), PLACES)
def test_an_empty_log_takes_no_second_index(
    request: pytest.FixtureRequest, objects: str, index: str, tmp_path: Path
) -> None:
    """The sweep of a second log would delete the objects of the first."""
    url = place(request, objects, index)
    other = f"sqlite:///{tmp_path}/mistyped.db"
    with pytest.raises(StoreError, match=NEW_INDEX):
        Log(url.partition("index=")[0].rstrip("?&"), index=other)
    assert not (tmp_path / "mistyped.db").exists()
    SqliteIndex(f"{tmp_path}/mistyped.db").close()  # also one that is there, and empty
    with pytest.raises(StoreError, match=NEW_INDEX):
        Log(url.partition("index=")[0].rstrip("?&"), index=other)
    make(url)
    assert kept(url)


def test_emptied_log_takes_no_second_index(tmp_path: Path, url: str) -> None:
    make(url)
    with Log(url) as log:
        log.retain("t", max_age_ms=0)
        assert list(log.read("t", follow=False)) == []
        assert list(objects_of(log).list()) == []
    with pytest.raises(StoreError, match=NEW_INDEX):
        Log(url, index=f"sqlite:///{tmp_path}/other.db")


def test_folder_with_another_index_needs_its_full_url(
    tmp_path: Path, url: str, postgres_server: PostgresServer
) -> None:
    named = prepare(url, postgres_server.create_database("elsewhere"))
    with pytest.raises(StoreError, match=NEW_INDEX):
        Log(url)
    assert {path.name for path in (tmp_path / "log").iterdir()} == {"objects"}
    make(named)
    assert kept(named)


def test_mistyped_index_is_refused_before_creation(
    s3_server: S3Server, dynamodb_server: DynamoDBServer, postgres_server: PostgresServer, aws: None
) -> None:
    bucket = s3_server.url("tied")
    named = prepare(bucket, dynamodb_server.url("tied"))
    mistyped, empty = dynamodb_server.url("tide"), postgres_server.create_database("tide")
    for index in (mistyped, empty):
        for use in (prepare, open_parts):
            with pytest.raises(StoreError, match=f"{NEW_INDEX}|there is no table 'tide'"):
                use(bucket, index)
    with pytest.raises(StoreError, match="there is no table 'tide'"):
        open_parts(bucket, mistyped)
    with psycopg.connect(empty) as connection:
        row = connection.execute("SELECT to_regnamespace('chronoline_log')").fetchone()
        assert row == (None,)
    prepare(s3_server.url("another"), empty)  # it was not tied
    with pytest.raises(StoreError, match=f"{OTHER_LOG}.*a PostgreSQL database.*holds one log"):
        prepare(s3_server.url("third"), empty)
    with pytest.raises(StoreUnavailable, match="'third' does not exist"):
        open_parts(s3_server.url("third"), dynamodb_server.url("tied"))
    make(named)
    assert kept(named)


# A first opening that dies, and two at once


class Died(BaseException):
    """Raised instead of the end of the process."""


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[tuple[Objects, Index]]:
    objects = LocalObjects(tmp_path / "log" / "objects")
    index = SqliteIndex(str(tmp_path / "log" / "index.db"))
    yield objects, index
    index.close()


def dying(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(log_id: str) -> str:
        raise Died

    monkeypatch.setattr(objects, "mark", die)


def test_interrupted_first_opening_can_be_repeated(
    parts: tuple[Objects, Index], tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        dying(parts[0], patch)
        with pytest.raises(Died):
            tie(*parts, place=url, random_id="one")
    assert parts[1].log_id() is not None
    with pytest.raises(StoreError, match=OTHER_LOG):  # but in the same place
        Log(f"file://{tmp_path}/two", index=f"sqlite:///{tmp_path}/log/index.db")
    make(url)
    assert kept(url)


@pytest.mark.parametrize("step", ["marked", "list", "log_id", "list_topics", "tie", "mark"])
@pytest.mark.parametrize("follows", [False, True])
def test_two_concurrent_openings_make_one_log(
    parts: tuple[Objects, Index],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    follows: bool,
) -> None:
    """The second opening runs completely before or after each step of the first."""
    owner = parts[0] if hasattr(parts[0], step) else parts[1]
    real: Callable[..., object] = getattr(owner, step)

    def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(owner, step, real)
        if follows:
            answer = real(*arguments)
            make(url)
            return answer
        make(url)
        return real(*arguments)

    monkeypatch.setattr(owner, step, overtaken)
    tie(*parts, place=url, random_id="one")
    assert parts[0].marked() == parts[1].log_id()
    assert kept(url)


@pytest.mark.parametrize("step", ["_existing_objects", "_existing_index"])
def test_opening_during_a_creation_succeeds(
    url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real = getattr(factory, step)

    def overtaken(*arguments: object) -> object:
        monkeypatch.setattr(factory, step, real)
        answer = real(*arguments)
        make(url)
        return answer

    monkeypatch.setattr(factory, step, overtaken)
    assert kept(url)


def test_of_two_indexes_at_once_one_is_refused(
    parts: tuple[Objects, Index], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, index = parts
    other = f"sqlite:///{tmp_path}/other.db"
    real = index.tie

    def overtaken(log_id: str) -> str:
        make(url, other)
        return real(log_id)

    monkeypatch.setattr(index, "tie", overtaken)
    with pytest.raises(StoreError, match=NEW_INDEX):
        tie(objects, index, place=url, random_id="one")
    assert kept(url, other)


def test_of_two_places_at_once_one_is_refused(
    parts: tuple[Objects, Index], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, index = parts
    there, named = f"file://{tmp_path}/two", f"sqlite:///{tmp_path}/log/index.db"
    real = index.tie

    def overtaken(log_id: str) -> str:
        make(there, named)
        return real(log_id)

    monkeypatch.setattr(index, "tie", overtaken)
    with pytest.raises(StoreError, match=OTHER_LOG):
        tie(objects, index, place=url, random_id="one")
    assert objects.marked() is None
    assert kept(there, named)


def test_many_concurrent_openings_succeed(url: str) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(8)

    def open_it() -> None:
        ready.wait()
        try:
            Log(url).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# Marks


def test_tied_index_refuses_objects_without_a_mark(tmp_path: Path, url: str) -> None:
    make(url)
    mark = mark_file(tmp_path / "log")
    saved = mark.rename(tmp_path / "saved")
    with pytest.raises(StoreError, match=rf"their mark is, '{path_of(MARK)}'"):
        Log(url)
    assert not mark.exists()
    saved.rename(mark)
    assert kept(url)


def test_lost_objects_are_not_recreated(tmp_path: Path, url: str) -> None:
    make(url)
    (tmp_path / "log" / "objects").rename(tmp_path / "saved")
    with pytest.raises(StoreError, match="are gone from here"):
        Log(url)
    assert not (tmp_path / "log" / "objects").exists()


def test_log_tied_by_an_id_alone_opens(
    parts: tuple[Objects, Index], url: str, tmp_path: Path
) -> None:
    objects, index = parts
    assert objects.mark("made") == index.tie("made")
    make(url)
    assert kept(url)
    mark_file(tmp_path / "log").unlink()
    with pytest.raises(StoreError, match=OTHER_LOG):
        Log(url)


def test_log_without_marks_is_upgraded(tmp_path: Path, url: str) -> None:
    make(url)
    mark_file(tmp_path / "log").unlink()
    index = SqliteIndex(str(tmp_path / "log" / "index.db"))
    # Rows that no call of the index writes.
    with index._database.writing() as connection:
        connection.execute("DELETE FROM log")
    index.close()
    assert kept(url)


def test_foreign_mark_is_refused_with_advice(
    parts: tuple[Objects, Index], url: str, tmp_path: Path
) -> None:
    parts[0].mark("made")
    with pytest.raises(StoreError, match=rf"delete '{path_of(MARK)}'"):
        Log(url)
    mark_file(tmp_path / "log").unlink()
    make(url)
    assert kept(url)


def test_the_mark_is_no_object(url: str) -> None:
    objects, index = open_parts(url)
    assert list(objects.list()) == []
    objects.close()
    index.close()
