"""Groups read everything at least once, in sequence, and only the holder of a partition notes progress."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, StoreClosed
from chronoline.log import Again, Event, Log, NewEvent
from chronoline.log.format import DamagedObject
from chronoline.testing import ManualClock
from tests.log.internals import readers_of
from tests.log.waiters import Waiter, opened


def fill(log: Log, count: int) -> None:
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=n % 4) for n in range(count)])


def read(log: Log, group: str, limit: int | None = None) -> list[int]:
    return [int(e.value or b"") for e in log.read("t", group=group, follow=False, limit=limit)]


def test_groups_read_independently_and_continue(log: Log) -> None:
    fill(log, 20)
    first = read(log, "a", limit=7)
    assert sorted(first + read(log, "a")) == list(range(20))
    assert read(log, "a") == []
    assert sorted(read(log, "b")) == list(range(20))


def test_close_notes_progress_of_processed_events(log: Log) -> None:
    fill(log, 4)
    reader = log.read("t", group="a", follow=False)
    seen = int(next(reader).value or b"")
    reader.close()
    assert sorted(read(log, "a")) == [0, 1, 2, 3]  # the one that was being processed comes again
    assert seen in range(4)


def test_two_readers_share_the_partitions(log: Log, url: str) -> None:
    topic = log.topic("t")
    with Log(url, hold_ms=60_000) as other:
        mine, theirs = (readers_of(each).group_reader(topic, "a") for each in (log, other))
        mine.beat()  # it learns of the other reader
        fill(log, 40)
        shares: list[set[int]] = []
        for reader in (mine, theirs):
            partitions = set()
            while (batch := reader.next_batch(5)) is not None:
                hold, events = batch
                partitions.add(hold.partition)
                assert reader.done(hold, events[-1].sequence + 1)
            shares.append(partitions)
        assert sorted(map(sorted, shares)) == [[0, 1], [2, 3]]
        mine.close()
        theirs.beat()
        # The share that it learned of, before it takes it.
        assert theirs._share == range(4)
        theirs.close()


def test_failed_event_is_repeated_before_later_ones(log: Log) -> None:
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=0) for n in range(3)])
    failures = iter([ValueError("once"), ValueError("twice")])
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(int(event.value or b""))
        if event.sequence == 1:
            for failure in failures:
                raise failure

    assert log.process("t", "a", handle, follow=False, again=Again(retry_ms=1)) == 3
    assert seen == [0, 1, 1, 1, 2]


def test_a_poison_event_goes_to_the_dead_letters(log: Log) -> None:
    log.create_topic("dead", partitions=1)
    log.append_many("t", [NewEvent(value=str(n).encode(), partition=0) for n in range(3)])

    def handle(event: Event) -> None:
        if event.sequence == 1:
            raise ValueError("never")

    again = Again(retry_ms=1, max_attempts=2)
    log.process("t", "a", handle, follow=False, again=again, dead_letter_topic="dead")
    (letter,) = log.read("dead", follow=False)
    assert letter.value == b"1"
    assert dict(letter.headers)["chronolineError"] == b"ValueError: never"
    assert read(log, "a") == []


def test_seek_by_sequence_and_time_and_skip_to_end(log: Log) -> None:
    fill(log, 8)
    assert len(read(log, "a")) == 8
    log.seek("t", "a", 1)
    assert sorted(read(log, "a")) == [4, 5, 6, 7]
    log.seek("t", "a", datetime(2020, 1, 1, tzinfo=UTC))
    assert len(read(log, "a")) == 8
    log.seek("t", "a", datetime(2999, 1, 1, tzinfo=UTC))
    assert read(log, "a") == []
    log.seek("t", "a", "earliest", partition=3)
    assert read(log, "a") == [3, 7]
    log.skip_to_end("t", "b")
    assert read(log, "b") == []


@pytest.mark.parametrize("start", [-1, True, "first", datetime(2020, 1, 1), None])
def test_invalid_start_is_refused(log: Log, start: Any) -> None:
    with pytest.raises(InvalidInput):
        log.seek("t", "a", start)
    if start is not None:
        with pytest.raises(InvalidInput):
            log.read("t", start=start)


def test_damaged_object_stops_only_its_partition(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(4):
        log.append("t", value=str(partition).encode(), partition=partition)
    damaged = sorted(tmp_path.glob("log/objects/0*/*.events"))[0]
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(bytes(data))
    seen: list[int] = []
    with pytest.raises(DamagedObject, match=damaged.stem):
        seen.extend(int(e.value or b"") for e in log.read("t", group="a", follow=False))
    assert sorted(seen) == [1, 2, 3]
    assert damaged.stem in caplog.text


def test_compaction_and_retention_while_a_reader_reads(log: Log) -> None:
    for n in range(20):
        log.append("t", value=str(n).encode(), partition=0)
    reader = log.read("t", partition=0, follow=False)
    seen = [int(next(reader).value or b"")]
    compacted = log.compact("t")
    assert (compacted.chunks_before, compacted.chunks_after) == (20, 1)
    assert log.sweep(grace_ms=0) == 0  # what was compacted is gone already
    seen += [int(event.value or b"") for event in reader]
    assert seen == list(range(20))
    log.append("t", value=b"20", partition=0)
    assert log.retain("t", max_bytes=1) == 20
    assert [event.sequence for event in log.read("t", follow=False)] == [20]
    assert log.heads("t")[0].first_sequence == 20


def test_frozen_reader_cannot_note_progress(url: str) -> None:
    slow_clock, clock = ManualClock(), ManualClock()
    with (
        Log(url, clock=slow_clock, hold_ms=30_000) as frozen,
        Log(url, clock=clock, hold_ms=30_000) as other,
    ):
        frozen.create_topic("t", partitions=1)
        frozen.append_many("t", [NewEvent(value=b"%d" % n) for n in range(3)])
        zombie = frozen.read("t", group="g", follow=False)
        assert next(zombie).sequence == 0
        assert list(other.read("t", group="g", follow=False)) == []  # it is held
        clock.advance(30_000)
        assert [e.sequence for e in other.read("t", group="g", follow=False)] == [0, 1, 2]
        other.append("t", value=b"3")
        slow_clock.advance(30_000)
        handed_out = [event.sequence for event in zombie]
        assert handed_out == [3]  # nothing of what it had, and then it reads as a new holder
        (progress,) = other.groups("t")
        assert (progress.sequence, progress.holder) == (4, None)


def test_compaction_keeps_every_event_in_order(url: str) -> None:
    count = 400
    stop = threading.Event()

    def write() -> None:
        with Log(url) as writer:
            for n in range(count):
                writer.append("t", value=b"%d" % n, partition=n % 2)

    def compact() -> None:
        with Log(url) as keeper:
            while not stop.is_set():
                keeper.compact("t")
                keeper.sweep(grace_ms=60_000)

    with Log(url) as log:
        log.create_topic("t", partitions=2)
        threads = [threading.Thread(target=write), threading.Thread(target=compact)]
        for thread in threads:
            thread.start()
        try:
            seen = list(log.read("t", group="g", limit=count))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        for partition in range(2):
            mine = [event for event in seen if event.partition == partition]
            assert [event.sequence for event in mine] == list(range(count // 2))
            assert [int(event.value or b"") for event in mine] == list(range(partition, count, 2))
        assert log.compact("t").chunks_after == 2


def test_retention_keeps_young_events_of_a_merged_chunk(url: str) -> None:
    clock = ManualClock()
    with Log(url, clock=clock) as log:
        log.create_topic("t", partitions=1)
        for _ in range(3):
            log.append("t", value=b"")
            clock.advance(1_000)
        log.compact("t")
        assert log.retain("t", max_age_ms=1_500) == 0
        clock.advance(1_000)
        assert log.retain("t", max_age_ms=1_500) == 3
        with pytest.raises(InvalidInput, match="say what is kept"):
            log.retain("t")


def test_processing_ends_after_a_limit(log: Log) -> None:
    fill(log, 20)
    assert log.process("t", "a", lambda event: None, limit=7) == 7
    assert sum(progress.sequence for progress in log.groups("t")) == 7


def test_stop_notes_progress_of_the_current_event(log: Log) -> None:
    fill(log, 20)
    seen: list[Event] = []

    def handle(event: Event) -> None:
        seen.append(event)
        if len(seen) == 3:
            log.stop()

    assert log.process("t", "a", handle) == 3
    assert sum(progress.sequence for progress in log.groups("t")) == 3
    log.append("t", value=b"appends go on")


def test_reading_a_stopped_or_closed_log_raises(log: Log) -> None:
    """An empty result would look like an empty log."""
    fill(log, 4)
    calls: list[Callable[[], object]] = [
        lambda: log.read("t", follow=False),
        lambda: log.read("t", group="g"),
        lambda: log.process("t", "g", print, follow=False),
        lambda: log.read_until_current("t", "g", 0, print),
    ]
    log.stop()
    for call in calls:
        with pytest.raises(StoreClosed, match=r"was stopped.*open it again"):
            call()
    assert log.groups("t") == []
    log.close()
    for call in [*calls, lambda: log.append("t", value=b"late")]:
        with pytest.raises(StoreClosed, match="the log is closed; open it again"):
            call()


def test_reader_waits_for_a_future_sequence(log: Log) -> None:
    fill(log, 8)
    reader = log.read("t", partition=1, start=4, limit=2)
    log.append_many("t", [NewEvent(value=b"%d" % n, partition=1) for n in range(5)])
    assert [event.sequence for event in reader] == [4, 5]
    assert list(log.read("t", start=50, follow=False)) == []


def test_seek_beyond_every_partition_is_refused(log: Log) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=1) for _ in range(5)])
    log.seek("t", "a", 3)
    assert [each.sequence for each in log.groups("t")] == [0, 3, 0, 0]
    for partition in (None, 1):
        with pytest.raises(InvalidInput, match=r"sequence 6 is beyond the end.*gets sequence 5"):
            log.seek("t", "a", 6, partition=partition)
    log.seek("t", "a", 5, partition=1)
    assert read(log, "a") == []


def test_start_in_milliseconds_is_refused(log: Log) -> None:
    now_ms = 1_700_000_000_000
    for call in (lambda: log.seek("t", "a", now_ms), lambda: log.read("t", start=now_ms)):
        with pytest.raises(InvalidInput, match="looks like a time in milliseconds"):
            call()


def test_one_reader_at_a_time_holds_a_partition(log: Log, url: str) -> None:
    fill(log, 8)
    reader = log.read("t", group="a", partition=2, limit=2)
    assert next(reader).value == b"2"
    assert [each.partition for each in log.groups("t")] == [2]
    with Log(url) as other:
        assert list(other.read("t", group="a", partition=2, follow=False)) == []
        assert [int(event.value or b"") for event in reader] == [6]
        seen: list[int] = []
        assert other.process("t", "a", lambda e: seen.append(e.partition), partition=3, limit=2)
        assert seen == [3, 3]
    assert sorted(read(log, "a")) == [0, 1, 4, 5]


def test_invalid_calls_are_refused(log: Log) -> None:
    nothing: Any = None
    calls: list[tuple[str, Callable[[], object]]] = [
        ("use seek", lambda: log.read("t", group="g", start="earliest")),
        ("partition 4", lambda: log.read("t", group="g", partition=4)),
        ("partition 4", lambda: log.process("t", "g", print, partition=4)),
        ("cannot be called", lambda: log.process("t", "g", nothing)),
        ("cannot be called", lambda: log.read_until_current("t", "g", 0, nothing)),
        ("0 or more", lambda: log.read_until_current("t", "g", 0, print, time_limit_s=-1)),
        ("0 or more", lambda: log.sweep(grace_ms=-1)),
    ]
    for said, call in calls:
        with pytest.raises(InvalidInput, match=said):
            call()


def test_group_overtaken_by_retention_starts_at_first_event(url: str) -> None:
    clock = ManualClock()
    with Log(url, clock=clock) as log:
        log.create_topic("t", partitions=1)
        log.seek("t", "g", "earliest")
        log.append_many("t", [NewEvent(value=b"") for _ in range(3)])
        clock.advance(1_000)
        log.append("t", value=b"young")
        log.retain("t", max_age_ms=500)
        assert [(each.sequence, each.lag) for each in log.groups("t")] == [(3, 1)]


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_stop_ends_a_reader_that_waits(
    url: str, group: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as log:
        waiter = Waiter(log, group)
        with waiter.reading(monkeypatch):
            log.stop()
            assert waiter.values() == []
            # Its end is the rule.
            assert not waiter._thread.is_alive()


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_stop_ends_a_reader_after_the_current_event(log: Log, group: str | None) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(5)])
    seen: list[int] = []
    for event in log.read("t", group=group):
        seen.append(event.sequence)
        if len(seen) == 2:
            log.stop()
    assert seen == [0, 1]


def test_stop_ends_catching_up_after_the_current_event(log: Log) -> None:
    log.append_many("t", [NewEvent(value=b"", partition=0) for _ in range(5)])

    def handle(event: Event) -> None:
        if event.sequence == 1:
            log.stop()

    done = log.read_until_current("t", "g", 0, handle)
    assert (done.handled, done.current, done.sequence) == (2, False, 2)
    assert [(each.sequence, each.holder) for each in log.groups("t")] == [(2, None)]


def test_single_events_of_many_processes_are_spread(url: str) -> None:
    with Log(url) as log:
        log.create_topic("t", partitions=4)
    chosen = set()
    for n in range(4):
        with Log(url, random_bytes=lambda count, n=n: bytes([n]) * count) as log:  # type: ignore[misc]  # mypy infers no lambda with a default
            chosen.add(log.append("t", value=b"").partition)
    assert chosen == {0, 1, 2, 3}
