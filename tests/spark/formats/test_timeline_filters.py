"""Conditions narrow what the store is asked for, and never leave out a row that they are true of."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Message
from chronoline.core.ranges import BucketRange
from chronoline.core.status import Status, status_of
from chronoline.spark.timeline_filters import Wanted, narrow, split

NOW = 1_700_000_000_000
BUCKETS = 64
ALL = Wanted(buckets=BUCKETS, ranges=(BucketRange(0, BUCKETS),))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def ranges(*pairs: tuple[int, int]) -> tuple[BucketRange, ...]:
    return tuple(BucketRange(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("condition", "start", "end"),
    [
        (GreaterThanOrEqual(("ts",), at(5_000)), 5, None),
        (GreaterThanOrEqual(("ts",), at(5_001)), 6, None),
        (GreaterThan(("ts",), at(5_000)), 6, None),
        (GreaterThan(("ts",), at(5_999)), 6, None),
        (LessThan(("ts",), at(5_000)), 0, 5),
        (LessThan(("ts",), at(5_001)), 0, 6),
        (LessThanOrEqual(("ts",), at(5_000)), 0, 6),
        (LessThanOrEqual(("ts",), at(5_999)), 0, 6),
        (EqualTo(("ts",), at(5_000)), 5, 6),
        (EqualNullSafe(("ts",), at(5_000)), 5, 6),
        (In(("ts",), (at(7_000), at(5_000))), 5, 8),
        (GreaterThan(("due",), at(5_000)), 6, None),
        (EqualTo(("due",), at(5_000)), 5, None),
        (LessThan(("due",), at(5_000)), 0, None),
        (EqualTo(("id",), "a"), 0, None),
        (LessThanOrEqual(("ts",), at(MAX_TIME_MS * 1_000)), 0, None),
        (LessThan(("ts",), at(-5_000)), 0, 0),
        (GreaterThan(("ts",), datetime(2026, 1, 1)), 0, None),
        (EqualTo(("status",), "available"), 0, NOW + 1),
        (EqualTo(("status",), "waiting"), NOW + 1, None),
        (In(("status",), ("processing", "waiting")), NOW + 1, None),
        (In(("status",), ("available", "waiting")), 0, None),
    ],
)
def test_where_on_the_timeline(condition: Filter, start: int, end: int | None) -> None:
    narrowed = narrow(ALL, condition, NOW)
    assert (narrowed.start, narrowed.end, narrowed.ranges) == (start, end, ALL.ranges)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (EqualTo(("bucket",), 5), ranges((5, 6))),
        (In(("bucket",), (5, 9, 6)), ranges((5, 7), (9, 10))),
        (GreaterThan(("bucket",), 5), ranges((6, 64))),
        (GreaterThanOrEqual(("bucket",), 5), ranges((5, 64))),
        (LessThan(("bucket",), 5), ranges((0, 5))),
        (LessThanOrEqual(("bucket",), 5), ranges((0, 6))),
        (GreaterThan(("bucket",), 99), ()),
        (LessThan(("bucket",), -1), ()),
        (EqualTo(("bucket",), 99), ()),
    ],
)
def test_which_buckets(condition: Filter, found: tuple[BucketRange, ...]) -> None:
    assert narrow(ALL, condition, NOW).ranges == found


@pytest.mark.parametrize(
    "condition",
    [
        IsNull(("id",)),
        Not(EqualTo(("id",), "a")),
        StringContains(("id",), "a"),
        EqualTo(("key",), b"k"),
        EqualTo(("headers", "key"), "k"),
        EqualNullSafe(("id",), None),
        In(("id",), ()),
        EqualTo(("ts",), None),
    ],
)
def test_conditions_without_effect(condition: Filter) -> None:
    assert narrow(ALL, condition, NOW) == ALL


def test_conditions_that_exclude_each_other_leave_nothing() -> None:
    nothing = narrow(narrow(ALL, EqualTo(("bucket",), 1), NOW), EqualTo(("bucket",), 2), NOW)
    assert nothing.is_empty
    nobody = narrow(
        narrow(ALL, EqualTo(("status",), "waiting"), NOW), EqualTo(("status",), "x"), NOW
    )
    assert nobody.is_empty
    late = narrow(
        narrow(ALL, LessThan(("ts",), at(5_000)), NOW), GreaterThan(("ts",), at(9_000)), NOW
    )
    assert late.is_empty
    assert not ALL.is_empty


@pytest.mark.parametrize(
    ("condition", "due_start", "due_end"),
    [
        (GreaterThan(("due",), at(5_000)), 6, None),
        (EqualTo(("due",), at(5_000)), 5, 6),
        (LessThan(("due",), at(5_000)), 0, 5),
        (LessThanOrEqual(("due",), at(5_000)), 0, 6),
        (LessThanOrEqual(("due",), at(MAX_TIME_MS * 1_000)), 0, None),
    ],
)
def test_due_is_bounded(condition: Filter, due_start: int, due_end: int | None) -> None:
    narrowed = narrow(ALL, condition, NOW)
    assert (narrowed.due_start, narrowed.due_end) == (due_start, due_end)


def test_a_scan_by_due_reads_held_messages_apart() -> None:
    early = narrow(ALL, LessThan(("due",), at(5_000)), NOW)
    assert (early.scan_end, early.with_held) == (5, True)
    bounded = narrow(early, LessThan(("ts",), at(5_000)), NOW)
    assert (bounded.scan_end, bounded.with_held) == (5, False)
    assert (ALL.scan_end, ALL.with_held) == (None, False)


def test_ids_are_those_that_all_conditions_name() -> None:
    some = narrow(ALL, In(("id",), ("a", "b")), NOW)
    assert some.ids == frozenset({"a", "b"})
    assert narrow(some, EqualTo(("id",), "b"), NOW).ids == frozenset({"b"})
    assert narrow(some, EqualTo(("id",), "c"), NOW).is_empty
    assert [some.matches(message(0, 0, each), NOW) for each in ("a", "c")] == [True, False]


def message(due: int, ts: int, message_id: str = "m") -> Message:
    return Message(
        id=message_id,
        ts=ts,
        due=due,
        bucket=0,
        producer_group="g",
        lock_consumer="c" if ts > due else None,
        version=1,
        attempts=0,
        expires=None,
        key=None,
        headers=(),
    )


orders = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
moments_us = st.integers(-3_000, 12_000)


def holds(condition: Filter, value: object) -> bool:
    """Returns whether Spark evaluates the condition to true."""
    match condition:
        case EqualTo(_, other):
            return bool(value == other)
        case GreaterThan(_, other):
            return bool(value > other)
        case GreaterThanOrEqual(_, other):
            return bool(value >= other)
        case LessThan(_, other):
            return bool(value < other)
    assert isinstance(condition, LessThanOrEqual)
    return bool(value <= condition.value)


@given(kind=orders, column=st.sampled_from(["ts", "due"]), us=moments_us, now_ms=st.integers(0, 9))
def test_filter_keeps_every_matching_row(
    kind: type[EqualTo], column: str, us: int, now_ms: int
) -> None:
    condition = kind((column,), at(us))
    narrowed = narrow(ALL, condition, now_ms)
    for due, leased_ms in product(range(10), (0, 3)):
        found = message(due, due + leased_ms)
        scanned = narrowed.scan_end is None or found.ts < narrowed.scan_end
        if holds(condition, at((found.ts if column == "ts" else due) * 1_000)):
            assert narrowed.matches(found, now_ms)
            assert scanned or (narrowed.with_held and leased_ms)
        else:
            assert not narrowed.matches(found, now_ms)


@given(ts=st.integers(0, 9), locked=st.booleans(), now_ms=st.integers(0, 9))
def test_filter_keeps_every_row_of_the_status(ts: int, locked: bool, now_ms: int) -> None:
    status = status_of(ts, locked, now_ms)
    for wanted in ([status], [status, Status.WAITING], [status, Status.AVAILABLE]):
        narrowed = ALL.having(wanted, now_ms)
        assert status in narrowed.statuses
        assert narrowed.start <= ts
        assert narrowed.end is None or ts < narrowed.end


@given(
    borders=st.lists(st.integers(0, 100), unique=True, max_size=8).map(sorted),
    parts=st.integers(1, 20),
)
def test_parts_hold_each_bucket_once_and_are_about_even(borders: list[int], parts: int) -> None:
    pairs = zip(borders[::2], borders[1::2], strict=False)
    whole = ranges(*pairs)
    found = split(whole, parts)

    def buckets(some: tuple[BucketRange, ...]) -> list[int]:
        return [bucket for start, stop in some for bucket in range(start, stop)]

    assert [bucket for part in found for bucket in buckets(part)] == buckets(whole)
    assert len(found) == min(parts, len(buckets(whole)))
    sizes = [len(buckets(part)) for part in found]
    assert not sizes or max(sizes) - min(sizes) <= 1
