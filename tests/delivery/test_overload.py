"""Overload without a fault: a store and an output that are slower than a lease double nothing."""

import threading
from collections.abc import Callable

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneReport
from chronoline.stores.contract import Store
from chronoline.testing import ManualClock
from tests.delivery.inbox import Inbox, firing, remaining, said, wait_until
from tests.delivery.outlet import Outlet, near_the_end, publishing, put
from tests.delivery.stores import Tap

HOLD_MS = 2_000
LONG_MS = 3 * HOLD_MS


def slowed(tap: Tap, clock: ManualClock, calls: int, *, after: bool) -> Callable[[], bool]:
    """Each of the next calls of the store takes longer than a lease, before or after it takes effect.

    Returns a function that says whether they are over.
    """
    left = [LONG_MS] * calls

    def take_time(_: str) -> None:
        if left:
            clock.advance(left.pop())

    if after:
        tap.lose = take_time
    else:
        tap.fail = take_time
    return lambda: not left


@pytest.fixture
def few_attempts(store: Store, chronoline_clock: ManualClock) -> Topic:
    """A message that is served a third time is dead."""
    settings = TopicSettings(max_attempts=3)
    return store.create_topic("few", settings, now_ms=chronoline_clock.now_ms())


@pytest.mark.parametrize("after", [True, False])
def test_slow_store_doubles_nothing_and_the_lane_is_on_time_again(
    tap: Tap, few_attempts: Topic, chronoline_clock: ManualClock, after: bool
) -> None:
    clock, topic, store = chronoline_clock, few_attempts, tap.store
    outlet = Outlet(clock, patient=True)
    ids = [f"m{number}" for number in range(20)]
    fired: list[int] = []

    def on_fired(messages: object) -> None:
        assert isinstance(messages, list)
        fired.extend(fired_ms - message.message.due for message, fired_ms in messages)

    put(store, topic, *ids, clock=clock)
    with publishing(tap, topic, outlet, hold_ms=HOLD_MS, clock=clock, on_fired=on_fired) as window:
        outlet.wait_for(*ids)
        are_over = slowed(tap, clock, 6, after=after)
        near_the_end(clock, store, topic, *ids, hold_ms=HOLD_MS)
        outlet.confirm()
        put(store, topic, "late", clock=clock)
        outlet.patient = False
        wait_until(are_over)
        outlet.confirm()
        wait_until(lambda: remaining(store, topic) == 0)
        fired.clear()
        put(store, topic, "on time", clock=clock)
        wait_until(lambda: remaining(store, topic) == 0)
        report = window.stop()
    assert outlet.counts() == dict.fromkeys([*ids, "late", "on time"], 1)
    assert fired == [0]
    assert report.fired == len(ids) + 2
    assert store.dead_letters(topic.uid, limit=10) == []


def test_slow_output_keeps_the_leases_of_what_it_has(
    store: Store, topic: Topic, chronoline_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock = chronoline_clock
    outlet, other = Outlet(clock, patient=True), Outlet(clock)
    ids = [f"m{number}" for number in range(20)]
    put(store, topic, *ids, clock=clock)
    with publishing(store, topic, outlet, hold_ms=HOLD_MS, clock=clock) as window:
        outlet.wait_for(*ids)
        with publishing(store, topic, other, hold_ms=HOLD_MS, consumer="other/1", clock=clock):
            for _ in range(4):  # together longer than two leases
                near_the_end(clock, store, topic, *ids, hold_ms=HOLD_MS)
            wait_until(lambda: any("has confirmed nothing" in each for each in said(caplog)))
            assert outlet.confirm() == len(ids)
            wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=20)
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert not other.messages


def test_lane_that_waits_for_its_output_is_not_doubled_by_its_successor(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet, successor = Outlet(clock, patient=True), Outlet(clock)
    put(store, topic, "a", clock=clock)
    with publishing(store, topic, outlet, hold_ms=HOLD_MS, clock=clock) as window:
        outlet.wait_for("a")
        stopping = threading.Thread(target=window.stop)
        stopping.start()
        with publishing(store, topic, successor, hold_ms=HOLD_MS, consumer="other", clock=clock):
            for _ in range(3):
                near_the_end(clock, store, topic, "a", hold_ms=HOLD_MS)
            outlet.confirm()
            wait_until(lambda: remaining(store, topic) == 0)
        stopping.join()
        assert window.report() == LaneReport(fired=1)
    assert not successor.messages


@pytest.mark.parametrize("after", [True, False])
def test_firing_lane_on_a_slow_store_delivers_once(
    tap: Tap, few_attempts: Topic, chronoline_clock: ManualClock, after: bool
) -> None:
    clock, topic, store = chronoline_clock, few_attempts, tap.store
    entered, go_on = threading.Event(), threading.Event()
    inbox = Inbox(clock)

    def slow(message: LeasedMessage) -> None:
        if not entered.is_set():
            entered.set()
            assert go_on.wait()
        inbox(message)

    put(store, topic, "a", "b", "c", clock=clock)
    with firing(tap, topic, slow, hold_ms=HOLD_MS, clock=clock, agenda=Agenda()):
        assert entered.wait()
        are_over = slowed(tap, clock, 4, after=after)
        clock.advance(HOLD_MS)
        wait_until(lambda: len(tap.commits) > 1)
        go_on.set()

        def is_done() -> bool:
            clock.advance(10)  # the lane rests between its looks
            return remaining(store, topic) == 0

        wait_until(is_done)
        assert are_over()
    assert inbox.counts() == {"a": 1, "b": 1, "c": 1}
    assert store.dead_letters(topic.uid, limit=10) == []
