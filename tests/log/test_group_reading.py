"""Holds are kept alive, given back and trusted no longer than they last; a store that fails is waited for."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.log import Event, Log
from chronoline.log.contract import Hold
from chronoline.log.group_reading import GroupReader
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.timed import HOLD_MS, fill
from tests.log.waiting import PATIENCE_S

clock = timed.clock
log = timed.log
other = timed.other

HOUR_MS = 3_600_000


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers beat when a test says so."""
    monkeypatch.setattr(GroupReader, "_keep_alive", lambda self: None)


def joined(log: Log) -> GroupReader:
    return log._readers._group_reader(log.topic("t"), "g")


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


def test_a_hold_is_kept_alive_while_a_handler_works_for_longer(
    log: Log, other: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    renew = log._index.renew
    renewed_until: list[int] = []
    changed = threading.Condition()

    def renew_and_signal(holds: Sequence[Hold], *, until_ms: int, now_ms: int) -> list[Hold]:
        alive = renew(holds, until_ms=until_ms, now_ms=now_ms)
        with changed:
            renewed_until.append(until_ms)
            changed.notify()
        return alive

    monkeypatch.setattr(log._index, "renew", renew_and_signal)
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
def test_a_beat_renews_what_it_holds_and_that_it_is_there(log: Log, clock: ManualClock) -> None:
    fill(log, 2)
    reader = joined(log)
    assert sequences(reader.next_batch(1)) == [0]
    for _ in range(3):
        clock.advance(HOLD_MS - 1)
        reader._beat()
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
    reader._beat()
    assert reader.sequence_of(0) is None  # it has noticed
    fill(log, 1)
    assert sequences(reader.next_batch(1)) == [2]  # and goes on where the other was
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_what_is_anothers_after_a_rebalance_is_let_go(
    log: Log, other: Log, clock: ManualClock
) -> None:
    for partition in range(4):
        fill(log, 1, partition)
    mine = joined(log)
    first = mine.next_batch(1)
    assert first is not None
    assert len(set(holders(log))) == 1  # all are mine
    theirs = joined(other)
    assert theirs.next_batch(1) is None
    mine._beat()
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
def test_where_progress_is_not_noted_the_partition_is_given_back(
    log: Log, other: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    reader = joined(log)
    batch = reader.next_batch(10)
    assert batch is not None
    with monkeypatch.context() as patch:
        patch.setattr(log._index, "progress", failing_once(log._index.progress, StoreUnavailable()))
        assert not reader.done(batch[0], 1)
    assert [each.holder for each in log.groups("t") if each.partition == 0] == [None]
    assert reader.sequence_of(0) is None
    assert other.read_until_current("t", "g", 0, lambda event: None).handled == 1
    clock.advance(100)
    assert reader.next_batch(10) is None  # the other has done it
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
def test_a_clock_that_is_put_back_ends_a_rest(log: Log, clock: ManualClock) -> None:
    fill(log, 1)
    reader = joined(log)
    batch = reader.next_batch(1)
    assert batch is not None
    reader.failed(batch[0], 0, 200)
    clock.set(clock.now_ms() - HOUR_MS)
    assert sequences(reader.next_batch(1)) == [0]
    reader.close()


@pytest.mark.usefixtures("by_hand")
def test_a_clock_that_is_put_back_does_not_keep_a_partition_from_being_taken(
    log: Log, other: Log, clock: ManualClock
) -> None:
    fill(log, 1)
    theirs = other._readers._group_reader(other.topic("t"), "g", only=0)
    assert sequences(theirs.next_batch(1)) == [0]
    reader = joined(log)
    assert reader.next_batch(1) is None
    theirs.close()
    assert reader.next_batch(1) is None  # it tries again after a while
    clock.set(clock.now_ms() - HOUR_MS)
    assert sequences(reader.next_batch(1)) == [0]
    reader.close()


# A store that fails


@pytest.fixture(params=[False, True], ids=["deaf", "hearing"])
def hearing(request: pytest.FixtureRequest, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(log._index), "hearing", request.param)


@pytest.mark.parametrize(
    ("group", "call"),
    [(None, "heads"), (None, "chunks"), *(("g", c) for c in ("join", "hold", "heads", "chunks"))],
)
@pytest.mark.usefixtures("hearing")
def test_a_reader_that_follows_waits_for_the_store_and_not_for_long(
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

    monkeypatch.setattr(log._arrivals, "wait", wait)

    def fail_once() -> None:
        method = getattr(log._index, call)
        monkeypatch.setattr(log._index, call, failing_once(method, StoreUnavailable("away")))

    reader = log.read("t", group=group, follow=False)
    fail_once()
    with pytest.raises(StoreUnavailable, match="away"):
        list(reader)
    reader = log.read("t", group=group, limit=1)
    fail_once()
    assert [event.sequence for event in reader] == [0]
    assert len(waits_s) == 1
    assert waits_s[0] <= 1  # also where the index hears: it does not hear of a store that is back
