"""Holds are kept alive, given back and trusted no longer than they last; readers get past what is gone."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.log import Event, Log
from chronoline.log import appending as appending_module
from chronoline.log import catching_up as catching_up_module
from chronoline.log import readers as readers_module
from chronoline.log.contract import Hold, NewChunk
from chronoline.log.format import DamagedObject
from chronoline.log.group_reading import GroupReader
from chronoline.testing import ManualClock

HOLD_MS = 300
HOUR_MS = 3_600_000
PATIENCE_S = 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(url: str, clock: ManualClock) -> Iterator[Log]:
    """Four partitions, and time by hand."""
    with Log(url, clock=clock, hold_ms=HOLD_MS) as log:
        log.create_topic("t", partitions=4)
        yield log


@pytest.fixture
def other(log: Log, url: str, clock: ManualClock) -> Iterator[Log]:
    """Another process, with the same time."""
    with Log(url, clock=clock, hold_ms=HOLD_MS) as other:
        yield other


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers beat when a test says so."""
    monkeypatch.setattr(GroupReader, "_keep_alive", lambda self: None)


def fill(log: Log, count: int, partition: int = 0) -> None:
    """Each event in an object of its own."""
    for n in range(count):
        log.append("t", value=b"%d" % n, partition=partition)


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


# Damage


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


@pytest.fixture(params=[_flip, Path.unlink], ids=["changed", "missing"])
def damaged(request: pytest.FixtureRequest, log: Log, tmp_path: Path) -> str:
    """Of two events in each partition, the first of partition 1 is damaged: its object's name."""
    for partition in range(4):
        fill(log, 2, partition)
    (chunk,) = log._index.chunks(log.topic("t").uid, 1, from_sequence=0, limit=1)
    (path,) = tmp_path.glob(f"log/objects/*/{chunk.object_name}.events")
    request.param(path)
    return chunk.object_name


THE_OTHERS = [(0, 0), (0, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_damage_is_raised_when_the_other_partitions_have_been_read(
    log: Log, damaged: str, group: str | None
) -> None:
    seen: list[tuple[int, int]] = []
    reader = log.read("t", group=group, follow=False)
    with pytest.raises(DamagedObject, match=damaged):
        seen.extend((event.partition, event.sequence) for event in reader)
    assert sorted(seen) == THE_OTHERS


def test_damage_ends_processing_when_the_other_partitions_have_been_processed(
    log: Log, damaged: str
) -> None:
    seen: list[tuple[int, int]] = []
    with pytest.raises(DamagedObject, match=damaged):
        log.process(
            "t", "g", lambda event: seen.append((event.partition, event.sequence)), follow=False
        )
    assert sorted(seen) == THE_OTHERS
    assert [each.lag for each in log.groups("t")] == [0, 2, 0, 0]


@pytest.mark.parametrize("group", [None, "g"], ids=["alone", "group"])
def test_a_reader_that_follows_goes_on_with_the_others_and_names_the_damage(
    log: Log, damaged: str, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    reader = log.read("t", group=group)
    seen = [next(reader) for _ in THE_OTHERS]
    assert sorted((event.partition, event.sequence) for event in seen) == THE_OTHERS
    fill(log, 1, partition=3)
    event = next(reader)
    assert (event.partition, event.sequence) == (3, 2)
    assert damaged in caplog.text
    reader.close()


@pytest.mark.usefixtures("damaged")
def test_compaction_leaves_what_is_damaged_and_goes_on(log: Log) -> None:
    compacted = log.compact("t")
    assert (compacted.chunks_before, compacted.chunks_after) == (8, 5)
    assert [e.sequence for e in log.read("t", partition=3, follow=False)] == [0, 1]
    assert [e.sequence for e in log.read("t", partition=1, start=1, follow=False)] == [1]


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


# Appends that are late, or unanswered


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


def test_a_start_in_time_finds_what_was_being_appended_then(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    clock.advance(1_000)
    put = log._objects.put

    def put_slowly(name: str, data: bytes) -> None:
        put(name, data)
        clock.advance(5_000)

    began = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    monkeypatch.setattr(log._objects, "put", put_slowly)
    fill(log, 1)
    for seconds, expected in ((0, [1]), (1, [1]), (5, [1]), (6, [])):
        start = began + timedelta(seconds=seconds)
        found = [event.sequence for event in log.read("t", start=start, follow=False)]
        assert found == expected
