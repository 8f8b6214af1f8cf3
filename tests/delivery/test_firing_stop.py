"""Firing lanes start, stop and start again; held messages are released, delivered ones are acked."""

import threading
from collections import Counter
from typing import Any, cast

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.errors import InvalidInput, StoreUnavailable, TopicNotFound
from chronoline.core.message import LeasedMessage, Message
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.firing_lane import FiringLane
from chronoline.stores.contract import Store
from tests.delivery.inbox import (
    HOUR_MS,
    Inbox,
    create,
    firing,
    now_ms,
    remaining,
    times,
    wait_until,
    waiting,
)
from tests.delivery.stores import PATIENCE_S, Tap

# Starting


def lanes_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("chronoline-")}


@pytest.mark.parametrize(
    "wrong",
    [{"consumer": ""}, {"hold_ms": 5}, {"retry_ms": 0}, {"ranges": [BucketRange(0, 1_000)]}],
)
def test_wrong_arguments_are_refused_at_once(
    store: Store, topic: Topic, inbox: Inbox, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        FiringLane(store, topic, inbox, **({"consumer": "c"} | wrong))


def test_lane_uses_the_given_agenda(store: Store, topic: Topic, inbox: Inbox) -> None:
    create(store, topic, "a", in_ms=30_000)
    agenda = Agenda(reserve_ahead_ms=60_000)
    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: len(agenda) == 1)
        assert waiting(store, topic) == 0


def test_stopped_lane_can_start_again(store: Store, topic: Topic, inbox: Inbox) -> None:
    lane = FiringLane(store, topic, inbox, consumer="c")
    with lane, pytest.raises(InvalidInput, match="runs already"):
        lane.start()
    create(store, topic, "a", in_ms=0)
    with lane:
        inbox.wait_for("a")
    assert remaining(store, topic) == 0


def test_ended_lane_can_start_again(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    ended = times(1, "reserve", TopicNotFound("it is not there yet"))
    before = lanes_threads()
    tap.fail = ended
    lane = FiringLane(cast(Store, tap), topic, inbox, consumer="c")
    lane.start()
    wait_until(lambda: lanes_threads() <= before)
    create(tap.store, topic, "a", in_ms=0)
    with lane:
        inbox.wait_for("a")
    assert remaining(tap.store, topic) == 0


def test_lane_stopped_by_a_delivery_can_start_again(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    def stop_once(message: LeasedMessage) -> None:
        if not inbox.messages:
            lane.stop()
            with pytest.raises(InvalidInput, match="runs already"):
                lane.start()
        inbox(message)

    lane = FiringLane(store, topic, stop_once, consumer="c")
    create(store, topic, "last", in_ms=0)
    lane.start()
    inbox.wait_for("last")
    create(store, topic, "next", in_ms=0)
    with lane:
        inbox.wait_for("next")
    assert inbox.counts() == {"last": 1, "next": 1}
    assert remaining(store, topic) == 0


# Stopping


def test_deleted_topic_ends_the_lane(store: Store, topic: Topic, inbox: Inbox) -> None:
    with firing(store, topic, inbox):
        create(store, topic, "a", in_ms=0)
        inbox.wait_for("a")
        store.delete_topic(topic.uid, now_ms=now_ms())
        other = store.create_topic("other", now_ms=now_ms())
        create(store, other, "wakes the lane", in_ms=0)
        store.purge(now_ms=now_ms())
    assert inbox.counts() == {"a": 1}


def test_stop_releases_held_messages(store: Store, topic: Topic, inbox: Inbox) -> None:
    due = create(store, topic, "a", "b", in_ms=30_000)
    agenda = Agenda(reserve_ahead_ms=60_000)

    def held() -> dict[str, Message]:
        return store.lookup(topic.uid, ["a", "b"])

    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: all(each.lock_consumer for each in held().values()))
        version = held()["a"].version
    after = held()
    assert {(each.ts, each.due, each.lock_consumer) for each in after.values()} == {
        (due, due, None)
    }
    assert {each.attempts for each in after.values()} == {0}
    assert after["a"].version == version + 1
    assert inbox.messages == []


def test_stop_waits_for_the_delivery_and_acks_it(store: Store, topic: Topic) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    create(store, topic, "a", in_ms=0)
    with firing(store, topic, slow) as lane:
        assert begun.wait(PATIENCE_S)
        stopping = threading.Thread(target=lane.stop)
        stopping.start()
        assert remaining(store, topic) == 1
        go_on.set()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
    assert remaining(store, topic) == 0


def test_stop_retries_while_the_store_fails(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    left = Counter({"ack": 2, "unreserve": 2})

    def fail(name: str) -> None:
        if left[name]:
            left[name] -= 1
            raise StoreUnavailable("the store is gone")

    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(tap.store, topic, "delivered", in_ms=0)
    create(tap.store, topic, "held", in_ms=50_000)
    with firing(tap, topic, inbox, agenda=agenda):
        inbox.wait_for("delivered")
        wait_until(lambda: len(agenda) == 1)
        tap.fail = fail
    assert not +left
    held = tap.store.lookup(topic.uid, ["delivered", "held"])
    assert [(each.id, each.lock_consumer, each.attempts) for each in held.values()] == [
        ("held", None, 0)
    ]


def test_stop_ends_without_the_store(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    def gone(name: str) -> None:
        if name != "reserve" or inbox.counts():
            raise StoreUnavailable("the store is gone")

    before = lanes_threads()
    create(tap.store, topic, "a", in_ms=0)
    tap.fail = gone
    with firing(tap, topic, inbox, agenda=Agenda(reserve_ahead_ms=60_000), hold_ms=100):
        inbox.wait_for("a")
    assert lanes_threads() <= before
    assert remaining(tap.store, topic) == 1


def test_a_delivery_may_stop_its_lane(store: Store, topic: Topic, inbox: Inbox) -> None:
    before = lanes_threads()
    stopped = threading.Event()

    def stop(message: LeasedMessage) -> None:
        lane.stop()
        inbox(message)
        stopped.set()

    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    lane = FiringLane(store, topic, stop, consumer="c", agenda=agenda)
    create(store, topic, "last", in_ms=0)
    create(store, topic, "held", in_ms=50_000)
    with lane:
        assert stopped.wait(PATIENCE_S)
        wait_until(lambda: lanes_threads() <= before)
        assert remaining(store, topic) == waiting(store, topic) == 1
    assert inbox.counts() == {"last": 1}


def test_stopping_twice_or_before_the_start_is_fine(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    FiringLane(store, topic, inbox, consumer="c").stop()
    with firing(store, topic, inbox) as lane:
        lane.stop()
        lane.stop()
    assert inbox.counts() == {}


def test_a_stopped_lane_leaves_no_threads(store: Store, topic: Topic, inbox: Inbox) -> None:
    before = lanes_threads()
    with firing(store, topic, inbox):
        assert len(lanes_threads() - before) == 2
    assert lanes_threads() <= before
