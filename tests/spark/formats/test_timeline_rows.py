"""From rows in Arrow to messages."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronoline.core.limits import message_problem
from chronoline.core.message import NewMessage
from chronoline.spark.timeline_rows import MadeIds, Rows, read_rows

TIME = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
ROWS = Rows(producer_group="g")


@settings(deadline=None)  # the first call of Arrow takes its time
@given(us=st.integers(-5_000, 10**17))
def test_times_are_rounded_up(us: int) -> None:
    batch = pa.record_batch({"id": ["a"], "due": pa.array([us], pa.int64()).cast(TIME)})
    (message,) = read_rows(ROWS, batch, None)
    assert message.due == -(-us // 1_000)


def test_every_column() -> None:
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}]]
    columns = {
        "id": pa.array(["a"]),
        "due": pa.array([5_000], pa.int64()).cast(TIME),
        "key": pa.array(["ä"]),
        "value": pa.array([b"\0"], pa.large_binary()),
        "headers": pa.array(headers, HEADERS),
        "expires": pa.array([7_000], pa.int64()).cast(TIME),
    }
    (message,) = read_rows(ROWS, pa.record_batch(columns), 9)
    assert message == NewMessage(
        id="a",
        due=5,
        key="ä".encode(),
        body=b"\0",
        headers=(("a", b"1"), ("a", None)),
        expires=7,
        producer_group="g",
        digest=message.digest,
    )


def digest(rows: Rows = ROWS, default_due: int | None = 9, **other: pa.Array) -> bytes | None:
    """Returns the digest of a row with these columns instead of its own."""
    columns = {
        "id": pa.array(["a"]),
        "due": pa.array([5_000], pa.int64()).cast(TIME),
        "key": pa.array(["k"]),
        "value": pa.array(["v"]),
        "headers": pa.array([[{"key": "h", "value": b"1"}]], HEADERS),
        "expires": pa.array([7_000], pa.int64()).cast(TIME),
    }
    (message,) = read_rows(rows, pa.record_batch(columns | other), default_due)
    return message.digest


@pytest.mark.parametrize(
    "other",
    [
        {"due": pa.array([6_000], pa.int64()).cast(TIME)},
        {"due": pa.nulls(1, TIME)},
        {"key": pa.array(["kv"]), "value": pa.array([""])},
        {"key": pa.nulls(1, pa.binary())},
        {"value": pa.array(["w"])},
        {"headers": pa.array([[{"key": "h", "value": None}]], HEADERS)},
        {"expires": pa.array([8_000], pa.int64()).cast(TIME)},
    ],
)
def test_the_digest_covers_each_column(other: dict[str, pa.Array]) -> None:
    assert digest(**other) != digest()


def test_the_digest_covers_the_group_but_no_due_from_the_write() -> None:
    assert digest(Rows(producer_group="other")) != digest()
    undated = {"due": pa.nulls(1, TIME)}
    assert digest(default_due=9, **undated) == digest(default_due=10, **undated)
    assert digest() == digest()


def test_columns_that_are_missing_or_null() -> None:
    (missing,) = read_rows(ROWS, pa.record_batch({"id": ["a"]}), 9)
    assert missing == NewMessage(
        id="a", due=9, body=None, producer_group="g", digest=missing.digest
    )
    nulls = {
        "id": pa.array(["a"]),
        "due": pa.nulls(1, TIME),
        "key": pa.nulls(1, pa.binary()),
        "headers": pa.nulls(1, HEADERS),
    }
    assert read_rows(ROWS, pa.record_batch(nulls), 9) == [missing]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_name_is_not_passed_over(header: Any) -> None:
    some = [[{"key": "a", "value": b"1"}, header]]
    batch = pa.record_batch({"id": ["a"], "headers": pa.array(some, HEADERS)})
    (message,) = read_rows(Rows(producer_group="g", made=MadeIds("w/0")), batch, 9)
    assert message_problem(message, 100) == "header name must be text, not NoneType"


contents = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.binary(max_size=2),
    st.none() | st.binary(max_size=2),
    st.lists(st.tuples(st.text(max_size=1), st.none() | st.binary(max_size=1)), max_size=2).map(
        tuple
    ),
)


@given(rows=st.lists(contents, max_size=8), order=st.randoms())
def test_generated_ids_differ_and_ignore_the_order(rows: list[Any], order: Any) -> None:
    first, second = MadeIds("w/0"), MadeIds("w/0")
    ids = [first.make(*row) for row in rows]
    assert len(set(ids)) == len(rows)
    shuffled = rows[:]
    order.shuffle(shuffled)
    again = sorted((repr(row), second.make(*row)) for row in shuffled)
    assert again == sorted((repr(row), each) for row, each in zip(rows, ids, strict=True))
    elsewhere = MadeIds("w/1")
    assert not {elsewhere.make(*row) for row in rows} & set(ids)
