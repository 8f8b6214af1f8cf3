"""An append under a key happens once, after any failure of earlier attempts."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from chronoline.log import Log, NewEvent
from chronoline.log import appender as writer_module
from chronoline.log.contract import NewChunk
from chronoline.log.once_writer import KeyReused, PackedChunk
from tests.log.internals import index_of, objects_of
from tests.log.places import PLACES, place

EVENTS = [NewEvent(value=str(n).encode(), key=b"k%d" % (n % 5)) for n in range(20)]


def values(log: Log) -> list[int]:
    return sorted(int(event.value or b"") for event in log.read("t", follow=False))


def append(log: Log, key: str = "a", events: Sequence[NewEvent] = EVENTS) -> None:
    log.append_once("t", log.pack("t", events), key=key)


@pytest.mark.parametrize(("objects", "index"), PLACES)
def test_a_key_is_appended_once(request: pytest.FixtureRequest, objects: str, index: str) -> None:
    with Log(place(request, objects, index)) as log:
        log.create_topic("t", partitions=4)
        for _ in range(3):
            append(log)
        assert values(log) == list(range(20))
        append(log, "b")
        assert len(values(log)) == 40
        log.compact("t")
        log.sweep(grace_ms=0)
        for _ in range(3):
            append(log)
        assert len(values(log)) == 40


def test_a_key_belongs_to_its_topic(log: Log) -> None:
    log.create_topic("other", partitions=1)
    append(log)
    log.append_once("other", log.pack("other", EVENTS), key="a")
    assert [head.next_sequence for head in log.heads("other")] == [20]


def test_packed_parts_are_joined_in_order(log: Log) -> None:
    parts = [
        log.pack("t", [NewEvent(value=b"%d" % n, partition=n % 2) for n in range(first, first + 6)])
        for first in (0, 6, 12)
    ]
    log.append_once("t", [chunk for part in parts for chunk in part], key="a")
    for partition in range(2):
        found = [event.value for event in log.read("t", partition=partition, follow=False)]
        assert found == [b"%d" % n for n in range(partition, 18, 2)]
    assert len(list(objects_of(log).list())) == 1


def test_the_same_events_are_packed_for_the_same_places(log: Log) -> None:
    spread = [NewEvent(value=b"") for _ in range(3)]
    for _ in range(2):
        assert [chunk.partition for chunk in log.pack("t", spread, spread_from=3)] == [3, 0, 1]
    with pytest.raises(InvalidInput, match="partition 9"):
        log.pack("t", [NewEvent(value=b"", partition=9)])


@pytest.mark.parametrize("swept", [True, False])
def test_repetition_after_death_before_the_commit(
    log: Log, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    def die(*_: Any, **__: Any) -> list[int]:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(index_of(log), "commit", die)
        with pytest.raises(StoreUnavailable):
            append(log)
    assert len(list(objects_of(log).list())) == 1
    if swept:
        assert log.sweep(grace_ms=0) == 1
    append(log)
    append(log)
    assert values(log) == list(range(20))
    log.sweep(grace_ms=0)
    assert len(list(objects_of(log).list())) == 1


def test_repetition_after_a_lost_answer(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = index_of(log).commit

    def lose(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        commit(name, chunks, **more)
        raise OutcomeUnknown

    with monkeypatch.context() as patch:
        # No setting: the test does not wait for the usual time.
        patch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
        patch.setattr(index_of(log), "commit", lose)
        with pytest.raises(OutcomeUnknown):
            append(log)
    append(log)
    assert values(log) == list(range(20))


def test_concurrent_appends_of_a_key(log: Log) -> None:
    number, keys = 3, 10
    together = Barrier(number, timeout=30)

    def work(_: int) -> None:
        for key in range(keys):
            together.wait()
            append(log, f"{key}")

    with ThreadPoolExecutor(number) as threads:
        list(threads.map(work, range(number)))
    assert values(log) == sorted(list(range(20)) * keys)


def test_more_partitions_than_a_commit_takes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(index_of(log)), "max_chunks_per_commit", 3)
    for _ in range(2):
        append(log, events=[NewEvent(value=b"%d" % n) for n in range(8)])
    assert values(log) == list(range(8))


def test_a_key_for_other_events_is_refused(log: Log) -> None:
    append(log)
    with pytest.raises(KeyReused, match="20 events, and now comes with 19"):
        append(log, events=EVENTS[1:])
    assert values(log) == list(range(20))


def test_empty_append_adds_nothing(log: Log) -> None:
    log.append_once("t", [], key="a")
    append(log)
    assert len(values(log)) == 20


def test_chunks_are_values() -> None:
    assert PackedChunk(1, 2, b"3") == PackedChunk(partition=1, events=2, data=b"3")


def test_a_range_is_read_in_batches(log: Log) -> None:
    log.append_many("t", [NewEvent(value=b"%d" % n, partition=1) for n in range(10)])
    batches = list(log.read_range("t", 1, 2, 9, batch=3))
    assert [[event.sequence for event in batch] for batch in batches] == [
        [2, 3, 4],
        [5, 6, 7],
        [8],
    ]
    assert list(log.read_range("t", 1, 10, 20)) == []
    with pytest.raises(InvalidInput, match="partition 4"):
        list(log.read_range("t", 4, 0, 1))


def test_a_range_shows_what_retention_deleted(log: Log) -> None:
    for n in range(4):
        log.append("t", value=b"%d" % n, partition=1)
    index_of(log).trim(log.topic("t").uid, 1, before_sequence=2)
    (batch,) = log.read_range("t", 1, 0, 3)
    assert [event.sequence for event in batch] == [2]
