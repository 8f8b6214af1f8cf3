"""Outputs that are slow, fail, or refuse a message."""

import threading
from collections.abc import Sequence

import pytest

from chronoline.core.errors import OutputUnavailable, Unpublishable
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.output_gate import DEFAULT_SHUT_MS, OutputGate
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneReport
from chronoline.delivery.publishing_lane import Confirm, Handover
from chronoline.stores.contract import Store
from chronoline.testing import ManualClock
from tests.core.leased import leased
from tests.delivery.inbox import create, now_ms, remaining, said, wait_until
from tests.delivery.outlet import MINUTE_MS, Outlet, Serving, lane_of, near_the_end, publishing, put
from tests.delivery.stores import PATIENCE_S, Tap

GONE = OutputUnavailable("the broker is gone")
HOLD_MS = 2_000


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


def is_free(store: Store, topic: Topic, *ids: str) -> bool:
    found = store.lookup(topic.uid, ids).values()
    return all(each.lock_consumer is None for each in found)


# Without waiting


def test_due_messages_do_not_wait_for_confirmations(store: Store, topic: Topic) -> None:
    outlet = Outlet(patient=True)
    ids = [f"m{number}" for number in range(300)]
    create(store, topic, *ids, in_ms=50)
    with publishing(store, topic, outlet) as window:
        outlet.wait_for(*ids)
        assert remaining(store, topic) == 300
        assert outlet.confirm() == 300
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=300)
    assert outlet.counts() == dict.fromkeys(ids, 1)


def test_first_confirmation_from_any_thread_counts(store: Store, topic: Topic) -> None:
    confirms: list[Confirm] = []
    published = threading.Event()

    def publish(_: LeasedMessage, confirm: Confirm) -> None:
        confirms.append(confirm)
        published.set()

    create(store, topic, "a", in_ms=0)
    with publishing(store, topic, publish) as window:
        assert published.wait(PATIENCE_S)
        for answer in (None, GONE, None):
            thread = threading.Thread(target=confirms[0], args=(answer,))
            thread.start()
            thread.join()
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=1)
    assert len(confirms) == 1


def test_slow_output_bounds_reservations(store: Store, topic: Topic) -> None:
    outlet = Outlet(patient=True)
    ids = [f"m{number}" for number in range(100)]
    create(store, topic, *ids, in_ms=0)
    with publishing(store, topic, outlet, max_in_flight=8) as window:
        for done in (0, 8):
            outlet.wait_for_number(done + 8)
            window.wait_for_a_round()
            assert len(outlet.messages) == done + 8
            assert len(store.select_held(topic.uid, "node/1", limit=100).messages) == 8
            outlet.confirm()
        outlet.patient = False
        outlet.confirm()
        outlet.wait_for(*ids)
        assert window.stop() == LaneReport(fired=100)
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert remaining(store, topic) == 0


def test_blocked_output_stops_only_its_own_lane(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet, other = Outlet(clock), Outlet(clock)
    begun, go_on = threading.Event(), threading.Event()

    def block(message: LeasedMessage, confirm: Confirm) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        outlet(message, confirm)

    put(store, topic, "stuck", clock=clock)
    with publishing(store, topic, block, hold_ms=HOLD_MS, clock=clock) as window:
        assert begun.wait(PATIENCE_S)
        clock.advance(HOLD_MS // 4)
        put(store, topic, "behind", clock=clock)
        window.wait_for_a_round()
        near_the_end(clock, store, topic, "stuck", hold_ms=HOLD_MS)
        with publishing(store, topic, other, consumer="other/1", clock=clock):
            other.wait_for("behind")
            wait_until(lambda: remaining(store, topic) == 1)
        go_on.set()
        outlet.wait_for("stuck")
        assert window.stop() == LaneReport(fired=1)
    assert other.counts() == {"behind": 1}
    assert outlet.counts() == {"stuck": 1}
    assert {each.message.attempts for each in other.messages} == {0}


def test_messages_behind_a_blocked_one_keep_their_leases(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock)
    begun, go_on = threading.Event(), threading.Event()

    def block_once(message: LeasedMessage, confirm: Confirm) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE_S)
        outlet(message, confirm)

    ids = [f"m{number}" for number in range(20)]
    put(store, topic, *ids, clock=clock)
    with publishing(store, topic, block_once, hold_ms=HOLD_MS, clock=clock) as window:
        assert begun.wait(PATIENCE_S)
        for _ in range(3):
            near_the_end(clock, store, topic, *ids, hold_ms=HOLD_MS)
        go_on.set()
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=20)
    assert outlet.counts() == dict.fromkeys(ids, 1)
    assert {each.redelivered for each in outlet.messages} == {False}


def test_messages_behind_a_blocked_one_are_not_published_without_a_lease(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock)
    begun, go_on = threading.Event(), threading.Event()

    def block_once(message: LeasedMessage, confirm: Confirm) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE_S)
        outlet(message, confirm)

    ids = [f"m{number}" for number in range(20)]
    put(store, topic, *ids, clock=clock)
    with publishing(
        store, topic, block_once, hold_ms=HOLD_MS, patience_ms=1, clock=clock
    ) as window:
        assert begun.wait(PATIENCE_S)
        for _ in ("extended", "given back"):
            near_the_end(clock, store, topic, *ids, hold_ms=HOLD_MS)
        assert is_free(store, topic, *ids)
        go_on.set()
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=21, given_back=20)
    # The one that blocked was published too late; the others only under their second leases.
    (blocked, *_) = outlet.messages
    assert outlet.counts() == dict.fromkeys(ids, 1) | {blocked.lease.id: 2}
    assert {each.message.attempts for each in outlet.messages} == {0}


@pytest.mark.parametrize(("error", "wakes"), [(None, 1), (GONE, 1_010)])
def test_many_confirmations_wake_once_and_errors_at_once(
    store: Store,
    topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    wakes: int,
) -> None:
    """Reads private members: no public call shows when the storage thread wakes."""
    woken: list[None] = []
    lane = lane_of(store, topic, Outlet())
    # Its wake-ups are counted.
    monkeypatch.setattr(lane._lane, "wake", lambda: woken.append(None))
    for number in range(1_010):
        # An output calls it, from any thread.
        Handover(leased(f"m{number}", due=0), lane._note)(error)
    assert len(woken) == wakes


# The output as a whole


def test_unavailable_output_is_probed_without_counting_attempts(
    tap: Tap, topic: Topic, outlet: Outlet
) -> None:
    ids = [f"m{number}" for number in range(50)]
    create(tap.store, topic, *ids, in_ms=0)
    held: list[int] = []

    def fail(_: LeasedMessage) -> BaseException:
        if len(outlet.messages) > 50:
            held.append(len(tap.store.select_held(topic.uid, "node/1", limit=100).messages))
        return GONE

    outlet.answer = fail
    with publishing(tap, topic, outlet) as window:
        outlet.wait_for_number(53)
        outlet.answer = lambda _: None
        wait_until(lambda: remaining(tap.store, topic) == 0)
        report = window.stop()
    assert set(held) == {1}
    assert report == LaneReport(fired=50, given_back=len(outlet.messages) - 50)
    assert {each.message.attempts for each in outlet.messages} == {0}


def test_held_messages_are_published_when_the_output_returns(
    tap: Tap, topic: Topic, outlet: Outlet
) -> None:
    outlet.answer = lambda _: GONE
    create(tap.store, topic, "first", in_ms=0)
    ids = [f"m{number}" for number in range(20)]
    create(tap.store, topic, *ids, in_ms=300)
    with publishing(tap, topic, outlet, reserve_ahead_ms=2_000) as window:
        outlet.wait_for("first")
        outlet.answer = lambda _: None
        outlet.wait_for(*ids)
        wait_until(lambda: remaining(tap.store, topic) == 0)
        assert window.stop().fired == 21
    assert {each: outlet.counts()[each] for each in ids} == dict.fromkeys(ids, 1)
    assert outlet.early == []


def test_an_output_that_never_answers_costs_no_attempt(
    store: Store,
    topic: Topic,
    chronoline_clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock, patient=True)
    put(store, topic, "a", clock=clock)
    with publishing(store, topic, outlet, hold_ms=HOLD_MS, patience_ms=1, clock=clock) as window:
        outlet.wait_for("a")
        for _ in ("extended", "given back"):
            near_the_end(clock, store, topic, "a", hold_ms=HOLD_MS)
        assert is_free(store, topic, "a")
        clock.advance(DEFAULT_SHUT_MS)
        outlet.wait_for_number(2)
        outlet.confirm()  # of both: the first one comes too late
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=2, given_back=1)
    assert {each.message.attempts for each in outlet.messages} == {0}
    assert any("did not confirm message 'a'" in each for each in said(caplog))
    assert any("the ack of message 'a' came too late" in each for each in said(caplog))


def test_an_error_that_comes_too_late_changes_nothing(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock = chronoline_clock
    outlet = Outlet(clock, patient=True)
    answers = iter([ValueError("too late"), None])
    outlet.answer = lambda _: next(answers)
    put(store, topic, "a", clock=clock)
    with publishing(store, topic, outlet, hold_ms=HOLD_MS, patience_ms=1, clock=clock) as window:
        outlet.wait_for("a")
        for _ in ("extended", "given back"):
            near_the_end(clock, store, topic, "a", hold_ms=HOLD_MS)
        assert is_free(store, topic, "a")
        clock.advance(DEFAULT_SHUT_MS)
        outlet.wait_for_number(2)
        outlet.confirm()
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=1, given_back=1)


def test_bodies_in_flight_stay_within_the_byte_bound(store: Store, topic: Topic) -> None:
    outlet = Outlet(patient=True)
    now = now_ms()
    flood = [NewMessage(id=f"m{number}", due=now, body=bytes(100)) for number in range(20)]
    store.create(topic.uid, flood, now_ms=now)
    with lane_of(store, topic, outlet) as lane:
        # Its bytes are read.
        agenda = lane._agenda
        # No setting: a small bound is reached soon.
        agenda._most_bytes = 1_000
        agenda.largest_bytes = 100
        window = Serving(lane, now, now + MINUTE_MS)
        outlet.wait_for_number(10)
        window.wait_for_a_round()
        assert len(outlet.messages) == 10
        assert agenda.away_bytes == 1_000
        outlet.patient = False
        outlet.confirm()
        outlet.wait_for(*(each.id for each in flood))
        assert window.stop() == LaneReport(fired=20)
    assert agenda.away_bytes == agenda.held_bytes == 0


def test_window_without_output_releases_its_messages(
    store: Store, topic: Topic, outlet: Outlet
) -> None:
    outlet.answer = lambda _: GONE
    now = now_ms()
    batch = [NewMessage(id=f"m{number}", due=now + 10 * number) for number in range(40)]
    store.create(topic.uid, batch, now_ms=now)
    with lane_of(store, topic, outlet, hold_ms=MINUTE_MS, reserve_ahead_ms=1_000) as lane:
        report = Serving(lane, now, now + 400).report()
    assert report.fired == 0
    assert report.given_back >= 40
    after = store.lookup(topic.uid, [each.id for each in batch])
    assert {(each.lock_consumer, each.attempts) for each in after.values()} == {(None, 0)}
    assert len(after) == 40


# A single message


@pytest.mark.parametrize("raised", [True, False])
def test_refused_message_is_retried_and_then_dead(
    store: Store, outlet: Outlet, raised: bool
) -> None:
    topic = store.create_topic("poisoned", TopicSettings(max_attempts=3), now_ms=now_ms())

    def publish(message: LeasedMessage, confirm: Confirm) -> None:
        outlet.messages.append(message)
        if message.lease.id != "poison":
            confirm(None)
        elif raised:
            raise Unpublishable("too large")
        else:
            confirm(Unpublishable("too large"))

    create(store, topic, "a", "poison", "b", in_ms=0)
    with publishing(store, topic, publish, retry_ms=20) as window:
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=2, failed=3)
    (dead,) = store.dead_letters(topic.uid, limit=10)
    assert (dead.message.id, dead.reason) == ("poison", "attempts")
    assert outlet.counts() == {"a": 1, "b": 1, "poison": 3}


def test_expired_message_is_not_published(store: Store, topic: Topic, outlet: Outlet) -> None:
    outlet.patient = True
    now = now_ms()
    first = NewMessage(id="first", due=now)
    store.create(topic.uid, [first], now_ms=now)
    with publishing(store, topic, outlet, hold_ms=MINUTE_MS) as window:
        outlet.wait_for("first")
        outlet.answer = lambda _: GONE
        outlet.confirm()
        wait_until(lambda: store.lookup(topic.uid, ["first"])["first"].lock_consumer is None)
        expiring = NewMessage(id="expiring", due=now_ms(), expires=now_ms() + 1)
        store.create(topic.uid, [expiring], now_ms=now_ms())
        outlet.patient, outlet.answer = False, lambda _: None
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
        wait_until(lambda: remaining(store, topic) == 0)
        window.stop()
    assert "expiring" not in outlet.counts()


# Receipts


def test_a_receipt_that_fails_costs_nothing(store: Store, topic: Topic, outlet: Outlet) -> None:
    def fail(_: object) -> None:
        raise ValueError("no")

    create(store, topic, "a", "b", in_ms=0)
    with publishing(store, topic, outlet, on_fired=fail) as window:
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=2)


def test_only_confirmed_messages_have_a_receipt(store: Store, topic: Topic, outlet: Outlet) -> None:
    answers = iter([GONE, ValueError("no"), None])
    outlet.answer = lambda _: next(answers)
    receipts: list[str] = []

    def on_fired(fired: Sequence[tuple[LeasedMessage, int]]) -> None:
        assert remaining(store, topic) == 1  # it is deleted after its receipt
        for message, fired_ms in fired:
            assert fired_ms >= message.message.due
            receipts.append(message.lease.id)

    create(store, topic, "a", in_ms=0)
    with publishing(store, topic, outlet, on_fired=on_fired, retry_ms=20) as window:
        wait_until(lambda: remaining(store, topic) == 0)
        assert window.stop() == LaneReport(fired=1, failed=1, given_back=1)
    assert receipts == ["a"]


def test_receipt_has_the_time_of_the_acknowledgement(
    store: Store, topic: Topic, chronoline_clock: ManualClock
) -> None:
    clock, due = chronoline_clock, chronoline_clock.now_ms()
    outlet = Outlet(clock, patient=True)
    late_ms: list[int] = []

    def on_fired(fired: Sequence[tuple[LeasedMessage, int]]) -> None:
        late_ms.extend(fired_ms - message.message.due for message, fired_ms in fired)

    put(store, topic, "a", clock=clock)
    with publishing(store, topic, outlet, clock=clock, on_fired=on_fired):
        outlet.wait_for("a")
        clock.advance(27)
        outlet.confirm()
        wait_until(lambda: remaining(store, topic) == 0)
    assert clock.now_ms() == due + 27
    assert late_ms == [27]


# Consecutive windows


@pytest.mark.parametrize("left_on_trial", [False, True])
def test_lane_starts_with_the_given_output_gate(
    store: Store, topic: Topic, left_on_trial: bool
) -> None:
    gate = OutputGate()
    gate.failed(now_ms() - DEFAULT_SHUT_MS)
    if left_on_trial:  # the window before ended without an answer
        gate.passed()
    outlet = Outlet(patient=True)
    ids = [f"m{number}" for number in range(20)]
    create(store, topic, *ids, in_ms=0)
    with publishing(store, topic, outlet, gate=gate) as window:
        outlet.wait_for_number(1)
        window.wait_for_a_round()
        assert len(outlet.messages) == 1
        assert len(store.select_held(topic.uid, "node/1", limit=100).messages) == 1
        outlet.patient = False
        outlet.confirm()
        outlet.wait_for(*ids)
        assert window.stop() == LaneReport(fired=20)
    assert gate.is_open
    assert outlet.counts() == dict.fromkeys(ids, 1)
