"""Compaction and retention beside readers, writers and each other: no reader waits for removed events."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown
from chronoline.log import Event, Log, catch_up
from chronoline.log import appender as writer_module
from chronoline.log import readers as readers_module
from chronoline.log import upkeep as upkeep_module
from chronoline.log.contract import Chunk, NewChunk
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.internals import index_of, objects_of
from tests.log.timed import fill

clock = timed.clock
log = timed.log
other = timed.other


# Retention under a reader that is behind

ReadAll = Callable[[Log, Callable[[Event], None]], object]


def _alone(log: Log, handle: Callable[[Event], None]) -> None:
    for event in log.read("t", start=0, partition=0, follow=False):
        handle(event)


def _group(log: Log, handle: Callable[[Event], None]) -> None:
    for event in log.read("t", group="g", follow=False):
        handle(event)


def _process(log: Log, handle: Callable[[Event], None]) -> None:
    log.process("t", "g", handle, follow=False)


def _until_current(log: Log, handle: Callable[[Event], None]) -> None:
    assert log.read_until_current("t", "g", 0, handle).current


@pytest.fixture(params=[_alone, _group, _process, _until_current])
def read_all(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReadAll:
    """Every way to read what is there, one event at a time."""
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(readers_module, "_BATCH_EVENTS", 1)
    monkeypatch.setattr(catch_up, "_BATCH_EVENTS", 1)
    return request.param  # type: ignore[no-any-return]  # one of the params above


def test_partition_emptied_under_its_reader_has_no_lag(
    log: Log, clock: ManualClock, read_all: ReadAll
) -> None:
    fill(log, 3)
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(event.sequence)
        if event.sequence == 0:
            clock.advance(1)
            assert log.retain("t", max_age_ms=0) == 3

    read_all(log, handle)
    assert seen == [0]
    assert {each.lag for each in log.groups("t")} <= {0}
    read_all(log, handle)
    fill(log, 1)
    read_all(log, handle)
    assert seen == [0, 3]
    assert {each.lag for each in log.groups("t")} <= {0}


def test_partition_emptied_between_readers_has_no_lag(
    log: Log, clock: ManualClock, read_all: ReadAll
) -> None:
    fill(log, 3)
    assert log.process("t", "g", lambda event: None, limit=1) == 1
    clock.advance(1)
    assert log.retain("t", max_age_ms=0) == 3
    assert {each.lag for each in log.groups("t")} == {0}
    seen: list[int] = []
    read_all(log, lambda event: seen.append(event.sequence))
    assert seen == []
    fill(log, 1)
    read_all(log, lambda event: seen.append(event.sequence))
    assert seen == [3]


def test_append_during_retention_is_kept(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 2)
    clock.advance(3_600_000)
    sequence_at = index_of(log).sequence_at

    def append_and_overlook(topic_uid: int, partition: int, ts: int) -> int:
        """An index that reads twice takes events between the reads for old."""
        if partition == 0:
            fill(log, 1)
            return 3
        return sequence_at(topic_uid, partition, ts)

    monkeypatch.setattr(index_of(log), "sequence_at", append_and_overlook)
    assert log.retain("t", max_age_ms=60_000) == 2
    assert [event.sequence for event in log.read("t", follow=False)] == [2]


def test_retention_by_size_keeps_the_newest_chunks(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(upkeep_module, "_CHUNKS_AT_ONCE", 2)
    fill(log, 7)
    (chunk, *_) = index_of(log).chunks(log.topic("t").uid, 0, from_sequence=0, limit=1)
    expected = [(7, 0), (4, 3), (3, 4), (1, 6), (0, 6)]
    for chunks, first in expected:
        log.retain("t", max_bytes=chunks * chunk.length)
        assert log.heads("t")[0].first_sequence == first
    fill(log, 1)
    assert log.retain("t", max_bytes=2 * chunk.length - 1) == 1
    assert [event.sequence for event in log.read("t", follow=False)] == [7]


@pytest.mark.parametrize("newest_too", [False, True])
def test_retention_by_size_drops_only_measured_chunks(
    log: Log, monkeypatch: pytest.MonkeyPatch, newest_too: bool
) -> None:
    fill(log, 4)
    chunks = index_of(log).chunks
    looks = iter(range(100))

    def chunks_and_changes(*place: int, from_sequence: int, limit: int) -> list[Chunk]:
        if place[1] == 0 and next(looks) == 2:  # it has weighed all of them
            if newest_too:
                log.compact("t")
            fill(log, 3)
        return chunks(*place, from_sequence=from_sequence, limit=limit)

    monkeypatch.setattr(index_of(log), "chunks", chunks_and_changes)
    deleted = log.retain("t", max_bytes=1)
    monkeypatch.undo()
    assert deleted == (0 if newest_too else 3)
    kept = [event.sequence for event in log.read("t", follow=False)]
    assert kept == list(range(0 if newest_too else 3, 7))


# Progress


def test_retention_says_when_partitions_are_done(log: Log, clock: ManualClock) -> None:
    fill(log, 3)
    fill(log, 2, partition=2)
    clock.advance(1)
    events_left: list[int] = []
    done: list[int] = []

    def progress(more: int) -> None:
        done.append(more)
        events_left.append(sum(head.next_sequence - head.first_sequence for head in log.heads("t")))

    assert log.retain("t", max_age_ms=0, progress=progress) == 5
    assert done == [1, 1, 1, 1]
    assert events_left == [2, 2, 0, 0]


def test_compaction_reports_progress_within_a_partition(log: Log) -> None:
    fill(log, 3)
    fill(log, 1, partition=1)
    fill(log, 4, partition=3)
    done: list[int] = []
    compacted = log.compact("t", progress=done.append)
    assert compacted == (8, 3)
    assert done == [1] * 8
    done.clear()
    assert log.compact("t", progress=done.append) == (3, 3)
    assert sum(done) == 3


def test_compaction_counts_a_chunk_when_it_is_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)
    get = objects_of(log).get
    steps: list[str] = []

    def noted_get(name: str, offset: int, length: int) -> bytes:
        steps.append("read")
        return get(name, offset, length)

    monkeypatch.setattr(objects_of(log), "get", noted_get)
    log.compact("t", progress=lambda done: steps.append(f"{done} done"))
    assert steps == ["read", "1 done"] * 3


def test_compaction_counts_chunks_that_it_leaves_as_they_are(log: Log) -> None:
    fill(log, 5)
    chunks = index_of(log).chunks(log.topic("t").uid, 0, from_sequence=0, limit=5)
    objects_of(log).delete([chunks[2].object_name])
    done: list[int] = []
    assert log.compact("t", progress=done.append) == (5, 5)
    assert done == [1, 1, 3]


def test_sweep_reports_progress(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(upkeep_module, "_NAMES_AT_ONCE", 2)
    fill(log, 5)
    for number in range(2):
        objects_of(log).put(f"{number:026}", b"what a failed append left")
    topic = log.topic("t")
    index_of(log).trim(
        topic.uid, 0, before_sequence=3
    )  # as a retainer that died before it collected
    done: list[int] = []
    clock.advance(
        1 << 45
    )  # files have the machine's time and the log has simulated time: all are old
    assert log.sweep(grace_ms=0, progress=done.append) == 2 + 3
    assert done == [2, 2, 2, 1, 2, 1]  # 7 looked at, then 3 collected
    done.clear()
    assert log.sweep(grace_ms=0, progress=done.append) == 0
    assert done == [2]


def test_sweep_counts_young_objects(log: Log) -> None:
    objects_of(log).put("0" * 26, b"an append that may go on")
    done: list[int] = []
    assert log.sweep(grace_ms=1 << 50, progress=done.append) == 0
    assert done == [1]


# Concurrent upkeep


@pytest.mark.parametrize("upkeep", ["compact", "retain"])
def test_compaction_skips_concurrently_removed_chunks(
    log: Log,
    other: Log,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    upkeep: str,
) -> None:
    fill(log, 3)
    get = objects_of(log).get
    first = iter([1])

    def get_late(name: str, offset: int, length: int) -> bytes:
        for _ in first:
            if upkeep == "compact":
                assert other.compact("t").chunks_after == 1
            else:
                clock.advance(1)
                assert other.retain("t", max_age_ms=0) == 3
        return get(name, offset, length)

    monkeypatch.setattr(objects_of(log), "get", get_late)
    log.compact("t")
    fill(log, 1)
    expected = [0, 1, 2, 3] if upkeep == "compact" else [3]
    assert [event.sequence for event in log.read("t", follow=False)] == expected


def test_two_compactors_and_a_retainer_at_once(url: str, log: Log) -> None:
    def compact() -> None:
        with Log(url) as keeper:
            for _ in range(20):
                keeper.compact("t", target_bytes=400)

    def retain() -> None:
        with Log(url) as keeper:
            for _ in range(20):
                keeper.retain("t", max_bytes=500)

    with ThreadPoolExecutor(4) as threads:
        work = [threads.submit(each) for each in (compact, compact, retain)]
        work.append(threads.submit(fill, log, 100))
        for each in work:
            each.result()
    left = [event.sequence for event in log.read("t", follow=False)]
    assert left == list(range(log.heads("t")[0].first_sequence, 100))


# Upkeep during an unanswered append


@pytest.mark.parametrize("upkeep", ["compact", "retain"])
def test_unanswered_commit_is_settled_without_its_object(
    log: Log,
    other: Log,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    upkeep: str,
) -> None:
    fill(log, 1)
    commit = index_of(log).commit
    names: list[str] = []

    def lose_the_answer(name: str, chunks: Sequence[NewChunk], **more: Any) -> list[int]:
        given = commit(name, chunks, **more)
        names.append(name)
        if len(names) == 1:
            if upkeep == "compact":
                assert other.compact("t").chunks_before == 2
            else:
                clock.advance(1)
                assert other.retain("t", max_age_ms=0) == 2
            other.sweep(grace_ms=3_600_000)
            assert name not in {stored.name for stored in objects_of(other).list()}
            raise OutcomeUnknown("no answer")
        return given

    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(writer_module, "_SETTLE_WAIT_S", 0)
    monkeypatch.setattr(index_of(log), "commit", lose_the_answer)
    assert log.append("t", value=b"once", partition=0).sequence == 1
    assert len(names) == 2
    assert len(set(names)) == 1
    values = [event.value for event in log.read("t", follow=False)]
    assert values == ([b"0", b"once"] if upkeep == "compact" else [])
    assert log.heads("t")[0].next_sequence == 2
