"""Holds are renewed, released and trusted until their end; readers wait for a failing store."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from chronoline.core.errors import StoreError, StoreUnavailable
from chronoline.log import Event, Log, NewEvent
from chronoline.log.contract import Hold
from chronoline.log.group_reader import GroupReader
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.internals import arrivals_of, index_of, readers_of
from tests.log.timed import HOLD_MS, fill
from tests.log.waiters import PATIENCE_S

clock = timed.clock
log = timed.log
other = timed.other

HOUR_MS = 3_600_000


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers beat only when a test calls `_beat`: no public call does."""
    # The test beats by itself: each step is the test's.
    monkeypatch.setattr(GroupReader, "_keep_alive", lambda self: None)


def joined(log: Log) -> GroupReader:
    return readers_of(log).group_reader(log.topic("t"), "g")


def sequences(batch: tuple[Hold, list[Event]] | None) -> list[int]:
    return [] if batch is None else [event.sequence for event in batch[1]]


def holders(log: Log) -> list[str | None]:
    return [each.holder for each in log.groups("t")]


def failing_once(method: Callable[..., Any], error: Exception) -> Callable[..., Any]:
    errors = iter([error])

    def fail_or_call(*arguments: Any, **named: Any) -> Any:
        for each in errors:
            raise each
        return method(*arguments, **named)

    return fail_or_call


# Holds


def test_hold_is_renewed_during_a_long_handler(
    log: Log, other: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    renew = index_of(log).renew
    renewed_until: list[int] = []
    changed = threading.Condition()

    def renew_and_signal(holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        alive = renew(holds, until_ms=until_ms, now_ms=now_ms)
        with changed:
            renewed_until.append(until_ms)
            changed.notify()
        return alive

    monkeypatch.setattr(index_of(log), "renew", renew_and_signal)
    found: list[int | None] = []

    def work_long(event: Event) -> None:
        for _ in range(5):
            until_ms = clock.advance(HOLD_MS // 2) + HOLD_MS
            with changed:
                assert changed.wait_for(partial(renewed_until.__contains__, until_ms), PATIENCE_S)
        found.append(other.read_until_current("t", "g", 0, _never).sequence)

    assert log.process("t", "g", work_long, follow=False) == 1
    assert found == [None]  # it is held
    assert [each.sequence for each in log.groups("t") if each.partition == 0] == [1]


def _never(event: Event) -> None:
    raise AssertionError(event)


@pytest.mark.usefixtures("by_hand")
def test_beat_renews_holds_and_membership(log: Log, clock: ManualClock) -> None:
    fill(log, 2)
    reader = joined(log)
    assert sequences(reader.next_batch(1)) == [0]
    for _ in range(3):
        clock.advance(HOLD_MS - 1)
        reader.beat()
    assert {each.until_ms for each in log.groups("t")} == {clock.now_ms() + HOLD_MS}
    assert sequences(reader.next_batch(1)) == [1]
    reader.close()
    assert holders(log) == [None] * 4


@pytest.mark.usefixtures("by_hand")
def test_nothing_is_handed_out_when_a_hold_is_over(
    log: Log, other: Log, clock: ManualClock
) -> None:
    fill(log, 2)
    reader = joined(log)
    assert sequences(reader.next_batch(1)) == [0]
    clock.advance(HOLD_MS)
    assert reader.next_batch(1) is None
    read: list[Event] = []
    assert other.read_until_current("t", "g", 0, read.append).current
    assert [event.sequence for event in read] == [0, 1]
    reader.beat()
    assert reader.sequence_of(0) is None  # it knows that the hold is lost
    fill(log, 1)
    assert sequences(reader.next_batch(1)) == [2]  # and continues after the other
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_rebalance_releases_foreign_partitions(log: Log, other: Log, clock: ManualClock) -> None:
    for partition in range(4):
        fill(log, 1, partition)
    mine = joined(log)
    first = mine.next_batch(1)
    assert first is not None
    assert len(set(holders(log))) == 1  # all are mine
    theirs = joined(other)
    assert theirs.next_batch(1) is None
    mine.beat()
    mine.next_batch(1)
    assert holders(log).count(None) == 2
    clock.advance(100)
    their_partitions = set()
    while batch := theirs.next_batch(1):
        their_partitions.add(batch[0].partition)
    assert len(their_partitions) == 2
    assert [mine.sequence_of(partition) is None for partition in range(4)] == [
        partition in their_partitions for partition in range(4)
    ]
    mine.close()
    theirs.close()


@pytest.mark.usefixtures("by_hand")
def test_failed_progress_releases_the_partition(
    log: Log, other: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    reader = joined(log)
    batch = reader.next_batch(10)
    assert batch is not None
    with monkeypatch.context() as patch:
        failing = failing_once(index_of(log).progress_all, StoreUnavailable())
        patch.setattr(index_of(log), "progress_all", failing)
        assert not reader.done(batch[0], 1)
    assert [each.holder for each in log.groups("t") if each.partition == 0] == [None]
    assert reader.sequence_of(0) is None
    assert other.read_until_current("t", "g", 0, lambda event: None).handled == 1
    clock.advance(100)
    assert reader.next_batch(10) is None  # the other has processed it
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_a_partition_rests_after_a_failure(log: Log, clock: ManualClock) -> None:
    fill(log, 2)
    reader = joined(log)
    batch = reader.next_batch(2)
    assert batch is not None
    reader.failed(batch[0], 1, 200)
    assert reader.idle_s() == 0.2
    assert reader.next_batch(2) is None
    clock.advance(199)
    assert reader.next_batch(2) is None
    clock.advance(1)
    assert sequences(reader.next_batch(2)) == [1]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_clock_rollback_ends_a_rest(log: Log, clock: ManualClock) -> None:
    fill(log, 1)
    reader = joined(log)
    batch = reader.next_batch(1)
    assert batch is not None
    reader.failed(batch[0], 0, 200)
    clock.set(clock.now_ms() - HOUR_MS)
    assert sequences(reader.next_batch(1)) == [0]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_clock_rollback_does_not_delay_taking_a_partition(
    log: Log, other: Log, clock: ManualClock
) -> None:
    fill(log, 1)
    theirs = readers_of(other).group_reader(other.topic("t"), "g", only=0)
    assert sequences(theirs.next_batch(1)) == [0]
    reader = joined(log)
    assert reader.next_batch(1) is None
    theirs.close()
    assert reader.next_batch(1) is None  # it tries again after a while
    clock.set(clock.now_ms() - HOUR_MS)
    assert sequences(reader.next_batch(1)) == [0]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_late_beat_keeps_a_partition_taken_again(
    log: Log, other: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 2)
    reader = joined(log)
    batch = reader.next_batch(1)
    assert batch is not None
    renew = index_of(log).renew

    def renew_and_lose(holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        other.seek("t", "g", 1, partition=0)
        alive = renew(holds, until_ms=until_ms, now_ms=now_ms)
        assert not reader.done(batch[0], 1)
        clock.advance(100)
        assert sequences(reader.next_batch(1)) == [1]  # under a new fence
        return alive

    monkeypatch.setattr(index_of(log), "renew", renew_and_lose)
    reader.beat()
    assert reader.sequence_of(0) == 2
    reader.close()


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("how", ["read", "process", "until_current"])
def test_rest_of_a_batch_ends_with_its_hold(
    log: Log, other: Log, clock: ManualClock, how: str
) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(3)])
    seen: list[int] = []
    by_other: list[int] = []

    def handle(event: Event) -> None:
        seen.append(event.sequence)
        if event.sequence == 0:
            clock.advance(HOLD_MS)
            other.read_until_current("t", "g", 0, lambda each: by_other.append(each.sequence))

    if how == "process":
        log.process("t", "g", handle, follow=False)
    elif how == "until_current":
        assert log.read_until_current("t", "g", 0, handle).current
    else:
        for event in log.read("t", group="g", follow=False):
            handle(event)
    assert (seen, by_other) == ([0], [0, 1, 2])


@pytest.mark.usefixtures("by_hand")
def test_unfinished_events_are_handed_out_again(log: Log) -> None:
    """A beat may renew a hold that seemed lost before: no event may be skipped then."""
    fill(log, 3)
    reader = joined(log)
    batch = reader.next_batch(10)
    assert sequences(batch) == [0, 1, 2]
    assert batch is not None
    assert reader.done(batch[0], 1)
    assert sequences(reader.next_batch(10)) == [1, 2]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_hold_ended_by_a_seek_is_logged_so(
    log: Log, other: Log, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, 1)
    reader = joined(log)
    assert reader.next_batch(1) is not None
    other.seek("t", "g", 0, partition=0)
    reader.beat()
    assert "the hold on partition 0 is over: a seek moved the group" in caplog.text
    reader.close()


# Joint progress


def notes_of(log: Log, monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, int]]]:
    """Returns the progress notes: partitions and sequences of each call."""
    notes: list[list[tuple[int, int]]] = []
    progress_all = index_of(log).progress_all

    def note(several: Sequence[tuple[Hold, int]], *, now_ms: int) -> list[Hold | None]:
        notes.append([(hold.partition, sequence) for hold, sequence in several])
        return progress_all(several, now_ms=now_ms)

    monkeypatch.setattr(index_of(log), "progress_all", note)
    return notes


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("how", ["read", "process"])
def test_small_batches_are_noted_together(
    log: Log, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    for partition in range(4):
        fill(log, 1, partition)
    notes = notes_of(log, monkeypatch)
    if how == "process":
        log.process("t", "g", lambda event: None, follow=False)
    else:
        assert len(list(log.read("t", group="g", follow=False))) == 4
    assert [sorted(each) for each in notes] == [[(0, 1), (1, 1), (2, 1), (3, 1)]]
    assert [each.lag for each in log.groups("t")] == [0] * 4


@pytest.mark.usefixtures("by_hand")
def test_progress_is_noted_after_a_delay_or_beat(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(4):
        fill(log, 2, partition)
    notes = notes_of(log, monkeypatch)
    reader = joined(log)

    def process_one() -> int:
        batch = reader.next_batch(1)
        assert batch is not None
        reader.processed(batch[0], batch[1][0].sequence + 1)
        return batch[0].partition

    first = process_one()
    assert notes == []
    clock.advance(100)
    second = process_one()
    assert notes == [[(first, 1), (second, 1)]]
    third = process_one()
    reader.beat()
    assert notes[1:] == [[(third, 1)]]
    fourth = process_one()
    reader.close()
    assert notes[2:] == [[(fourth, 1)]]


@pytest.mark.usefixtures("by_hand")
def test_large_batches_are_noted_each(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(1_000)])
    notes = notes_of(log, monkeypatch)
    reader = log.read("t", group="g")
    for _ in range(501):
        next(reader)
    assert notes == [[(0, 500)]]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_progress_is_noted_before_a_release(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(4):
        fill(log, 1, partition)
    mine = joined(log)
    for _ in range(4):
        batch = mine.next_batch(1)
        assert batch is not None
        mine.processed(batch[0], 1)
    theirs = joined(other)
    mine.beat()
    mine.rebalance()
    assert [each.lag for each in log.groups("t")] == [0] * 4
    assert theirs.next_batch(1) is None
    theirs.close()
    mine.close()


@pytest.mark.usefixtures("by_hand")
def test_lost_hold_does_not_end_the_others(log: Log, other: Log) -> None:
    for partition in range(4):
        fill(log, 2, partition)
    reader = joined(log)
    for _ in range(4):
        batch = reader.next_batch(1)
        assert batch is not None
        reader.processed(batch[0], 1)
    other.seek("t", "g", 0, partition=2)
    # Progress is stored at a moment that the test chooses.
    reader._note()
    assert [reader.sequence_of(partition) for partition in range(4)] == [1, 1, None, 1]
    reader.close()


# A fork


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
@pytest.mark.usefixtures("by_hand")
def test_following_reader_in_a_fork_raises(
    log: Log, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    def wait(topic_uid: int, seen: int, timeout_s: float) -> bool:
        raise AssertionError("it waits forever")

    fill(log, 1)
    before = log.read("t", group=group)
    next(before)
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        fork.setattr(arrivals_of(log), "wait", wait)
        with pytest.raises(StoreError, match="opened before a fork"):
            next(before)
        with pytest.raises(StoreError, match="opened before a fork"):
            next(log.read("t", group=group))
        if group is not None:
            with pytest.raises(StoreError, match="opened before a fork"):
                log.process("t", group, _never)


# A store that fails


@pytest.fixture(params=[False, True], ids=["deaf", "hearing"])
def hearing(request: pytest.FixtureRequest, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(index_of(log)), "hearing", request.param)


@pytest.mark.parametrize(
    ("group", "call"),
    [(None, "heads"), (None, "chunks"), *(("g", c) for c in ("join", "hold", "heads", "chunks"))],
)
@pytest.mark.usefixtures("hearing")
def test_following_reader_waits_for_the_store(
    log: Log,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    group: str | None,
    call: str,
) -> None:
    fill(log, 1)
    waits_s: list[float] = []

    def wait(topic_uid: int, seen: int, timeout_s: float) -> bool:
        waits_s.append(timeout_s)
        clock.advance(100)  # until it takes again what it could not take
        return False

    monkeypatch.setattr(arrivals_of(log), "wait", wait)

    def fail_once() -> None:
        method = getattr(index_of(log), call)
        monkeypatch.setattr(index_of(log), call, failing_once(method, StoreUnavailable("away")))

    reader = log.read("t", group=group, follow=False)
    fail_once()
    with pytest.raises(StoreUnavailable, match="away"):
        list(reader)
    reader = log.read("t", group=group, limit=1)
    fail_once()
    assert [event.sequence for event in reader] == [0]
    assert len(waits_s) == 1
    assert waits_s[0] <= 1  # also with a listener: it does not report that a store is back
