"""Readers and writers of a deleted topic or group get an error; a new one of the same name is empty."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chronoline.core.errors import StoreUnavailable, TopicNotFound
from chronoline.log import Event, GroupNotFound, Log, NewEvent
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.internals import index_of, objects_of
from tests.log.places import PLACES, place
from tests.log.timed import HOLD_MS, fill
from tests.log.waiters import PATIENCE_S

clock = timed.clock
log = timed.log
other = timed.other


@pytest.mark.parametrize(("objects", "index"), PLACES)
def test_deleted_name_can_be_created_again(
    request: pytest.FixtureRequest, objects: str, index: str
) -> None:
    with Log(place(request, objects, index)) as log:
        log.create_topic("t", partitions=4)
        log.append_many("t", [NewEvent(value=b"old") for _ in range(9)])
        assert len(list(log.read("t", group="g", follow=False))) == 9
        log.delete_topic("t")
        assert log.topics() == []
        assert list(objects_of(log).list()) == []
        with pytest.raises(TopicNotFound):
            log.append("t", value=b"late")
        log.create_topic("t", partitions=2)
        assert log.groups("t") == []
        assert log.append("t", value=b"new", partition=1).sequence == 0
        assert [each.value for each in log.read("t", group="g", follow=False)] == [b"new"]
        assert len(log.heads("t")) == 2


def test_remote_writer_fails_once_and_then_continues(log: Log, other: Log) -> None:
    other.append("t", value=b"")
    log.delete_topic("t")
    log.create_topic("t", partitions=1)
    with pytest.raises(TopicNotFound):
        other.append("t", value=b"")
    assert other.append("t", value=b"").sequence == 0


def test_deletion_does_not_fail_other_topics_of_a_commit(log: Log, other: Log) -> None:
    other.create_topic("other", partitions=1)
    other.append("t", value=b"")
    other.append("other", value=b"")
    log.delete_topic("t")
    with (
        # The moment at which an append waits has no event.
        other._committer._changed
    ):  # The lock makes both appends wait for one commit; no public call does that.
        pending = {
            name: other.append_later(name, [NewEvent(value=b"x")]) for name in ("t", "other")
        }
    with pytest.raises(TopicNotFound):
        pending["t"].result(PATIENCE_S)
    assert pending["other"].result(PATIENCE_S)[0].sequence == 1


class Reader:
    """A thread that reads until an error ends it."""

    def __init__(self, log: Log, group: str | None) -> None:
        self.seen: list[Event] = []
        self.error: Exception | None = None
        self.read_some = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(log, group))
        self._thread.start()

    def _read(self, log: Log, group: str | None) -> None:
        try:
            for event in log.read("t", group=group):
                self.seen.append(event)
                self.read_some.set()
        except Exception as error:
            self.error = error

    def told(self) -> Exception | None:
        self._thread.join(PATIENCE_S)
        return self.error


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("by", ["itself", "another"])
@pytest.mark.parametrize("again", [True, False])
def test_reader_of_a_deleted_topic_gets_an_error(
    url: str, group: str | None, by: str, again: bool
) -> None:
    with Log(url, hold_ms=HOLD_MS) as log, Log(url) as other:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"")
        reader = Reader(log, group)
        assert reader.read_some.wait(PATIENCE_S)
        deleter = log if by == "itself" else other
        deleter.delete_topic("t")
        if again:
            deleter.create_topic("t", partitions=2)
            deleter.append("t", value=b"another's")
        assert isinstance(reader.told(), TopicNotFound)
        assert len(reader.seen) == 1


@pytest.mark.parametrize("again", [True, False])
def test_reader_of_a_deleted_group_gets_an_error(url: str, again: bool) -> None:
    with Log(url, hold_ms=HOLD_MS) as log, Log(url) as other:
        log.create_topic("t", partitions=2)
        log.append("t", value=b"")
        reader = Reader(log, "g")
        assert reader.read_some.wait(PATIENCE_S)
        other.delete_group("t", "g")
        if again:
            assert len(list(other.read("t", group="g", follow=False))) == 1
        assert isinstance(reader.told(), GroupNotFound)
        assert len(reader.seen) == 1
        assert {each.sequence for each in other.groups("t")} <= {0, 1}
        assert (other.groups("t") != []) == again


def test_deleted_group_gets_no_progress(log: Log, other: Log, clock: ManualClock) -> None:
    fill(log, 5)
    reading: Iterator[Event] = log.read("t", group="g", follow=False)
    assert next(reading).sequence == 0
    other.delete_group("t", "g")
    with pytest.raises(GroupNotFound):
        list(reading)
    assert other.groups("t") == []
    assert [each.sequence for each in other.read("t", group="g", follow=False)] == [0, 1, 2, 3, 4]


def test_read_until_current_of_a_deleted_topic_raises(log: Log, other: Log) -> None:
    fill(log, 2)

    def delete(event: Event) -> None:
        if event.sequence == 0:
            other.delete_topic("t")

    with pytest.raises(TopicNotFound):
        log.read_until_current("t", "g", 0, delete)


def test_missing_topic_or_group_cannot_be_deleted(log: Log) -> None:
    with pytest.raises(TopicNotFound):
        log.delete_topic("never")
    with pytest.raises(GroupNotFound, match="no group named 'never' reads 't'"):
        log.delete_group("t", "never")
    with pytest.raises(TopicNotFound):
        log.delete_group("never", "g")


def test_sweep_finishes_an_interrupted_deletion(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 5)

    def die(*_: Any) -> bool:
        raise StoreUnavailable

    monkeypatch.setattr(index_of(log), "purge_topic", die)
    with pytest.raises(StoreUnavailable):
        log.delete_topic("t")
    other.create_topic("t", partitions=1)
    assert list(other.read("t", follow=False)) == []
    assert len(list(objects_of(other).list())) == 5
    other.sweep()
    assert list(objects_of(other).list()) == []
    assert index_of(other).deleted_topics() == []
