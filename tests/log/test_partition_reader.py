"""A partition is read in sequence, in batches of any size, each chunk once."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.log import Log, NewEvent
from chronoline.log.format import DamagedObject
from chronoline.log.partition_reader import PartitionReader
from tests.log.internals import index_of, objects_of


def fill(log: Log, *sizes: int) -> None:
    """Appends chunks of these sizes to partition 0; values are sequences."""
    sequence = log.heads("t")[0].next_sequence
    for size in sizes:
        numbers = range(sequence, sequence + size)
        log.append_many("t", [NewEvent(value=str(n).encode(), partition=0) for n in numbers])
        sequence += size


def reader_of(log: Log, sequence: int = 0) -> PartitionReader:
    return PartitionReader(objects_of(log), index_of(log), log.topic("t"), 0, sequence)


def read(reader: PartitionReader, limit: int) -> list[int]:
    events = reader.read(limit)
    assert [int(event.value or b"") for event in events] == [event.sequence for event in events]
    return [event.sequence for event in events]


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    method: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments)
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 20, 100])
@pytest.mark.parametrize("start", [0, 4, 9])
def test_batches_of_any_size_follow_each_other(log: Log, limit: int, start: int) -> None:
    fill(log, 3, 1, 7, 2, 7)
    reader = reader_of(log, start)
    found: list[int] = []
    while batch := read(reader, limit):
        assert len(batch) <= limit
        found += batch
    assert found == list(range(start, 20))
    fill(log, 2)
    assert read(reader, 100) == [20, 21]


def test_a_chunk_is_read_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 50, 50)
    gets = counted(monkeypatch, objects_of(log), "get")
    reader = reader_of(log)
    assert [n for _ in range(20) for n in read(reader, 5)] == list(range(100))
    assert len(gets) == 2


def test_position_moves_back_and_ahead(log: Log) -> None:
    fill(log, 10, 10, 10)
    reader = reader_of(log)
    for sequence in (12, 3, 25, 14, 13, 0):
        reader.sequence = sequence
        assert read(reader, 4) == list(range(sequence, sequence + 4))


def test_concurrently_compacted_events_are_found(log: Log) -> None:
    fill(log, *[4] * 10)
    reader = reader_of(log)
    assert read(reader, 6) == list(range(6))
    log.compact("t")
    log.sweep(grace_ms=0)
    assert read(reader, 100) == list(range(6, 40))


def test_concurrently_deleted_events_are_skipped(log: Log) -> None:
    fill(log, *[4] * 10)
    reader = reader_of(log)
    assert read(reader, 6) == list(range(6))
    log.retain("t", max_bytes=1)
    log.sweep(grace_ms=0)
    # The rest of the chunk was unpacked; of the others only the newest is kept.
    assert read(reader, 100) == [6, 7, 36, 37, 38, 39]


@pytest.mark.parametrize("error", [OutcomeUnknown, DamagedObject, StoreUnavailable])
def test_an_error_hides_no_event_before_it(
    log: Log, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    fill(log, 4, 4, 4)
    get = objects_of(log).get
    second = index_of(log).chunks(log.topic("t").uid, 0, from_sequence=4, limit=1)[0]
    failing = threading.Event()
    failing.set()

    def fail(name: str, offset: int, length: int) -> bytes:
        if name == second.object_name and failing.is_set():
            raise error
        return get(name, offset, length)

    monkeypatch.setattr(objects_of(log), "get", fail)
    reader = reader_of(log)
    assert read(reader, 100) == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(error):
            reader.read(100)
    failing.clear()
    assert read(reader, 100) == list(range(4, 12))


def test_object_with_missing_events_is_damaged(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 3)
    chunks = index_of(log).chunks

    def more(*arguments: Any, **named: Any) -> Any:
        return [chunk._replace(events=4) for chunk in chunks(*arguments, **named)]

    monkeypatch.setattr(index_of(log), "chunks", more)
    with pytest.raises(DamagedObject, match=r"has 3 events .* 4 were committed"):
        reader_of(log).read(10)
