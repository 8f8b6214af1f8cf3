"""Windows of a publishing lane: each message once and not early, beside other lanes."""

import threading
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneReport
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing import ManualClock
from tests.delivery.inbox import HOUR_MS, create, now_ms, remaining, wait_until, waiting
from tests.delivery.outlet import MINUTE_MS, Outlet, Serving, lane_of, publishing
from tests.delivery.stores import Tap


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


# One window


def test_everything_is_published_once_and_not_early_and_acked(
    store: Store, topic: Topic, outlet: Outlet
) -> None:
    now = now_ms()
    ids = [f"m{number}" for number in range(1_000)]
    batch = [
        NewMessage(id=each, due=now - 100 + place, body=each.encode())
        for place, each in enumerate(ids)
    ]
    receipts: list[tuple[LeasedMessage, int]] = []
    store.create(topic.uid, batch, now_ms=now)
    with publishing(store, topic, outlet, on_fired=receipts.extend) as window:
        outlet.wait_for(*ids)
        report = window.stop()
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert outlet.early == []
    assert [each.message.due for each in outlet.messages] == sorted(each.due for each in batch)
    assert all(each.body == each.lease.id.encode() for each in outlet.messages)
    assert report == LaneReport(fired=1_000)
    assert remaining(store, topic) == 0
    assert [message for message, _ in receipts] == outlet.messages
    assert all(fired_ms >= message.message.due for message, fired_ms in receipts)


def test_messages_due_at_the_end_are_left_alone(tap: Tap, topic: Topic, outlet: Outlet) -> None:
    now = now_ms()
    end = now + 300
    dues = {"last": end - 1, "next": end, "later": end + 10}
    batch = [NewMessage(id=each, due=due) for each, due in dues.items()]
    tap.store.create(topic.uid, batch, now_ms=now)
    before = tap.store.lookup(topic.uid, ["next", "later"])
    with lane_of(tap, topic, outlet, reserve_ahead_ms=1_000) as lane:
        report = Serving(lane, now, end).report()
    assert report == LaneReport(fired=1)
    assert outlet.counts() == {"last": 1}
    assert tap.store.lookup(topic.uid, ["last", "next", "later"]) == before


def test_a_window_that_is_over_is_skipped(tap: Tap, topic: Topic, outlet: Outlet) -> None:
    create(tap.store, topic, "a", in_ms=-10)
    now = now_ms()
    with lane_of(tap, topic, outlet) as lane:
        assert Serving(lane, now - 2_000, now).report() == LaneReport(skipped=True)
    assert tap.commits == []
    assert outlet.messages == []


def test_nothing_is_reserved_before_the_window_is_within_reach(
    tap: Tap, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock, outlet = chronoline_clock, Outlet(chronoline_clock)
    start = clock.now_ms() + 10_000
    overdue = NewMessage(id="overdue", due=clock.now_ms() - 5)
    tap.store.create(topic.uid, [overdue], now_ms=clock.now_ms())
    asked = threading.Semaphore(0)
    told = threading.Event()

    def stopping() -> bool:
        asked.release()
        return told.is_set()

    with lane_of(tap, topic, outlet, clock=clock) as lane:
        run = threading.Thread(
            target=lane.run,
            kwargs={"start_ms": start, "end_ms": start + 2_000, "stopping": stopping},
        )
        run.start()
        clock.set(start - 101)
        asked.acquire()  # it may have looked at the clock before it was moved
        asked.acquire()
        asked.acquire()
        assert tap.commits == []
        clock.set(start - 100)
        outlet.wait_for("overdue")
        told.set()
        run.join()
    assert outlet.early == []
    assert remaining(tap.store, topic) == 0


def test_nothing_is_published_before_the_clock_says_so(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock, outlet = chronoline_clock, Outlet(chronoline_clock)
    now = clock.now_ms()
    batch = [NewMessage(id=f"m{number}", due=now + 10 * number) for number in range(1, 11)]
    store.create(topic.uid, batch, now_ms=now)
    with publishing(store, topic, outlet, clock=clock):
        wait_until(lambda: store.lookup(topic.uid, ["m10"])["m10"].lock_consumer is not None)
        for number in range(1, 11):
            clock.advance(10)
            outlet.wait_for(f"m{number}")
            assert len(outlet.messages) == number
    assert outlet.early == []


def test_a_timing_advance_is_how_early_it_may_be(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock, outlet = chronoline_clock, Outlet(chronoline_clock)
    outlet.advance_ms = 50
    now = clock.now_ms()
    store.create(topic.uid, [NewMessage(id="a", due=now + 120)], now_ms=now)
    with publishing(store, topic, outlet, clock=clock, timing_advance_ms=50):
        wait_until(lambda: store.lookup(topic.uid, ["a"])["a"].lock_consumer is not None)
        clock.advance(69)
        assert outlet.messages == []
        clock.advance(1)
        outlet.wait_for("a")
    assert outlet.early == []


def test_sleeping_lane_wakes_for_a_near_message(store: Store, topic: Topic, outlet: Outlet) -> None:
    with publishing(store, topic, outlet):
        create(store, topic, "far", in_ms=HOUR_MS)
        for number in range(10):
            create(store, topic, f"m{number}", in_ms=number % 3 * 60)
            outlet.wait_for(f"m{number}")
    assert outlet.counts() == {f"m{number}": 1 for number in range(10)}
    assert outlet.early == []
    assert remaining(store, topic) == 1


def test_message_created_by_another_store(
    store: Store, url: str, topic: Topic, outlet: Outlet
) -> None:
    if not store.capabilities.shared:
        pytest.skip("memory is not shared: capabilities.shared is false")
    with open_store(url) as other, publishing(store, topic, outlet):
        for number in range(5):
            create(other, topic, f"m{number}", in_ms=number % 2 * 150)
            outlet.wait_for(f"m{number}")
    assert outlet.early == []
    assert outlet.counts() == {f"m{number}": 1 for number in range(5)}


# Several windows


def test_one_window_after_another_by_the_same_lane(
    store: Store, topic: Topic, outlet: Outlet
) -> None:
    now = now_ms()
    ids = [f"m{number}" for number in range(400)]
    batch = [NewMessage(id=each, due=now + 2 * place) for place, each in enumerate(ids)]
    store.create(topic.uid, batch, now_ms=now)
    reports = []
    with lane_of(store, topic, outlet) as lane:
        for start in range(now, now + 800, 200):
            reports.append(lane.run(start_ms=start, end_ms=start + 200, stopping=lambda: False))
        rest = Serving(lane, now + 800, now + MINUTE_MS)  # for what a slow machine left
        outlet.wait_for(*ids)
        reports.append(rest.stop())
    assert sum(report.fired for report in reports) == 400
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert outlet.early == []
    assert remaining(store, topic) == 0


def test_window_handover_loses_and_repeats_nothing(
    store: Store, topic: Topic, outlet: Outlet
) -> None:
    now = now_ms()
    ids = [f"m{number}" for number in range(1_000)]
    batch = [NewMessage(id=each, due=now + 200 + place) for place, each in enumerate(ids)]
    store.create(topic.uid, batch, now_ms=now)
    lanes = [lane_of(store, topic, outlet, consumer=f"node/{number}") for number in range(2)]
    # Each is up before the window of the other is over; the last one is long, for slow machines.
    windows = [
        [(now, now + 400), (now + 800, now + 1_000)],
        [(now + 400, now + 800), (now + 1_000, now + MINUTE_MS)],
    ]
    told = threading.Event()
    fired: list[int] = []

    def serve(place: int) -> None:
        for start, end in windows[place]:
            fired.append(lanes[place].run(start_ms=start, end_ms=end, stopping=told.is_set).fired)
        lanes[place].close()

    threads = [threading.Thread(target=serve, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    outlet.wait_for(*ids)
    told.set()
    for thread in threads:
        thread.join()
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert outlet.early == []
    assert sum(fired) == 1_000
    assert remaining(store, topic) == 0


# A window that is moved


def test_moved_end_serves_what_falls_due_later(store: Store, topic: Topic, outlet: Outlet) -> None:
    now = now_ms()
    end = now + 2_000
    store.create(topic.uid, [NewMessage(id="a", due=end + 100)], now_ms=now)
    with lane_of(store, topic, outlet) as lane:
        window = Serving(lane, now, end)
        window.wait_for_a_round()
        lane.move_window(now, end + MINUTE_MS)
        outlet.wait_for("a")
        lane.move_window(now, now_ms())
        assert window.report() == LaneReport(fired=1)
        lane.move_window(now, end + MINUTE_MS)  # it is over: nothing happens
    assert outlet.early == []
    assert remaining(store, topic) == 0


def test_moved_start_serves_at_once(store: Store, topic: Topic, outlet: Outlet) -> None:
    now = now_ms()
    create(store, topic, "a", in_ms=0)
    with lane_of(store, topic, outlet) as lane:
        window = Serving(lane, now + HOUR_MS, now + 2 * HOUR_MS)
        window.wait_for_a_round()
        assert outlet.messages == []
        lane.move_window(0, now + HOUR_MS)
        outlet.wait_for("a")
        window.stop()
    assert remaining(store, topic) == 0


# Wrong arguments


@pytest.mark.parametrize("wrong", [{"consumer": ""}, {"hold_ms": 5}, {"retry_ms": 0}])
def test_wrong_arguments_are_refused_at_once(
    store: Store, topic: Topic, outlet: Outlet, wrong: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        lane_of(store, topic, outlet, **wrong)


def test_a_window_must_end_after_its_start(store: Store, topic: Topic, outlet: Outlet) -> None:
    with lane_of(store, topic, outlet) as lane, pytest.raises(InvalidInput, match="before its"):
        lane.run(start_ms=1_000, end_ms=1_000, stopping=lambda: False)


def test_a_lane_serves_one_window_at_a_time(store: Store, topic: Topic, outlet: Outlet) -> None:
    now = now_ms()
    create(store, topic, "a", in_ms=0)
    with lane_of(store, topic, outlet) as lane:
        window = Serving(lane, now, now + MINUTE_MS)
        outlet.wait_for("a")
        with pytest.raises(InvalidInput, match="runs already"):
            lane.run(start_ms=now, end_ms=now + MINUTE_MS, stopping=lambda: False)
        window.stop()
    assert waiting(store, topic) == 0


# Changes during a window


def test_clock_rollback_ends_the_window(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    now = chronoline_clock.now_ms()
    with lane_of(store, topic, Outlet(chronoline_clock), clock=chronoline_clock) as lane:
        serving = Serving(lane, now, now + MINUTE_MS)
        serving.wait_for_a_round()
        chronoline_clock.set(now - MINUTE_MS)
        assert serving.report() == LaneReport()


def test_added_buckets_are_served_in_the_same_window(
    store: Store, topic: Topic, outlet: Outlet
) -> None:
    half = topic.settings.buckets // 2
    ids = [f"m{number}" for number in range(50)]
    create(store, topic, *ids, in_ms=-10)
    mine = [each for each in ids if bucket_of(each, topic.settings.buckets) < half]
    now = now_ms()
    with lane_of(store, topic, outlet, ranges=[BucketRange(0, half)]) as lane:
        serving = Serving(lane, now, now + HOUR_MS)
        outlet.wait_for(*mine)
        serving.wait_for_a_round()
        assert set(outlet.counts()) == set(mine)
        lane.cover(topic.all_buckets)
        outlet.wait_for(*ids)
        serving.stop()
    assert outlet.counts() == dict.fromkeys(ids, 1)
