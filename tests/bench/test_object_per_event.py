"""The algorithm that the log is measured against does what it is compared as."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chronoline.log.partitioner import partition_id
from chronoline_bench.log.object_per_event import Item, ObjectPerEvent
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


def test_what_was_appended_is_read_in_order(log: ObjectPerEvent) -> None:
    appended = [log.append(key, b"value of " + key) for key in keys(40)]
    assert [each.partition for each in appended] == [partition_id(key, 4) for key in keys(40)]
    assert list(log.read("c")) == sorted(appended)
    for partition in range(PARTITIONS):
        here = [each.sequence for each in appended if each.partition == partition]
        assert here == list(range(len(here)))


def test_every_event_is_an_object_of_its_own(log: ObjectPerEvent, tmp_path: Path) -> None:
    for key in keys(40):
        log.append(key, b"value")
    files = list((tmp_path / "log" / "events").glob("*/*"))
    assert len(files) == 40
    assert {path.parent.name for path in files} == {f"{n:05}" for n in range(PARTITIONS)}
    assert {path.read_bytes() for path in files} == {b"value"}


def test_threads_get_numbers_of_their_own(log: ObjectPerEvent) -> None:
    appended: list[Item] = []

    def append(writer: int) -> None:
        for number in range(5):
            appended.append(log.append(b"%d-%d" % (writer, number), b"%d-%d" % (writer, number)))

    at_once([partial(append, writer) for writer in range(8)])
    assert list(log.read("c")) == sorted(appended)
    assert len({(each.partition, each.sequence) for each in appended}) == 40


def test_consumers_go_on_where_they_were_each_for_itself(log: ObjectPerEvent) -> None:
    first = [log.append(key, key) for key in keys(10)]
    assert list(log.read("a")) == sorted(first)
    assert list(log.read("a")) == []
    second = [log.append(key, key) for key in keys(10)]
    assert list(log.read("a")) == sorted(second)
    assert Counter(log.read("b")) == Counter(first + second)


def test_an_event_that_was_not_processed_comes_again(log: ObjectPerEvent) -> None:
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


def test_a_number_without_an_event_is_passed_over(log: ObjectPerEvent, tmp_path: Path) -> None:
    for number in range(3):
        log.append(b"key", b"%d" % number)
    partition = partition_id(b"key", PARTITIONS)
    (tmp_path / "log" / "events" / f"{partition:05}" / f"{partition:05}-1.events").unlink()
    assert [each.value for each in log.read("c")] == [b"0", b"2"]
