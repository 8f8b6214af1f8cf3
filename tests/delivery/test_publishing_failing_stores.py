"""A store that fails, or does not answer, costs a publishing lane no message."""

from collections import Counter

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneReport
from chronoline.testing import ManualClock
from tests.delivery.inbox import (
    HOUR_MS,
    create,
    now_ms,
    remaining,
    said,
    times,
    wait_until,
    waiting,
)
from tests.delivery.outlet import MINUTE_MS, Outlet, Serving, lane_of, publishing, put
from tests.delivery.stores import Tap

UNANSWERED = OutcomeUnknown("the answer was lost")


def gone(_: str) -> None:
    raise StoreUnavailable("the store is gone")


def without_acks(name: str) -> None:
    if name == "ack":
        gone(name)


def healthy(_: str) -> None:
    pass


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


def test_a_store_that_fails_for_a_while_is_survived(tap: Tap, topic: Topic, outlet: Outlet) -> None:
    left = Counter({"reserve": 2, "ack": 2})

    def fail(name: str) -> None:
        if left[name]:
            left[name] -= 1
            raise StoreUnavailable("the store is gone")

    tap.fail = fail
    create(tap.store, topic, "a", "b", in_ms=0)
    with publishing(tap, topic, outlet) as window:
        outlet.wait_for("a", "b")
        wait_until(lambda: remaining(tap.store, topic) == 0)
        create(tap.store, topic, "c", in_ms=50)
        outlet.wait_for("c")
        assert window.stop() == LaneReport(fired=3)
    assert not +left
    assert outlet.counts() == {"a": 1, "b": 1, "c": 1}
    assert outlet.early == []


def test_held_messages_are_published_without_the_store(
    tap: Tap, topic: Topic, outlet: Outlet
) -> None:
    ids = [f"m{number}" for number in range(20)]
    create(tap.store, topic, *ids, in_ms=1_500)
    with publishing(tap, topic, outlet, reserve_ahead_ms=2_000, hold_ms=HOUR_MS) as window:
        wait_until(lambda: waiting(tap.store, topic) == 0)
        tap.fail = gone
        outlet.wait_for(*ids)
        assert remaining(tap.store, topic) == 20
        tap.fail = healthy
        wait_until(lambda: remaining(tap.store, topic) == 0)
        assert window.stop() == LaneReport(fired=20)
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert outlet.early == []


def test_message_whose_ack_came_after_its_lease_is_not_published_again(
    tap: Tap, chronoline_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock)
    settings = TopicSettings(max_attempts=2)
    topic = tap.store.create_topic("again", settings, now_ms=clock.now_ms())
    put(tap.store, topic, "a", clock=clock)
    once = times(1, "ack", StoreUnavailable("the store is gone"))

    def long_outage(name: str) -> None:
        if tap.commits.count(("ack", 1)) == 1 and name == "ack":
            clock.advance(2_000)
        once(name)

    tap.fail = long_outage
    with publishing(tap, topic, outlet, hold_ms=2_000, clock=clock) as window:
        wait_until(lambda: ("ack", 1) in tap.commits)  # the next one would be too late
        wait_until(lambda: tap.store.lookup(topic.uid, ["a"])["a"].ts > clock.now_ms())
        clock.advance(1_000)  # it has rested
        wait_until(lambda: remaining(tap.store, topic) == 0)
        assert window.stop() == LaneReport(fired=1)
    assert outlet.counts() == {"a": 1}
    assert tap.store.dead_letters(topic.uid, limit=10) == []
    assert not any("suspected" in each for each in said(caplog))  # it was the lane itself


def test_unanswered_reservation_is_published_before_its_lease_lapses(
    tap: Tap, topic: Topic, outlet: Outlet
) -> None:
    outlet.patient = True
    create(tap.store, topic, "in flight", in_ms=0)
    with publishing(tap, topic, outlet, hold_ms=HOUR_MS) as window:
        outlet.wait_for("in flight")
        version = tap.store.lookup(topic.uid, ["in flight"])["in flight"].version
        tap.lose = times(2, "reserve", UNANSWERED)
        create(tap.store, topic, "a", "b", in_ms=0)
        outlet.wait_for("a", "b")
        assert tap.store.lookup(topic.uid, ["in flight"])["in flight"].version == version
        outlet.confirm()
        wait_until(lambda: remaining(tap.store, topic) == 0)
        report = window.stop()
    assert report.fired == 3
    assert outlet.counts() == {"in flight": 1, "a": 1, "b": 1}
    assert {each.message.attempts for each in outlet.messages} == {0}


def test_unanswered_reservation_keeps_messages_in_flight(
    tap: Tap, topic: Topic, outlet: Outlet
) -> None:
    outlet.patient = True
    lost = times(1, "reserve", UNANSWERED)

    def lose(name: str) -> None:
        taken = tap.store.lookup(topic.uid, ["lost"]).get("lost")
        if name == "reserve" and taken is not None and taken.lock_consumer is not None:
            outlet.wait_for("held")
            lost(name)

    create(tap.store, topic, "held", in_ms=500)
    with publishing(tap, topic, outlet, reserve_ahead_ms=1_000, hold_ms=HOUR_MS) as window:
        wait_until(lambda: waiting(tap.store, topic) == 0)
        version = tap.store.lookup(topic.uid, ["held"])["held"].version
        tap.lose = lose
        create(tap.store, topic, "lost", in_ms=0)
        outlet.wait_for("held", "lost")
        assert tap.store.lookup(topic.uid, ["held"])["held"].version == version
        outlet.confirm()
        wait_until(lambda: remaining(tap.store, topic) == 0)
        assert window.stop() == LaneReport(fired=2, given_back=1)
    assert outlet.counts() == {"held": 1, "lost": 1}


def test_window_begins_before_the_store_can_be_watched(
    tap: Tap, topic: Topic, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, failures = tap.store.watch, iter([StoreUnavailable("gone"), StoreUnavailable("gone")])

    def fail_twice() -> object:
        for failure in failures:
            raise failure
        return watch()

    monkeypatch.setattr(tap.store, "watch", fail_twice)
    create(tap.store, topic, "a", in_ms=0)
    with publishing(tap, topic, outlet):
        outlet.wait_for("a")
    assert remaining(tap.store, topic) == 0


def test_window_ends_without_the_store(tap: Tap, topic: Topic, outlet: Outlet) -> None:
    tap.fail = without_acks
    create(tap.store, topic, "a", in_ms=0)
    now = now_ms()
    with lane_of(tap, topic, outlet, hold_ms=1_000) as lane:
        window = Serving(lane, now, now + MINUTE_MS)
        outlet.wait_for("a")
        tap.fail = gone
        report = window.stop()
    assert report.fired == 1
    assert remaining(tap.store, topic) == 1


def test_unsent_acks_are_sent_in_the_next_window(
    tap: Tap, topic: Topic, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap.fail = without_acks
    create(tap.store, topic, "a", in_ms=0)
    with lane_of(tap, topic, outlet, hold_ms=20_000) as lane:
        now = now_ms()
        first = Serving(lane, now, now + MINUTE_MS)
        outlet.wait_for("a")
        tap.fail = gone
        # As if its time were over.
        monkeypatch.setattr(lane, "_is_done", lambda: lane._delivery.ending)
        assert first.stop().fired == 1
        monkeypatch.undo()
        tap.fail = healthy
        second = Serving(lane, now, now + MINUTE_MS)
        wait_until(lambda: remaining(tap.store, topic) == 0)
        second.stop()
    assert outlet.counts() == {"a": 1}
