"""The relay of dead letters: each is published with its reason, and discarded when that is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from chronoline.core.errors import OutputUnavailable, Unpublishable
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.pipe.dead_letters import Relay
from chronoline.pipe.intake import ORIGIN_HEADER, REASON_HEADER
from chronoline.pipe.outputs.contract import Confirm, Output, OutRecord
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputRecord, Intake, Rejected
from chronoline.testing.clock import START_MS, ManualClock


class Outlet(Output):
    """Accepts a record, or returns the problem."""

    def __init__(self) -> None:
        self.records: list[OutRecord] = []
        self.problem: Callable[[OutRecord], BaseException | None] = lambda _: None

    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        problem = self.problem(record)
        if problem is None:
            self.records.append(record)
        confirm(problem)

    def flush(self, timeout_s: float) -> int:
        return 0

    def close(self) -> None: ...


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("pipe", TopicSettings(max_attempts=1), now_ms=START_MS)


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


def relay(store: Store, topic: Topic, outlet: Outlet) -> Relay:
    return Relay(store, topic, outlet, ManualClock().now_ms)


def reject(store: Store, topic: Topic, *bodies: bytes) -> None:
    """Malformed records, as they are taken in."""
    until_ms = START_MS + 1_000
    (claim,) = store.claim_inputs("in", {0: 0}, "a", until_ms=until_ms, now_ms=START_MS)
    headers = (("x", b"1"), (REASON_HEADER, b"it is odd"), (ORIGIN_HEADER, b"in/0/7"))
    records = [
        InputRecord(
            claim.position + n,
            Rejected(NewMessage(id=f"letter-{body!r}", due=START_MS, body=body, headers=headers)),
        )
        for n, body in enumerate(bodies)
    ]
    store.take_in(
        topic.uid,
        [Intake(claim, records, claim.position, claim.position + len(records))],
        producer_group="pipe",
        now_ms=START_MS,
    )


def test_letters_are_moved_with_their_reasons(store: Store, topic: Topic, outlet: Outlet) -> None:
    reject(store, topic, b"a")
    poison = NewMessage(id="poison", due=START_MS, key=b"k", body=None, headers=(("x", None),))
    store.create(topic.uid, [poison], now_ms=START_MS)
    leased = store.reserve(
        topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=1_000, now_ms=START_MS
    ).leased
    moves = [(each.lease, START_MS + 10) for each in leased]
    store.retry(topic.uid, moves, now_ms=START_MS)  # which was its only attempt

    assert relay(store, topic, outlet).run(lambda: False) == 2
    assert store.dead_letters(topic.uid, limit=10) == []
    by_key = {record.key: record for record in outlet.records}
    why = (REASON_HEADER, b"it is odd")
    assert by_key[None] == OutRecord(None, b"a", (("x", b"1"), why, (ORIGIN_HEADER, b"in/0/7")))
    assert by_key[b"k"] == OutRecord(b"k", None, (("x", None), (REASON_HEADER, b"attempts")))


def test_refused_dead_letter_stays_and_others_move(
    store: Store, topic: Topic, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    reject(store, topic, b"a", b"too large", b"b")
    refusal = Unpublishable("it is too large")
    outlet.problem = lambda record: refusal if record.value == b"too large" else None
    moving = relay(store, topic, outlet)
    assert moving.run(lambda: False) == 2
    assert {record.value for record in outlet.records} == {b"a", b"b"}
    (left,) = store.dead_letters(topic.uid, limit=10)
    assert left.message.id == "letter-b'too large'"
    assert caplog.messages == ["the dead letter \"letter-b'too large'\" stays: it is too large"]
    # It is not tried again and again.
    outlet.problem = lambda record: pytest.fail(f"{record} was published")
    assert moving.run(lambda: False) == 0


def test_unavailable_output_is_retried_and_logged_once(
    store: Store, topic: Topic, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    reject(store, topic, *(b"%d" % number for number in range(20)))
    away = OutputUnavailable("nobody is there")
    outlet.problem = lambda _: away
    moving = relay(store, topic, outlet)
    assert moving.run(lambda: False) == 0
    assert caplog.messages == ["20 dead letters stay for now: nobody is there"]
    outlet.problem = lambda _: None
    assert moving.run(lambda: False) == 20
    assert store.dead_letters(topic.uid, limit=10) == []


def test_many_letters_are_moved_in_pages(store: Store, topic: Topic, outlet: Outlet) -> None:
    bodies = [b"%d" % number for number in range(1_201)]
    reject(store, topic, *bodies)
    assert relay(store, topic, outlet).run(lambda: False) == len(bodies)
    assert sorted(record.value or b"" for record in outlet.records) == sorted(bodies)


def test_stopped_relay_moves_nothing(store: Store, topic: Topic, outlet: Outlet) -> None:
    reject(store, topic, b"a")
    assert relay(store, topic, outlet).run(lambda: True) == 0
    assert outlet.records == []
