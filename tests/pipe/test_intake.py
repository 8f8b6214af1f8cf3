"""Intake: records are applied in one transaction, and no record stops later ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from chronoline.core.errors import RowsLocked
from chronoline.core.limits import MAX_BODY_BYTES
from chronoline.core.message import Header
from chronoline.core.permissions import System
from chronoline.core.topic import Topic, TopicSettings
from chronoline.pipe.contract import Contract, SourceRecord
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER, PipeIntake
from chronoline.pipe.readers import ReadRange
from chronoline.runtime.timestamps import show_moment
from chronoline.stores.contract import MAX_BATCH, Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import ClaimLost, InputClaim, InputGap, Tally
from chronoline.testing.clock import START_MS, ManualClock
from chronoline.testing.postgres import PostgresServer

DUE_MS = START_MS + 60_000
ODD = "header chronosDeadline is missing"


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("pipe", TopicSettings(dedupe_ms=0), now_ms=START_MS)


def claims(store: Store, partitions: int = 2) -> dict[int, InputClaim]:
    starts = dict.fromkeys(range(partitions), 0)
    until_ms = START_MS + 60_000
    found = store.claim_inputs("pipe/in", starts, "node", until_ms=until_ms, now_ms=START_MS)
    return {claim.partition: claim for claim in found}


def taker(store: Store, topic: Topic, **contract: Any) -> PipeIntake:
    given = Contract(topic="in", producer_group="pipe", **contract)
    return PipeIntake(store, topic.uid, given, now_ms=ManualClock().now_ms)


def record(
    id: str | None = None,
    due: int | None = DUE_MS,
    *,
    action: bytes | None = None,
    headers: Sequence[Header] = (),
    key: bytes | None = None,
    value: bytes | None = None,
) -> SourceRecord:
    """A record at offset 0 of partition 0."""
    own: list[Header] = []
    if id is not None:
        own.append(("chronosMessageId", id.encode()))
    if due is not None:
        own.append(("chronosDeadline", show_moment(due).encode()))
    if action is not None:
        own.append(("chronosAction", action))
    return SourceRecord(0, 0, key, value, (*own, *headers), START_MS)


def odd(**more: Any) -> SourceRecord:
    return record("odd", None, **more)


def read_range(*records: SourceRecord, partition: int = 0, first: int = 0) -> ReadRange:
    """Records one behind the other."""
    placed = [
        each._replace(partition=partition, offset=first + place)
        for place, each in enumerate(records)
    ]
    return ReadRange(partition, first, first + len(placed), placed)


def ids(store: Store, topic: Topic) -> set[str]:
    page = store.scan(topic.uid, topic.all_buckets, limit=MAX_BATCH)
    return {each.id for each in page.messages}


def positions(store: Store) -> list[int]:
    return [account.position for account in store.input_accounts("pipe/in")]


def test_records_are_applied_in_order(store: Store, topic: Topic) -> None:
    ranges = [
        read_range(
            record("a", key=b"k", value=b"v", headers=[("a", b"1"), ("a", None)]),
            record("b"),
            record("a"),
            record("b", None, action=b"cancel"),
            record("a", DUE_MS + 1, action=b"reschedule"),
            record("nobody", None, action=b"cancel"),
            odd(),
        ),
        ReadRange(1, 0, 45, [record("c")._replace(partition=1, offset=41)]),
    ]
    tally = taker(store, topic).take_in(claims(store), ranges)
    assert tally == Tally(accepted=3, ignored=1, rejected=1, cancelled=1, rescheduled=1, missed=1)
    found = store.lookup(topic.uid, ["a", "b", "c"])
    assert found.keys() == {"a", "c"}
    assert found["a"].due == DUE_MS + 1
    assert found["a"].key == b"k"
    assert found["a"].headers == (("a", b"1"), ("a", None))
    bodies = store.bodies(topic.uid, ["a", "c"], actor=System(), now_ms=START_MS).found
    assert bodies == {"a": b"v", "c": None}
    assert positions(store) == [7, 45]


@pytest.mark.parametrize(
    ("early_cancel_ms", "expected"),
    [(0, Tally(missed=1, accepted=1)), (1_000, Tally(missed=1, withdrawn=1))],
)
def test_early_cancel_waits_if_it_is_set(
    store: Store, topic: Topic, early_cancel_ms: int, expected: Tally
) -> None:
    held = claims(store)
    intake = taker(store, topic, early_cancel_ms=early_cancel_ms)
    cancelled = intake.take_in(held, [read_range(record("a", None, action=b"cancel"))])
    created = intake.take_in(held, [read_range(record("a"), partition=1)])
    assert cancelled + created == expected


def test_cancel_finds_what_another_partition_creates_in_the_same_batch(
    store: Store, topic: Topic
) -> None:
    ranges = [
        read_range(record("a", None, action=b"cancel"), record("b")),
        read_range(record("a"), record("b", None, action=b"cancel"), partition=1),
    ]
    tally = taker(store, topic).take_in(claims(store), ranges)
    assert tally == Tally(accepted=2, cancelled=2)
    assert store.lookup(topic.uid, ["a", "b"]) == {}


def test_one_id_on_two_partitions_is_one_message(store: Store, topic: Topic) -> None:
    ranges = [read_range(record("a")), read_range(record("b"), record("a"), partition=1)]
    held = claims(store)
    assert taker(store, topic).take_in(held, ranges) == Tally(accepted=2, ignored=1)
    accounts = store.input_accounts(held[0].source)
    assert [each.tally for each in accounts] == [Tally(accepted=1), Tally(accepted=1, ignored=1)]


def test_held_message_delays_only_its_own_partition(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("held_by_others")
    with open_store(url) as store, psycopg.connect(url) as other:
        topic = store.create_topic("pipe", TopicSettings(dedupe_ms=0), now_ms=START_MS)
        other.execute(
            "SELECT chronoline.send('pipe', 'a', %s, '', %s, 'others')", [DUE_MS, START_MS]
        )
        held = claims(store, partitions=3)
        intake = taker(store, topic)
        first = [read_range(record(each), partition=n) for n, each in enumerate("abc")]
        with pytest.raises(RowsLocked):
            intake.take_in(held, first)
        assert store.lookup(topic.uid, ["a", "b", "c"]).keys() == {"b", "c"}
        # The others do not wait for it the next time either.
        second = [first[0], read_range(record("d"), partition=1, first=1)]
        with pytest.raises(RowsLocked):
            intake.take_in(held, second)
        assert store.lookup(topic.uid, ["a", "d"]).keys() == {"d"}
        other.rollback()
        assert intake.take_in(held, first[:1]) == Tally(accepted=1)


def test_rejected_record_keeps_its_reason_and_origin(
    store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    held = claims(store)
    taker(store, topic).take_in(held, [ReadRange(1, 0, 7, [])])
    letters = read_range(odd(key=b"k", value=b"v", headers=[("x", b"1")]), partition=1, first=7)
    taker(store, topic).take_in(held, [letters])
    (letter,) = store.dead_letters(topic.uid, limit=10)
    assert letter.reason == "rejected"
    assert letter.message.key == b"k"
    assert letter.message.headers == (
        ("chronosMessageId", b"odd"),
        ("x", b"1"),
        (REASON_HEADER, ODD.encode()),
        (ORIGIN_HEADER, b"in/1/7"),
    )
    found = store.bodies(topic.uid, [letter.message.id], actor=System(), now_ms=START_MS).found
    assert found == {letter.message.id: b"v"}
    assert caplog.messages == [f"the record in/1/7 is malformed: {ODD}"]


def test_log_lines_of_malformed_records_are_bounded(
    store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    assert taker(store, topic).take_in(claims(store), [read_range(*[odd()] * 25)]).rejected == 25
    assert len(caplog.messages) == 11
    assert caplog.messages[-1] == "15 more records are malformed: in/0/10-24"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            record("b", value=bytes(1 << 20) + b"x"),
            b"body has 1048577 bytes; at most 1048576 are allowed",
        ),
        (odd(value=bytes(MAX_BODY_BYTES + 1)), f"{ODD}; the value is not kept".encode()),
        (
            record("b", value=bytes(MAX_BODY_BYTES + 1)),
            b"body has 67108865 bytes; at most 1048576 are allowed; the value is not kept",
        ),
    ],
)
def test_invalid_message_is_rejected_alone(
    store: Store, topic: Topic, bad: SourceRecord, reason: bytes
) -> None:
    """The store has limits that the contract of the input does not know."""
    taking = taker(store, topic, largest_value_bytes=2 * MAX_BODY_BYTES)
    tally = taking.take_in(claims(store), [read_range(record("before"), bad, record("behind"))])
    assert tally == Tally(accepted=2, rejected=1)
    assert ids(store, topic) == {"before", "behind"}
    (letter,) = store.dead_letters(topic.uid, limit=10)
    assert (REASON_HEADER, reason) in letter.message.headers
    assert positions(store)[0] == 3


def test_headers_that_no_store_keeps_are_dropped(store: Store, topic: Topic) -> None:
    bad = record("b", headers=[("x" * 65_536, b"1")], value=b"v")
    tally = taker(store, topic).take_in(claims(store), [read_range(bad, record("behind"))])
    assert tally == Tally(accepted=1, rejected=1)
    (letter,) = store.dead_letters(topic.uid, limit=10)
    (_, reason), (_, origin) = letter.message.headers
    assert reason is not None
    assert reason.endswith(b"; the headers are not kept")
    assert origin == b"in/0/0"
    found = store.bodies(topic.uid, [letter.message.id], actor=System(), now_ms=START_MS).found
    assert found == {letter.message.id: b"v"}


def test_a_batch_that_runs_again_adds_nothing(store: Store, topic: Topic) -> None:
    held, records = claims(store), [read_range(record("a"), odd())]
    taker(store, topic).take_in(held, records)
    assert taker(store, topic).take_in(held, records) == Tally()
    assert ids(store, topic) == {"a"}
    assert len(store.dead_letters(topic.uid, limit=10)) == 1


def test_nothing_is_taken_in_under_a_lost_claim(store: Store, topic: Topic) -> None:
    stale = claims(store)
    claims(store)
    with pytest.raises(ClaimLost):
        taker(store, topic).take_in(stale, [read_range(record("a"))])
    assert ids(store, topic) == set()


def test_nothing_is_taken_in_behind_a_gap(store: Store, topic: Topic) -> None:
    with pytest.raises(InputGap):
        taker(store, topic).take_in(claims(store), [read_range(record("a"), first=1)])
    assert ids(store, topic) == set()
    assert positions(store) == [0, 0]
