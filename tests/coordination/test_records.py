"""Records: their JSON, and what a reader makes of that of others."""

from __future__ import annotations

import gc
import json
from weakref import ref

import pytest

from chronoline.coordination.contract import KeyValue, View
from chronoline.coordination.membership import BrokerLoad, BrokerRecord, brokers_of
from chronoline.coordination.records import record_of
from chronoline.coordination.topics import RegisteredTopic, TopicState

BROKER = BrokerRecord(
    "b",
    "host:7400",
    roles=("carrier",),
    rack="r",
    load=BrokerLoad(consumers=3),
    problems=("clock",),
)


def entry(value: bytes | dict[str, object]) -> KeyValue:
    return KeyValue("k", value if isinstance(value, bytes) else json.dumps(value).encode(), 1)


@pytest.mark.parametrize(
    "record",
    [
        BROKER,
        RegisteredTopic("t", TopicState.OPEN, "r", uid=7, settings={"buckets": 8}),
        RegisteredTopic("t", TopicState.CREATING, "r"),
    ],
    ids=["broker", "open topic", "new topic"],
)
def test_record_is_read_as_it_was_written(record: BrokerRecord | RegisteredTopic) -> None:
    assert record_of(type(record), entry(record.encode())) == record


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    value = {"v": 1, "name": "b", "address": "a", "shoes": 2, "load": {"topics": 1, "x": 1}}
    found = record_of(BrokerRecord, entry(value))
    assert found == BrokerRecord("b", "a", load=BrokerLoad(topics=1))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        {"name": "b", "address": "a"},
        {"v": 2, "name": "b", "address": "a"},
        {"v": True, "name": "b", "address": "a"},
        {"v": 1, "name": "b"},
        {"v": 1, "name": 7, "address": "a"},
        {"v": 1, "name": "b", "address": None},
        {"v": 1, "name": "b", "address": "a", "roles": "carrier"},
        {"v": 1, "name": "b", "address": "a", "roles": [1]},
        {"v": 1, "name": "b", "address": "a", "load": {"topics": True}},
        {"v": 1, "name": "b", "address": "a", "load": []},
    ],
    ids=str,
)
def test_malformed_record_is_skipped_and_logged(
    value: bytes | dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    assert record_of(BrokerRecord, entry(value)) is None
    assert "a BrokerRecord in the coordination service is skipped" in caplog.text


def test_malformed_record_does_not_hide_the_others() -> None:
    wrong, right = KeyValue("k/1", b"?", 1), KeyValue("k/2", BROKER.encode(), 2)
    assert brokers_of(View.of({"k/1": wrong, "k/2": right}, 2)) == {"b": BROKER}


def test_unknown_state_is_malformed() -> None:
    value = {"v": 1, "name": "t", "state": "asleep", "request": "r"}
    assert record_of(RegisteredTopic, entry(value)) is None


def test_entry_is_decoded_once() -> None:
    one = entry(BROKER.encode())
    assert record_of(BrokerRecord, one) is record_of(BrokerRecord, one)


def test_decoded_record_ends_with_its_entry() -> None:
    """A generation is a new value at each change, and a large one."""
    one = entry(BROKER.encode())
    record = record_of(BrokerRecord, one)
    assert record is not None
    decoded = ref(record)
    del record
    assert decoded() is not None
    del one
    gc.collect()
    assert decoded() is None
