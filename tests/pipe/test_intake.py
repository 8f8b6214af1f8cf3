"""Intake: rows are applied in one transaction, and no record stops later ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from chronoline.core.limits import MAX_BODY_BYTES
from chronoline.core.permissions import System
from chronoline.core.topic import Topic, TopicSettings
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER, PipeIntake
from chronoline.stores.contract import MAX_BATCH, Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import ClaimLost, Tally
from chronoline.testing.clock import START_MS, ManualClock

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("action", pa.string()),
        ("id", pa.string()),
        ("due", pa.int64()),
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
DUE_MS = START_MS + 60_000


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("pipe", TopicSettings(dedupe_ms=0), now_ms=START_MS)


def taker(
    store: Store, topic: Topic, partitions: int = 2, *, early_cancel_ms: int = 0
) -> PipeIntake:
    starts = dict.fromkeys(range(partitions), 0)
    until_ms = START_MS + 60_000
    claims = store.claim_inputs("pipe/in", starts, "node", until_ms=until_ms, now_ms=START_MS)
    return PipeIntake(
        store,
        topic.uid,
        {claim.partition: claim for claim in claims},
        producer_group="pipe",
        source_topic="in",
        early_cancel_ms=early_cancel_ms,
        now_ms=ManualClock().now_ms,
    )


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Rows that are all in partition 0, one behind the other, unless they say otherwise."""
    filled = [
        {"partition": 0, "offset": place, "action": "create", "due": DUE_MS} | row
        for place, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(filled, SCHEMA)


def ids(store: Store, topic: Topic) -> set[str]:
    page = store.scan(topic.uid, topic.all_buckets, limit=MAX_BATCH)
    return {each.id for each in page.messages}


def positions(store: Store) -> list[int]:
    return [account.position for account in store.input_accounts("pipe/in")]


def test_rows_are_applied_in_order(store: Store, topic: Topic) -> None:
    headers: Sequence[dict[str, Any]] = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    rows = batch(
        {"id": "a", "key": b"k", "value": b"v", "headers": headers},
        {"id": "b"},
        {"id": "a"},
        {"id": "b", "action": "cancel"},
        {"id": "a", "action": "reschedule", "due": DUE_MS + 1},
        {"id": "nobody", "action": "cancel"},
        {"action": "reject", "reason": "it is odd", "headers": []},
        {"id": "c", "partition": 1, "offset": 41},
    )
    tally = taker(store, topic).take_in(rows)
    assert tally == Tally(accepted=3, ignored=1, rejected=1, cancelled=1, rescheduled=1, missed=1)
    found = store.lookup(topic.uid, ["a", "b", "c"])
    assert found.keys() == {"a", "c"}
    assert found["a"].due == DUE_MS + 1
    assert found["a"].key == b"k"
    assert found["a"].headers == (("a", b"1"), ("a", None))
    bodies = store.bodies(topic.uid, ["a", "c"], actor=System(), now_ms=START_MS).found
    assert bodies == {"a": b"v", "c": None}
    assert positions(store) == [7, 42]


@pytest.mark.parametrize(
    ("early_cancel_ms", "expected"),
    [(0, Tally(missed=1, accepted=1)), (1_000, Tally(missed=1, withdrawn=1))],
)
def test_early_cancel_waits_if_it_is_set(
    store: Store, topic: Topic, early_cancel_ms: int, expected: Tally
) -> None:
    rows = batch({"id": "a", "action": "cancel"}, {"id": "a", "partition": 1, "offset": 0})
    assert taker(store, topic, early_cancel_ms=early_cancel_ms).take_in(rows) == expected


def test_rejected_record_keeps_its_reason_and_origin(
    store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [{"key": "x", "value": b"1"}]
    row = {"action": "reject", "reason": "it is odd", "key": b"k", "headers": headers}
    taker(store, topic).take_in(batch(row | {"partition": 1, "offset": 7, "value": b"v"}))
    (letter,) = store.dead_letters(topic.uid, limit=10)
    assert letter.reason == "rejected"
    assert letter.message.key == b"k"
    assert letter.message.headers == (
        ("x", b"1"),
        (REASON_HEADER, b"it is odd"),
        (ORIGIN_HEADER, b"in/1/7"),
    )
    found = store.bodies(topic.uid, [letter.message.id], actor=System(), now_ms=START_MS).found
    assert found == {letter.message.id: b"v"}
    assert caplog.messages == ["the record in/1/7 is malformed: it is odd"]


def test_log_lines_of_malformed_records_are_bounded(
    store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"action": "reject", "reason": "it is odd"}] * 25
    assert taker(store, topic).take_in(batch(*rows)).rejected == 25
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == "15 more records are malformed: in/0/10-24"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": "x" * 513}, b"id has 513 bytes; at most 512 are allowed"),
        ({"id": "x" * 513, "action": "cancel"}, b"id has 513 bytes; at most 512 are allowed"),
        (
            {"id": "b", "value": bytes(1 << 20) + b"x"},
            b"body has 1048577 bytes; at most 1048576 are allowed",
        ),
        (
            {"action": "reject", "reason": "too much", "value": bytes(MAX_BODY_BYTES + 1)},
            b"too much; the value is not kept",
        ),
    ],
)
def test_invalid_message_is_rejected_alone(
    store: Store, topic: Topic, row: dict[str, Any], reason: bytes
) -> None:
    """The store has limits that the contract of the input does not know."""
    tally = taker(store, topic).take_in(batch({"id": "before"}, row, {"id": "behind"}))
    assert tally == Tally(accepted=2, rejected=1)
    assert ids(store, topic) == {"before", "behind"}
    (letter,) = store.dead_letters(topic.uid, limit=10)
    assert (REASON_HEADER, reason) in letter.message.headers
    assert positions(store)[0] == 3


def test_oversized_batch_is_cut(store: Store, topic: Topic) -> None:
    rows = batch(*({"id": f"m{number}"} for number in range(MAX_BATCH + 1)))
    assert taker(store, topic).take_in(rows).accepted == MAX_BATCH + 1
    assert positions(store)[0] == MAX_BATCH + 1


def test_a_batch_that_runs_again_adds_nothing(
    store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    rows = batch({"id": "a"}, {"action": "reject", "reason": "it is odd"})
    taking = taker(store, topic)
    taking.take_in(rows)
    with caplog.at_level(logging.WARNING):
        assert taking.take_in(rows) == Tally()
    assert ids(store, topic) == {"a"}
    assert len(store.dead_letters(topic.uid, limit=10)) == 1


def test_nothing_is_taken_in_under_a_lost_claim(store: Store, topic: Topic) -> None:
    stale = taker(store, topic)
    taker(store, topic)
    with pytest.raises(ClaimLost):
        stale.take_in(batch({"id": "a"}))
    assert ids(store, topic) == set()


def test_an_empty_batch_changes_nothing(store: Store, topic: Topic) -> None:
    assert taker(store, topic).take_in(batch()) == Tally()
