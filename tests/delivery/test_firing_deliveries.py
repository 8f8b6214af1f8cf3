"""Deliveries of a firing lane: each message once, none early, and failed ones again."""

from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.firing_lane import FiringLane
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.delivery.inbox import (
    HOUR_MS,
    Inbox,
    create,
    firing,
    now_ms,
    remaining,
    wait_until,
)

# Once, and not early


def test_everything_is_delivered_once_and_not_early_and_acked(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    now = now_ms()
    ids = [f"m{number}" for number in range(1_000)]
    messages = [
        NewMessage(id=each, due=now - 100 + place, body=each.encode())
        for place, each in enumerate(ids)
    ]
    store.create(topic.uid, messages, now_ms=now)
    with firing(store, topic, inbox):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert all(each.body == each.lease.id.encode() for each in inbox.messages)
    assert [each.message.due for each in inbox.messages] == sorted(each.due for each in messages)
    assert remaining(store, topic) == 0


def test_several_lanes_share_a_timeline(store: Store, topic: Topic, inbox: Inbox) -> None:
    ids = [f"m{number}" for number in range(300)]
    with (
        firing(store, topic, inbox, consumer="a"),
        firing(store, topic, inbox, consumer="b"),
        firing(store, topic, inbox, consumer="c"),
    ):
        for place in range(0, 300, 30):
            create(store, topic, *ids[place : place + 30], in_ms=place)
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert remaining(store, topic) == 0


# Changes while the lane runs


def test_message_created_while_the_lane_runs(store: Store, topic: Topic, inbox: Inbox) -> None:
    with firing(store, topic, inbox):
        create(store, topic, "far", in_ms=HOUR_MS)
        for number in range(20):
            create(store, topic, f"m{number}", in_ms=number % 3 * 60)
            inbox.wait_for(f"m{number}")
    assert inbox.early == []
    assert inbox.counts() == {f"m{number}": 1 for number in range(20)}
    assert remaining(store, topic) == 1


def test_message_created_by_another_store(
    store: Store, url: str, topic: Topic, inbox: Inbox
) -> None:
    if not store.capabilities.shared:
        pytest.skip("memory is not shared: capabilities.shared is false")
    with open_store(url) as other, firing(store, topic, inbox):
        for number in range(10):
            create(other, topic, f"m{number}", in_ms=number % 2 * 150)
            inbox.wait_for(f"m{number}")
    assert inbox.early == []
    assert inbox.counts() == {f"m{number}": 1 for number in range(10)}


def test_rescheduled_and_cancelled_messages_skip_the_old_due(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    with firing(store, topic, inbox):
        due = create(store, topic, "later", "sooner", "never", "control", in_ms=1_500)
        moves = [("later", due + 200), ("sooner", due - 200)]
        moved = store.reschedule(topic.uid, moves, producer_group="default", now_ms=now_ms())
        gone = store.cancel(topic.uid, ["never"], producer_group="default", now_ms=now_ms())
        assert [outcome.done for outcome in (*moved, *gone)] == [True] * 3
        inbox.wait_for("later")
    delivered = [(each.lease.id, each.message.due) for each in inbox.messages]
    assert delivered == [("sooner", due - 200), ("control", due), ("later", due + 200)]
    assert inbox.early == []


def test_a_message_from_far_away_that_is_brought_near(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    create(store, topic, "a", in_ms=HOUR_MS)
    with firing(store, topic, inbox):
        moves = [("a", now_ms() + 50)]
        store.reschedule(topic.uid, moves, producer_group="default", now_ms=now_ms())
        inbox.wait_for("a")
    assert inbox.early == []


# Deliveries that fail


def test_failed_delivery_is_retried(store: Store, topic: Topic, inbox: Inbox) -> None:
    failures = iter([ValueError("no"), ValueError("not yet")])

    def fail_twice(message: LeasedMessage) -> None:
        for failure in failures:
            raise failure
        inbox(message)

    with firing(store, topic, fail_twice, retry_ms=30):
        create(store, topic, "a", in_ms=0)
        inbox.wait_for("a")
    assert [each.message.attempts for each in inbox.messages] == [2]
    assert inbox.early == []
    assert remaining(store, topic) == 0


def test_poison_message_does_not_harm_its_neighbours(store: Store, inbox: Inbox) -> None:
    topic = store.create_topic("poisoned", TopicSettings(max_attempts=3), now_ms=now_ms())

    def deliver(message: LeasedMessage) -> None:
        if message.lease.id == "poison":
            raise SystemExit("no")
        inbox(message)

    with firing(store, topic, deliver, retry_ms=20):
        create(store, topic, "a", "poison", "b", in_ms=0)
        inbox.wait_for("a", "b")
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
    (dead,) = store.dead_letters(topic.uid, limit=10)
    assert (dead.message.id, dead.reason) == ("poison", "attempts")
    assert inbox.counts() == {"a": 1, "b": 1}


def test_awaitable_result_is_not_a_success(store: Store, topic: Topic, inbox: Inbox) -> None:
    async def handle(message: LeasedMessage) -> None:
        inbox(message)

    with pytest.raises(InvalidInput, match="plain function"):
        FiringLane(store, topic, handle, consumer="c")
    awaited: list[Any] = []

    def deliver(message: LeasedMessage) -> Any:
        awaited.append(handle(message))
        return awaited[-1]

    create(store, topic, "a", in_ms=0)
    with firing(store, topic, deliver, retry_ms=HOUR_MS):
        wait_until(lambda: bool(awaited))
    awaited[0].close()
    assert store.lookup(topic.uid, ["a"])["a"].attempts == 1


@pytest.mark.parametrize(
    ("max_attempts", "said"), [(1, "goes to the dead letters"), (2, "is tried again")]
)
def test_a_failure_says_what_becomes_of_the_message(
    max_attempts: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: LeasedMessage) -> None:
        raise ValueError("bad")

    with open_store("memory:") as store:
        topic = store.create_topic("t", TopicSettings(max_attempts=max_attempts), now_ms=now_ms())
        store.create(topic.uid, [NewMessage(id="a", due=now_ms())], now_ms=now_ms())
        (leased,) = store.reserve(
            topic.uid, topic.all_buckets, consumer="c", limit=1, lease_ms=1_000, now_ms=now_ms()
        ).leased
        # A second run of one message: no lane does it at will.
        assert not FiringLane(store, topic, fail, consumer="c")._fire(leased)
    assert caplog.messages == [f"delivering message 'a' failed; it {said}"]


# A paused topic


def test_lane_of_a_paused_topic_fires_nothing_until_it_is_resumed(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    other, others = store.create_topic("other", now_ms=0), Inbox()
    with firing(store, topic, inbox), firing(store, other, others):
        store.pause_topic(topic.uid, now_ms=now_ms())
        create(store, topic, "a", in_ms=0)
        create(store, other, "b", in_ms=300)
        others.wait_for("b")
        assert inbox.counts() == {}
        store.resume_topic(topic.uid, now_ms=now_ms())
        inbox.wait_for("a")
    assert inbox.counts() == {"a": 1}
