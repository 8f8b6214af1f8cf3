"""Compaction and retention meet readers, writers and each other: nobody waits for what is gone."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from chronoline.core.errors import OutcomeUnknown
from chronoline.log import Event, Log
from chronoline.log import appending as appending_module
from chronoline.log import catching_up as catching_up_module
from chronoline.log import readers as readers_module
from chronoline.log.contract import NewChunk
from chronoline.testing import ManualClock
from tests.log import timed
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
    monkeypatch.setattr(readers_module, "_BATCH_EVENTS", 1)
    monkeypatch.setattr(catching_up_module, "_BATCH_EVENTS", 1)
    return request.param  # type: ignore[no-any-return]  # one of the params above


def test_a_partition_that_retention_emptied_under_its_reader_is_up_to_date(
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


def test_a_partition_that_retention_emptied_between_two_readers_is_up_to_date(
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


# Upkeep by several at once


@pytest.mark.parametrize("upkeep", ["compact", "retain"])
def test_what_another_took_away_while_it_is_compacted_is_left(
    log: Log,
    other: Log,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    upkeep: str,
) -> None:
    fill(log, 3)
    get = log._objects.get
    first = iter([1])

    def get_late(name: str, offset: int, length: int) -> bytes:
        for _ in first:
            if upkeep == "compact":
                assert other.compact("t").chunks_after == 1
            else:
                clock.advance(1)
                assert other.retain("t", max_age_ms=0) == 3
        return get(name, offset, length)

    monkeypatch.setattr(log._objects, "get", get_late)
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


# Upkeep under an append that was not answered


@pytest.mark.parametrize("upkeep", ["compact", "retain"])
def test_a_commit_that_was_done_but_not_answered_is_settled_after_its_object_is_gone(
    log: Log,
    other: Log,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    upkeep: str,
) -> None:
    fill(log, 1)
    commit = log._index.commit
    names: list[str] = []

    def lose_the_answer(name: str, chunks: Sequence[NewChunk], *, now_ms: int) -> list[int]:
        given = commit(name, chunks, now_ms=now_ms)
        names.append(name)
        if len(names) == 1:
            if upkeep == "compact":
                assert other.compact("t").chunks_before == 2
            else:
                clock.advance(1)
                assert other.retain("t", max_age_ms=0) == 2
            other.sweep(grace_ms=-60_000)
            assert name not in {stored.name for stored in other._objects.list()}
            raise OutcomeUnknown("no answer")
        return given

    monkeypatch.setattr(appending_module, "_SETTLE_WAIT_S", 0)
    monkeypatch.setattr(log._index, "commit", lose_the_answer)
    assert log.append("t", value=b"once", partition=0).sequence == 1
    assert len(names) == 2
    assert len(set(names)) == 1
    values = [event.value for event in log.read("t", follow=False)]
    assert values == ([b"0", b"once"] if upkeep == "compact" else [])
    assert log.heads("t")[0].next_sequence == 2
