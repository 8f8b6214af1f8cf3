"""Reads: chunks in order from any sequence, and the sequence at a time."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronoline.log.contract import Chunk, Index
from chronoline.log.index.sqlite import SqliteIndex
from tests.log.index.steps import NOW, OTHER, TOPIC, all_chunks, append, fill, merge


def firsts(index: Index, from_sequence: int, limit: int = 100, partition: int = 0) -> list[int]:
    chunks = index.chunks(TOPIC.uid, partition, from_sequence=from_sequence, limit=limit)
    return [chunk.first_sequence for chunk in chunks]


def test_a_chunk_says_where_its_events_lie(index: Index) -> None:
    append(index, "a", {2: 3, 1: 4})
    append(index, "b", {1: 1}, now_ms=NOW + 5)
    assert all_chunks(index, 1) == [
        Chunk(1, 0, 4, "a", 108, 40, NOW),
        Chunk(1, 4, 1, "b", 8, 10, NOW + 5),
    ]
    assert all_chunks(index, 2) == [Chunk(2, 0, 3, "a", 8, 30, NOW)]


@pytest.mark.parametrize(
    ("from_sequence", "expected"),
    [
        (0, [0, 5, 10]),
        (4, [0, 5, 10]),
        (5, [5, 10]),
        (7, [5, 10]),
        (9, [5, 10]),
        (10, [10]),
        (14, [10]),
        (15, []),
        (1_000, []),
    ],
)
def test_reading_begins_with_the_chunk_that_holds_a_sequence(
    index: Index, from_sequence: int, expected: list[int]
) -> None:
    fill(index, 3, events=5)
    assert firsts(index, from_sequence) == expected


def test_reading_ends_at_its_limit(index: Index) -> None:
    fill(index, 5, events=2)
    assert firsts(index, 3, limit=1) == [2]
    assert firsts(index, 3, limit=2) == [2, 4]
    assert firsts(index, 0, limit=5) == [0, 2, 4, 6, 8]


def test_read_continues_after_a_trim(index: Index) -> None:
    fill(index, 5, events=2)
    index.trim(TOPIC.uid, 0, before_sequence=5)
    assert firsts(index, 0) == [4, 6, 8]
    assert firsts(index, 3) == [4, 6, 8]
    assert firsts(index, 5, limit=1) == [4]


def test_partitions_and_topics_are_read_apart(index: Index) -> None:
    index.create_topic(OTHER)
    append(index, "a", {0: 1, 1: 1})
    append(index, "b", {0: 1}, topic_uid=OTHER.uid)
    assert [chunk.object_name for chunk in all_chunks(index, 0)] == ["a"]
    assert [chunk.object_name for chunk in all_chunks(index, 1)] == ["a"]
    assert all_chunks(index, 2) == []
    assert [chunk.object_name for chunk in all_chunks(index, 0, OTHER.uid)] == ["b"]
    assert all_chunks(index, 0, topic_uid=99) == []


# The sequence at a time


def test_sequence_at_a_time(index: Index) -> None:
    for name, at in (("a", 10), ("b", 20), ("c", 20), ("d", 30)):
        append(index, name, {0: 2}, now_ms=NOW + at)
    expected = {0: 0, 9: 0, 10: 0, 11: 2, 20: 2, 21: 6, 30: 6, 31: 8, 10**9: 8}
    found = {at: index.sequence_at(TOPIC.uid, 0, NOW + at) for at in expected}
    assert found == expected
    assert index.sequence_at(TOPIC.uid, 0, 0) == 0


def test_empty_partition_returns_its_end(index: Index) -> None:
    assert index.sequence_at(TOPIC.uid, 0, NOW) == 0
    fill(index, 3)
    index.trim(TOPIC.uid, 0, before_sequence=3)
    assert index.sequence_at(TOPIC.uid, 0, 0) == 3


def test_commit_during_a_sqlite_read_is_not_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = SqliteIndex(str(tmp_path / "index.db"))
    index.create_topic(TOPIC)
    append(index, "old", {0: 1})
    # An append between two reads of one call.
    reading = index._database.reading

    @contextmanager
    def read_and_append() -> Iterator[sqlite3.Connection]:
        with reading() as connection:
            yield connection
        append(index, "young", {0: 1}, now_ms=NOW + 100)

    monkeypatch.setattr(index._database, "reading", read_and_append)
    assert index.sequence_at(TOPIC.uid, 0, NOW + 50) == 1
    index.close()


def test_sequence_at_a_time_after_a_trim(index: Index) -> None:
    fill(index, 3)
    index.trim(TOPIC.uid, 0, before_sequence=2)
    assert index.sequence_at(TOPIC.uid, 0, NOW) == 2


def test_clock_rollback_hides_nothing(index: Index) -> None:
    append(index, "a", {0: 1}, now_ms=NOW + 50)
    append(index, "b", {0: 1}, now_ms=NOW)
    assert index.sequence_at(TOPIC.uid, 0, NOW + 1) == 0
    assert index.sequence_at(TOPIC.uid, 0, NOW + 51) == 2


def test_compaction_hides_no_event_from_a_start_time(index: Index) -> None:
    chunks = fill(index, 4)  # at NOW, NOW + 1, …
    assert merge(index, chunks[1:3], "merged")
    assert index.sequence_at(TOPIC.uid, 0, NOW + 1) == 1
    # The event of NOW + 2 lies in the merged chunk: earlier events are read again, none is lost.
    assert index.sequence_at(TOPIC.uid, 0, NOW + 2) == 1
    assert index.sequence_at(TOPIC.uid, 0, NOW + 3) == 3
    times = [chunk.appended_ms for chunk in all_chunks(index)]
    assert times == sorted(times)
