"""Rows of an Arrow batch become events as they are."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from chronoline.core.errors import InvalidInput
from chronoline.log import NewEvent
from chronoline.spark.log_writer import to_events

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_all_columns() -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 1_999, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "value": pa.array([b"\xff", None], pa.binary()),
            "key": pa.array(["ä", None], pa.string()),
            "headers": pa.array([[{"key": "a", "value": None}], None], HEADERS),
            "partition": pa.array([3, None], pa.int32()),
            "timestamp": pa.array([at, None], pa.timestamp("us", tz="UTC")),
        }
    )
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    ts = int(moment.timestamp()) * 1_000 + 1
    assert list(to_events(batch)) == [
        NewEvent(value=b"\xff", key="ä".encode(), headers=(("a", None),), partition=3, ts=ts),
        NewEvent(value=None),
    ]


def test_only_values() -> None:
    batch = pa.record_batch({"value": pa.array(["a", "b"])})
    assert list(to_events(batch)) == [NewEvent(value=b"a"), NewEvent(value=b"b")]


def test_times_before_1970_are_rounded_down() -> None:
    batch = pa.record_batch(
        {"value": pa.array([b""]), "timestamp": pa.array([-1], pa.timestamp("us", tz="UTC"))}
    )
    assert [event.ts for event in to_events(batch)] == [-1]


def test_a_header_that_is_null_is_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b""]), "headers": pa.array([[None]], HEADERS)})
    with pytest.raises(InvalidInput, match="a header is null"):
        list(to_events(batch))
