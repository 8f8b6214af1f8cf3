"""The reference of the bench `log`: a log with one object per event."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chronoline.log.partitioner import partition_id
from chronoline_bench.log.object_per_event import Item, ObjectPerEvent
from chronoline_bench.log.operations import Operations, count_operations
from chronoline_bench.rounds import at_once

PARTITIONS = 4


class FixedClock:
    now = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.now

    def seconds_until(self, moment_ms: int) -> float:
        return max(0, moment_ms - self.now) / 1000


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def log(tmp_path: Path, clock: FixedClock) -> Iterator[ObjectPerEvent]:
    with ObjectPerEvent(tmp_path / "log", partitions=PARTITIONS, clock=clock) as log:
        yield log


def keys(count: int) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


def test_appended_events_are_read_in_order(log: ObjectPerEvent) -> None:
    appended = [log.append(key, b"value of " + key) for key in keys(40)]
    assert [each.partition for each in appended] == [partition_id(key, 4) for key in keys(40)]
    assert list(log.read("c")) == sorted(appended)
    for partition in range(PARTITIONS):
        here = [each.sequence for each in appended if each.partition == partition]
        assert here == list(range(len(here)))


def test_every_event_has_its_own_object(log: ObjectPerEvent, tmp_path: Path) -> None:
    for key in keys(40):
        log.append(key, b"value")
    files = list((tmp_path / "log" / "events").glob("*/*"))
    assert len(files) == 40
    assert {path.parent.name for path in files} == {f"{n:05}" for n in range(PARTITIONS)}
    assert {path.read_bytes() for path in files} == {b"value"}


def test_threads_get_distinct_numbers(log: ObjectPerEvent) -> None:
    appended: list[Item] = []

    def append(writer: int) -> None:
        for number in range(5):
            appended.append(log.append(b"%d-%d" % (writer, number), b"%d-%d" % (writer, number)))

    at_once([partial(append, writer) for writer in range(8)])
    assert list(log.read("c")) == sorted(appended)
    assert len({(each.partition, each.sequence) for each in appended}) == 40


def test_each_consumer_resumes_at_its_own_place(log: ObjectPerEvent) -> None:
    first = [log.append(key, key) for key in keys(10)]
    assert list(log.read("a")) == sorted(first)
    assert list(log.read("a")) == []
    second = [log.append(key, key) for key in keys(10)]
    assert list(log.read("a")) == sorted(second)
    assert Counter(log.read("b")) == Counter(first + second)


def test_unprocessed_event_comes_again(log: ObjectPerEvent) -> None:
    for number in range(3):
        log.append(b"key", b"%d" % number)
    partition = partition_id(b"key", PARTITIONS)
    reading = log.read_partition("c", partition)
    assert [next(reading).value, next(reading).value] == [b"0", b"1"]
    reading.close()
    assert [each.value for each in log.read("c")] == [b"1", b"2"]


def test_one_thread_reads_a_partition_at_a_time(log: ObjectPerEvent, clock: FixedClock) -> None:
    log.append(b"key", b"value")
    partition = partition_id(b"key", PARTITIONS)
    reading = log.read_partition("c", partition, thread="1")
    assert next(reading).value == b"value"
    assert list(log.read_partition("c", partition, thread="2")) == []
    clock.now += 5_001
    assert [each.value for each in log.read_partition("c", partition, thread="2")] == [b"value"]
    reading.close()


def test_number_without_an_event_is_skipped(log: ObjectPerEvent, tmp_path: Path) -> None:
    for number in range(3):
        log.append(b"key", b"%d" % number)
    partition = partition_id(b"key", PARTITIONS)
    (tmp_path / "log" / "events" / f"{partition:05}" / f"{partition:05}-1.events").unlink()
    assert [each.value for each in log.read("c")] == [b"0", b"2"]


def test_operations_within_the_block_are_counted(tmp_path: Path) -> None:
    operations = Operations()
    with ObjectPerEvent(tmp_path / "log", partitions=1) as log:
        log.append(b"before", b"")
        with count_operations(operations):
            at_once([partial(log.append, b"key", b"value")] * 8)
        assert operations == Operations(puts=8, transactions=8)
        with count_operations(operations):
            assert len(list(log.read("c"))) == 9
        log.append(b"after", b"")
    # Reading locks and unlocks, stores progress after each event, and looks for one more object and the end.
    assert operations == Operations(puts=8, gets=10, transactions=8 + 9 + 2, looks=1)
