"""Upkeep: sweeping, trimming, compaction, and objects that are counted by reference."""

from collections.abc import Callable

import pytest

from chronoline.log.contract import Chunk, Index, NewChunk
from tests.log.index.conftest import Open
from tests.log.index.steps import (
    NOW,
    TOPIC,
    all_chunks,
    append,
    at_once,
    ends,
    fill,
    merge,
)


def trim(index: Index, before_sequence: int, partition: int = 0) -> int:
    return index.trim(TOPIC.uid, partition, before_sequence=before_sequence)


# Sweeping


def test_sweep_returns_uncommitted_objects(index: Index, another: Open) -> None:
    append(index, "b", {0: 1})
    names = ["c", "a", "b"]
    assert sorted(index.sweep(names, now_ms=NOW)) == ["a", "c"]
    # The first sweeper may have died before it deleted them.
    assert sorted(another().sweep(names, now_ms=NOW + 1)) == ["a", "c"]
    assert index.sweep([], now_ms=NOW) == []


def test_sweep_leaves_committed_objects_alone(index: Index) -> None:
    fill(index, 2)
    trim(index, 2)
    assert index.sweep(["o0", "o1"], now_ms=NOW) == []
    assert sorted(index.unreferenced(10)) == ["o0", "o1"]


def test_concurrent_sweeps_are_safe(index: Index, another: Open) -> None:
    names = [f"o{number}" for number in range(50)]
    append(index, "o7", {0: 1})
    swept = at_once(
        lambda each: each[0].sweep(each[1], now_ms=NOW),
        [(index, names), (another(), names[::-1])] * 2,
    )
    assert [len(each) for each in swept] == [49] * 4


# Trimming


@pytest.mark.parametrize(
    ("before", "left"), [(0, 0), (1, 0), (2, 0), (3, 3), (5, 3), (6, 6), (8, 6), (9, 9), (99, 9)]
)
def test_whole_chunks_are_deleted(index: Index, before: int, left: int) -> None:
    chunks = fill(index, 3, events=3)
    append(index, "b", {1: 5})
    assert trim(index, before) == left
    assert ends(index)[:2] == [(left, 9), (0, 5)]
    assert all_chunks(index) == [chunk for chunk in chunks if chunk.first_sequence >= left]
    assert trim(index, before) == 0


def test_appending_goes_on_behind_what_was_trimmed(index: Index) -> None:
    fill(index, 3, events=3)
    trim(index, 9)
    assert append(index, "b", {0: 1}) == [9]
    assert ends(index)[0] == (9, 10)


def test_one_trim_takes_the_oldest_up_to_a_limit(index: Index) -> None:
    fill(index, 7, events=2)
    index.max_chunks_per_commit = 3
    assert [trim(index, 13) for _ in range(3)] == [6, 6, 0]
    assert [chunk.object_name for chunk in all_chunks(index)] == ["o6"]
    assert ends(index)[0] == (12, 14)


def test_trim_of_a_missing_partition_does_nothing(index: Index) -> None:
    assert trim(index, 10) == 0
    assert trim(index, 10, partition=9) == 0
    assert index.trim(99, 0, before_sequence=10) == 0


# Objects, counted by reference


def test_object_without_chunks_is_unreferenced(index: Index) -> None:
    append(index, "shared", {0: 2, 1: 2, 2: 2})
    append(index, "own", {0: 1})
    trim(index, 2, partition=0)
    assert index.unreferenced(10) == []
    assert merge(index, all_chunks(index, 1), "merged")
    assert index.unreferenced(10) == []
    trim(index, 2, partition=2)
    assert index.unreferenced(10) == ["shared"]


def test_unreferenced_objects_are_answered_up_to_a_limit(index: Index) -> None:
    fill(index, 5)
    trim(index, 5)
    assert len(index.unreferenced(3)) == 3
    index.forget(index.unreferenced(3))
    assert len(index.unreferenced(3)) == 2
    index.forget(index.unreferenced(3))
    assert index.unreferenced(3) == []


def test_referenced_object_is_not_forgotten(index: Index) -> None:
    fill(index, 2)
    trim(index, 1)
    index.forget(["o0", "o1", "never"])
    index.forget(["o0"])
    index.forget([])
    assert index.unreferenced(10) == []
    assert append(index, "o1", {0: 1}) == [1]
    trim(index, 2)
    assert index.unreferenced(10) == ["o1"]
    assert append(index, "never", {0: 1}) == [2]


# Compaction


def test_one_chunk_takes_the_place_of_neighbours(index: Index) -> None:
    chunks = fill(index, 5, events=2)
    new = NewChunk(TOPIC.uid, 0, 6, 77, 88)
    assert index.replace(TOPIC.uid, 0, chunks[1:4], "merged", new)
    first, merged, last = all_chunks(index)
    assert (first, last) == (chunks[0], chunks[4])
    assert merged == Chunk(0, 2, 6, "merged", 77, 88, chunks[3].appended_ms)
    assert index.chunks(TOPIC.uid, 0, from_sequence=6, limit=1) == [merged]
    assert ends(index)[0] == (0, 10)
    assert index.unreferenced(10) == ["o1", "o2", "o3"]
    assert append(index, "next", {0: 1}) == [10]


def test_merged_chunk_can_be_merged_and_trimmed(index: Index) -> None:
    chunks = fill(index, 4)
    assert merge(index, chunks[:2], "left")
    assert merge(index, chunks[2:], "right")
    assert merge(index, all_chunks(index), "both")
    assert trim(index, 3) == 0
    assert trim(index, 4) == 4
    assert sorted(index.unreferenced(10)) == ["both", "left", "o0", "o1", "o2", "o3", "right"]


def test_a_replacement_in_other_partitions_counts_by_itself(index: Index) -> None:
    for name in ("a", "b"):
        append(index, name, {0: 1, 1: 1})
    assert merge(index, all_chunks(index, 0), "m0")
    assert index.unreferenced(10) == []
    assert merge(index, all_chunks(index, 1), "m1")
    assert index.unreferenced(10) == ["a", "b"]


def _trim_first(index: Index) -> None:
    trim(index, 1)


def _merge_last_two(index: Index) -> None:
    assert merge(index, all_chunks(index)[2:], "faster")


def _merge_one_alone(index: Index) -> None:
    assert merge(index, all_chunks(index)[1:2], "faster")


def _sweep_object(index: Index) -> None:
    assert index.sweep(["merged"], now_ms=NOW) == ["merged"]


@pytest.mark.parametrize(
    "meanwhile", [_trim_first, _merge_last_two, _merge_one_alone, _sweep_object]
)
def test_a_replacement_that_comes_too_late_changes_nothing(
    index: Index, meanwhile: Callable[[Index], None]
) -> None:
    chunks = fill(index, 4)
    meanwhile(index)
    before = ends(index), all_chunks(index), sorted(index.unreferenced(10))
    assert not merge(index, chunks, "merged")
    assert (ends(index), all_chunks(index), sorted(index.unreferenced(10))) == before
    assert index.sweep(["merged"], now_ms=NOW) == ["merged"]  # it is an orphan


def test_a_replacement_goes_on_beside_appends(index: Index) -> None:
    chunks = fill(index, 3)
    append(index, "later", {0: 1})
    assert merge(index, chunks, "merged")
    assert [chunk.object_name for chunk in all_chunks(index)] == ["merged", "later"]


def test_one_of_two_concurrent_compactions_succeeds(index: Index, another: Open) -> None:
    handles = [index, another()] * 4
    chunks = fill(index, 6)
    done = at_once(lambda number: merge(handles[number], chunks, f"m{number}"), range(8))
    assert done.count(True) == 1
    assert [chunk.object_name for chunk in all_chunks(index)] == [f"m{done.index(True)}"]
    assert sorted(index.unreferenced(10)) == [f"o{number}" for number in range(6)]


def test_upkeep_beside_writers_leaves_no_hole(index: Index, another: Open) -> None:
    """One appends, one compacts, two trim two partitions of the same objects."""
    handles = [index, another()]

    def write() -> None:
        for number in range(60):
            append(handles[0], f"o{number}", {0: 1, 1: 1})

    def compact() -> None:
        for number in range(30):
            chunks = handles[1].chunks(TOPIC.uid, number % 2, from_sequence=0, limit=4)
            if len(chunks) > 1:
                merge(handles[1], chunks, f"m{number}")

    def drop(partition: int) -> None:
        for number in range(30):
            trim(handles[number % 2], 2 * number, partition)

    actions: list[Callable[[], None]] = [write, compact, lambda: drop(0), lambda: drop(1)]
    at_once(lambda action: action(), actions)
    references: dict[str, int] = {}
    for partition in (0, 1):
        first, end = ends(index)[partition]
        assert end == 60
        for chunk in all_chunks(index, partition):
            assert chunk.first_sequence == first
            first += chunk.events
            references[chunk.object_name] = references.get(chunk.object_name, 0) + 1
        assert first == end
    names = {f"o{number}" for number in range(60)} | {f"m{number}" for number in range(30)}
    unreferenced = set(index.unreferenced(1_000))
    assert unreferenced & references.keys() == set()
    # Everything else was never committed: the compactor was too late with it.
    orphans = set(index.sweep(sorted(names), now_ms=NOW))
    assert orphans | unreferenced | references.keys() == names
    assert orphans <= {f"m{number}" for number in range(30)}
