"""The algorithm that the log is measured against does what it is compared as."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chronoline.log.partitioner import partition_id
from chronoline_bench.log.safya import Item, Safya
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
def safya(tmp_path: Path, clock: FixedClock) -> Iterator[Safya]:
    with Safya(tmp_path / "safya", partitions=PARTITIONS, clock=clock) as safya:
        yield safya


def keys(count: int) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


def test_what_was_appended_is_read_in_order(safya: Safya) -> None:
    appended = [safya.append(key, b"value of " + key) for key in keys(40)]
    assert [each.partition for each in appended] == [partition_id(key, 4) for key in keys(40)]
    assert list(safya.read("c")) == sorted(appended)
    for partition in range(PARTITIONS):
        here = [each.sequence for each in appended if each.partition == partition]
        assert here == list(range(len(here)))


def test_every_event_is_an_object_of_its_own(safya: Safya, tmp_path: Path) -> None:
    for key in keys(40):
        safya.append(key, b"value")
    files = list((tmp_path / "safya" / "events").glob("*/*"))
    assert len(files) == 40
    assert {path.parent.name for path in files} == {f"{n:05}" for n in range(PARTITIONS)}
    assert {path.read_bytes() for path in files} == {b"value"}


def test_threads_get_numbers_of_their_own(safya: Safya) -> None:
    appended: list[Item] = []

    def append(writer: int) -> None:
        for number in range(5):
            appended.append(safya.append(b"%d-%d" % (writer, number), b"%d-%d" % (writer, number)))

    at_once([partial(append, writer) for writer in range(8)])
    assert list(safya.read("c")) == sorted(appended)
    assert len({(each.partition, each.sequence) for each in appended}) == 40


def test_consumers_go_on_where_they_were_each_for_itself(safya: Safya) -> None:
    first = [safya.append(key, key) for key in keys(10)]
    assert list(safya.read("a")) == sorted(first)
    assert list(safya.read("a")) == []
    second = [safya.append(key, key) for key in keys(10)]
    assert list(safya.read("a")) == sorted(second)
    assert Counter(safya.read("b")) == Counter(first + second)


def test_an_event_that_was_not_processed_comes_again(safya: Safya) -> None:
    for number in range(3):
        safya.append(b"key", b"%d" % number)
    partition = partition_id(b"key", PARTITIONS)
    reading = safya.read_partition("c", partition)
    assert [next(reading).value, next(reading).value] == [b"0", b"1"]
    reading.close()
    assert [each.value for each in safya.read("c")] == [b"1", b"2"]


def test_one_thread_reads_a_partition_at_a_time(safya: Safya, clock: FixedClock) -> None:
    safya.append(b"key", b"value")
    partition = partition_id(b"key", PARTITIONS)
    reading = safya.read_partition("c", partition, thread="1")
    assert next(reading).value == b"value"
    assert list(safya.read_partition("c", partition, thread="2")) == []
    clock.now += 5_001
    assert [each.value for each in safya.read_partition("c", partition, thread="2")] == [b"value"]
    reading.close()


def test_a_number_without_an_event_is_passed_over(safya: Safya, tmp_path: Path) -> None:
    for number in range(3):
        safya.append(b"key", b"%d" % number)
    partition = partition_id(b"key", PARTITIONS)
    (tmp_path / "safya" / "events" / f"{partition:05}" / f"{partition:05}-1.events").unlink()
    assert [each.value for each in safya.read("c")] == [b"0", b"2"]
