"""Publishing lanes stop, are interrupted, and take over from dead lanes."""

import itertools
import threading

import pytest

from chronoline.core.errors import StoreClosed, TopicNotFound
from chronoline.core.message import LeasedMessage
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneReport
from chronoline.delivery.publishing_lane import Confirm
from chronoline.stores.contract import Store
from chronoline.testing import ManualClock
from tests.delivery.inbox import HOUR_MS, create, now_ms, remaining, said, wait_until, waiting
from tests.delivery.outlet import MINUTE_MS, Outlet, Serving, lane_of, near_the_end, publishing, put
from tests.delivery.stores import PATIENCE_S


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


# Stopping


def test_stop_fires_messages_due_within_reach(store: Store, topic: Topic, outlet: Outlet) -> None:
    create(store, topic, "soon", in_ms=700)
    with publishing(store, topic, outlet, reserve_ahead_ms=1_000) as window:
        wait_until(lambda: waiting(store, topic) == 0)
        assert window.stop() == LaneReport(fired=1)
    assert outlet.counts() == {"soon": 1}
    assert outlet.early == []
    assert remaining(store, topic) == 0


def test_stop_reserves_nothing_more(store: Store, topic: Topic) -> None:
    outlet = Outlet(patient=True)
    told, asked = threading.Event(), threading.Event()
    reports: list[LaneReport] = []

    def stopping() -> bool:
        if told.is_set():
            asked.set()
        return told.is_set()

    def run() -> None:
        now = now_ms()
        reports.append(lane.run(start_ms=now, end_ms=now + MINUTE_MS, stopping=stopping))

    create(store, topic, "a", in_ms=0)
    with lane_of(store, topic, outlet, hold_ms=HOUR_MS) as lane:
        thread = threading.Thread(target=run)
        thread.start()
        outlet.wait_for("a")
        told.set()
        assert asked.wait(PATIENCE_S)
        create(store, topic, "b", in_ms=0)
        outlet.confirm()
        thread.join(PATIENCE_S)
    assert reports == [LaneReport(fired=1)]
    assert outlet.counts() == {"a": 1}
    assert store.lookup(topic.uid, ["b"])["b"].lock_consumer is None


def test_stop_waits_for_messages_in_flight(store: Store, topic: Topic) -> None:
    outlet = Outlet(patient=True)
    create(store, topic, "a", in_ms=0)
    with publishing(store, topic, outlet) as window:
        outlet.wait_for("a")
        stopping = threading.Thread(target=window.stop)
        stopping.start()
        assert remaining(store, topic) == 1
        outlet.confirm()
        stopping.join(PATIENCE_S)
        assert window.report() == LaneReport(fired=1)
    assert remaining(store, topic) == 0


def test_window_waits_for_confirmations_and_keeps_their_leases(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock, patient=True)
    put(store, topic, "a", clock=clock)
    now = clock.now_ms()
    with lane_of(store, topic, outlet, hold_ms=2_000, clock=clock) as lane:
        window = Serving(lane, now, now + 200)
        outlet.wait_for("a")
        near_the_end(clock, store, topic, "a", hold_ms=2_000)
        outlet.confirm()
        assert window.report() == LaneReport(fired=1)
    assert remaining(store, topic) == 0


def test_window_gives_back_what_its_output_never_answers(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock, patient=True)
    put(store, topic, "a", clock=clock)
    now = clock.now_ms()
    with lane_of(store, topic, outlet, hold_ms=2_000, patience_ms=1, clock=clock) as lane:
        window = Serving(lane, now, now + 200)
        outlet.wait_for("a")
        for _ in ("extended", "given back"):
            near_the_end(clock, store, topic, "a", hold_ms=2_000)
        assert window.report() == LaneReport(given_back=1)
    after = store.lookup(topic.uid, ["a"])["a"]
    assert (after.lock_consumer, after.attempts) == (None, 0)


def test_no_threads_are_left(store: Store, topic: Topic, outlet: Outlet) -> None:
    before = set(threading.enumerate())
    create(store, topic, "a", in_ms=0)
    with publishing(store, topic, outlet) as window:
        outlet.wait_for("a")
        window.stop()
        assert set(threading.enumerate()) <= before


def test_interrupt_releases_held_messages(store: Store, topic: Topic) -> None:
    def interrupted(message: LeasedMessage, confirm: Confirm) -> None:
        if message.lease.id != "first":
            raise KeyboardInterrupt
        confirm(None)

    now = now_ms()
    create(store, topic, "first", in_ms=-10)
    create(store, topic, *(f"m{number}" for number in range(10)), in_ms=0)
    create(store, topic, "later", in_ms=20_000)
    with (
        lane_of(store, topic, interrupted, hold_ms=HOUR_MS, reserve_ahead_ms=30_000) as lane,
        pytest.raises(KeyboardInterrupt),
    ):
        lane.run(start_ms=now, end_ms=now + MINUTE_MS, stopping=lambda: False)
    left = store.lookup(topic.uid, ["first", "later", *(f"m{number}" for number in range(10))])
    assert len(left) == 11
    assert {(each.lock_consumer, each.attempts) for each in left.values()} == {(None, 0)}


def test_failed_stop_check_is_repeated(store: Store, topic: Topic, outlet: Outlet) -> None:
    asked = itertools.count()

    def stopping() -> bool:
        number = next(asked)
        if number == 1:
            raise RuntimeError("no")
        return number == 2

    now = now_ms()
    create(store, topic, "a", in_ms=0)
    with lane_of(store, topic, outlet) as lane:
        assert lane.run(start_ms=now, end_ms=now + MINUTE_MS, stopping=stopping).fired == 1


@pytest.mark.parametrize("how", [TopicNotFound, StoreClosed])
def test_deleted_topic_or_closed_store_ends_the_window(
    store: Store, topic: Topic, outlet: Outlet, how: type[Exception]
) -> None:
    before = set(threading.enumerate())
    create(store, topic, "a", in_ms=0)
    with publishing(store, topic, outlet) as window:
        outlet.wait_for("a")
        wait_until(lambda: remaining(store, topic) == 0)
        create(store, topic, "b", in_ms=300)
        if how is TopicNotFound:
            store.delete_topic(topic.uid, now_ms=now_ms())
        else:
            store.close()
        with pytest.raises(how):
            window.report()
    assert set(threading.enumerate()) <= before
    assert outlet.counts() == {"a": 1}


# Taking over


def test_takeover_names_the_dead_lane(
    store: Store, topic: Topic, outlet: Outlet, caplog: pytest.LogCaptureFixture
) -> None:
    create(store, topic, "a", "b", in_ms=0)
    taken = store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="node-7/12.0",
        limit=10,
        lease_ms=300,
        now_ms=now_ms(),
    )
    assert len(taken.leased) == 2
    create(store, topic, "c", in_ms=0)
    with publishing(store, topic, outlet) as window:
        outlet.wait_for("a", "b", "c")
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=3, taken_over=2)
    assert outlet.counts() == {"a": 1, "b": 1, "c": 1}
    said(caplog)
    suspicions = [record for record in caplog.records if "suspected" in record.msg]
    assert all("node-7/12.0" in suspicion.getMessage() for suspicion in suspicions)
    assert sum(vars(suspicion)["count"] for suspicion in suspicions) == 2


def test_takeover_by_two_lanes_publishes_each_message_once(store: Store, topic: Topic) -> None:
    outlet = Outlet()
    ids = [f"m{number}" for number in range(200)]
    create(store, topic, *ids, in_ms=0)
    store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="dead/1",
        limit=1_000,
        lease_ms=300,
        now_ms=now_ms(),
    )
    with (
        publishing(store, topic, outlet, consumer="node/1") as one,
        publishing(store, topic, outlet, consumer="node/2") as other,
    ):
        outlet.wait_for(*ids)
        wait_until(lambda: remaining(store, topic) == 0)
        reports = [one.stop(), other.stop()]
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert sum(report.taken_over for report in reports) == 200
