"""Readers that work one partition until it is up to date, and stop."""

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Queue

import pytest

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.log import CaughtUp, Event, Log, NewEvent, Notification
from chronoline.log.contract import Hold
from chronoline.log.format import DamagedObject
from chronoline.testing import ManualClock
from tests.log.internals import index_of


def fill(log: Log, count: int, partition: int = 0) -> None:
    log.append_many("t", [NewEvent(value=b"%d" % n, partition=partition) for n in range(count)])


def test_reading_stops_when_current_and_continues_later(log: Log) -> None:
    fill(log, 3)
    fill(log, 2, partition=1)
    read: list[Event] = []
    assert log.read_until_current("t", "g", 0, read.append) == CaughtUp(
        handled=3, current=True, sequence=3
    )
    fill(log, 1)
    assert log.read_until_current("t", "g", 0, read.append).handled == 1
    assert [event.sequence for event in read] == [0, 1, 2, 3]
    assert {event.partition for event in read} == {0}


def test_held_partition_has_nothing_to_do(log: Log, url: str) -> None:
    fill(log, 2)
    inside: list[CaughtUp] = []

    def handle(event: Event) -> None:
        with Log(url) as other:
            inside.append(other.read_until_current("t", "g", 0, _never))

    assert log.read_until_current("t", "g", 0, handle).handled == 2
    assert [(each.handled, each.current, each.sequence) for each in inside] == [
        (0, False, None)
    ] * 2
    assert all(each.held_until_ms for each in inside)


def _never(event: Event) -> None:
    raise AssertionError(event)


def test_event_during_the_release_is_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 1)
    let_go = index_of(log).let_go
    late = iter([1])

    def letting_go(holds: list[object]) -> None:
        for _ in late:  # a reader that is started for this event finds the hold, and stops
            fill(log, 1)
        let_go(holds)  # type: ignore[arg-type]  # they are passed on as they came

    monkeypatch.setattr(index_of(log), "let_go", letting_go)
    read: list[Event] = []
    done = log.read_until_current("t", "g", 0, read.append)
    assert (done.handled, done.current) == (2, True)


def test_failed_progress_repeats_events_before_current(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 2)
    progress_all = index_of(log).progress_all
    errors = iter([StoreUnavailable("away")])

    def fail_once(notes: Sequence[tuple[Hold, int]], *, now_ms: int) -> list[Hold | None]:
        for error in errors:
            raise error
        return progress_all(notes, now_ms=now_ms)

    monkeypatch.setattr(index_of(log), "progress_all", fail_once)
    done = log.read_until_current("t", "g", 0, lambda event: None)
    assert done == CaughtUp(handled=4, current=True, sequence=2)
    assert [each.lag for each in log.groups("t") if each.partition == 0] == [0]


def test_time_limit_stops_and_notifies_again(url: str) -> None:
    clock = ManualClock()
    told: Queue[Notification] = Queue()
    with Log(url, clock=clock) as log:
        log.create_topic("t", partitions=1)
        fill(log, 5)
        log.read_until_current("t", "told", 0, lambda event: None)

    def slow(event: Event) -> None:
        clock.advance(400)

    expected = Notification(topic="t", partition=0, sequence=5)
    with Log(url, clock=clock, notifier=told.put, max_latency_ms=60_000) as log:
        assert told.get(timeout=60) == expected  # since it was opened
        done = log.read_until_current("t", "g", 0, slow, time_limit_s=1)
        assert done == CaughtUp(handled=3, current=False, sequence=3)
        assert log.groups("t")[0].lag == 2
    assert told.get(timeout=60) == expected  # for what is left
    assert told.empty()


def test_restart_at_the_time_limit_does_not_nest(
    url: str,
) -> None:
    done = threading.Event()
    inside = threading.local()
    nested: list[Notification] = []

    def start(notification: Notification) -> None:
        if getattr(inside, "running", False):
            nested.append(notification)
        inside.running = True
        try:
            if log.read_until_current("t", "g", 0, one, time_limit_s=0.001).current:
                done.set()
        finally:
            inside.running = False

    def one(event: Event) -> None:
        clock.advance(1)

    clock = ManualClock()
    with Log(url, clock=clock) as log:
        log.create_topic("t", partitions=1)
        fill(log, 30)
    with Log(url, clock=clock, notifier=start, max_latency_ms=1) as log:
        while not done.wait(0.01):
            clock.advance(30_000)  # for the notices that wait to be sent again
    assert nested == []


def test_failed_notifier_is_called_again(url: str) -> None:
    told = threading.Event()
    failures = iter([OSError("nobody answers")])

    def start(notification: Notification) -> None:
        for failure in failures:
            raise failure
        told.set()

    with Log(url) as log:
        log.create_topic("t", partitions=1)
        fill(log, 2)
    with Log(url, notifier=start, max_latency_ms=1) as log:
        log.read_until_current("t", "g", 0, lambda event: None, time_limit_s=0)
        assert told.wait(60)


def test_error_is_raised_after_noting_progress(log: Log) -> None:
    fill(log, 3)

    def fail_at_1(event: Event) -> None:
        if event.sequence == 1:
            raise KeyError("bad")

    with pytest.raises(KeyError):
        log.read_until_current("t", "g", 0, fail_at_1)
    (progress,) = log.groups("t")
    assert (progress.sequence, progress.lag, progress.holder) == (1, 2, None)
    read: list[Event] = []
    log.read_until_current("t", "g", 0, read.append)
    assert [event.sequence for event in read] == [1, 2]


def test_damage_is_raised(log: Log, tmp_path: Path) -> None:
    fill(log, 1)
    (damaged,) = tmp_path.glob("log/objects/0*/*.events")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DamagedObject, match=damaged.stem):
        log.read_until_current("t", "g", 0, _never)


@pytest.mark.parametrize("partition", [-1, 4, "0", None, True])
def test_a_partition_that_is_not_there_is_refused(log: Log, partition: int) -> None:
    with pytest.raises(InvalidInput, match="partition"):
        log.read_until_current("t", "g", partition, _never)
