"""A follower reads partitions in sequence, and its waits have an end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.log import Log

PATIENCE_S = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log(tmp_path / "log") as log:
        log.create_topic("t", partitions=3)
        yield log


def append(log: Log, partition: int, *values: bytes) -> None:
    for value in values:
        log.append("t", value=value, partition=partition)


def test_events_come_in_sequence_from_the_start(log: Log) -> None:
    append(log, 0, b"a", b"b", b"c")
    append(log, 1, b"x")
    append(log, 2, b"not followed")
    follower = log.follow("t", {0: 1, 1: 0})
    found = follower.poll(2, PATIENCE_S) + follower.poll(2, PATIENCE_S)
    assert sorted((each.partition, each.sequence, each.value) for each in found) == [
        (0, 1, b"b"),
        (0, 2, b"c"),
        (1, 0, b"x"),
    ]
    assert follower.poll(2, 0.0) == []


def test_large_values_end_a_poll(log: Log) -> None:
    append(log, 0, b"a" * 10, b"b" * 10, b"c" * 10)
    follower = log.follow("t", {0: 0})
    assert [each.sequence for each in follower.poll(9, PATIENCE_S, 11)] == [0, 1]
    assert [each.sequence for each in follower.poll(9, PATIENCE_S, 11)] == [2]


def test_an_append_ends_the_wait(log: Log) -> None:
    follower = log.follow("t", {0: 0})
    assert follower.poll(1, 0.001) == []
    append(log, 0, b"a")
    assert [each.value for each in follower.poll(1, PATIENCE_S)] == [b"a"]


def test_deleted_events_are_skipped(log: Log) -> None:
    append(log, 0, b"a", b"b")
    while log.heads("t")[0].first_sequence < 2:  # they must be a millisecond old
        log.retain("t", max_age_ms=0)
    append(log, 0, b"c")
    assert [each.sequence for each in log.follow("t", {0: 0}).poll(9, PATIENCE_S)] == [2]


def test_unknown_partition_is_refused(log: Log) -> None:
    with pytest.raises(InvalidInput, match="partition 3"):
        log.follow("t", {3: 0})
