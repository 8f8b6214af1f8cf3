"""Handing out what is due without a server."""

import pytest

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.store import (
    LeasedMessage,
    NewMessage,
    Refusal,
    Topic,
    TopicSettings,
    raise_for_refused,
)
from chronoline.testing import (
    ManualClock,
    MemoryStore,
    advance_until_idle,
    assert_not_scheduled,
    assert_scheduled,
    deliver_due,
    scheduled,
)


@pytest.fixture
def topic(chronoline_store: MemoryStore, chronoline_clock: ManualClock) -> Topic:
    settings = TopicSettings(max_attempts=3, default_lease_ms=5_000)
    return chronoline_store.create_topic("work", settings, now_ms=chronoline_clock.now_ms())


@pytest.fixture
def store(
    chronoline_store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> MemoryStore:
    """Messages that fall due after 0, 1000 and 2000 ms, made in another order."""
    messages = [
        NewMessage(id=str(after_ms), due=chronoline_clock.now_ms() + after_ms, body=b"hello")
        for after_ms in (1_000, 2_000, 0)
    ]
    raise_for_refused(
        chronoline_store.create(topic.uid, messages, now_ms=chronoline_clock.now_ms())
    )
    return chronoline_store


def fail(leased: LeasedMessage) -> None:
    raise RuntimeError(leased.message.id)


def ids(leased: list[LeasedMessage]) -> list[str]:
    return [each.message.id for each in leased]


def test_due_messages_are_handled_in_order_and_acked(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    chronoline_clock.advance(1_000)
    held: list[tuple[str, bytes | None, int]] = []

    def handle(leased: LeasedMessage) -> None:
        lease_ms = leased.lease.until - chronoline_clock.now_ms()
        held.append((leased.message.id, leased.body, lease_ms))
        assert store.lookup(topic.uid, [leased.lease.id])[leased.lease.id].lock_consumer

    deliveries = deliver_due(store, topic, chronoline_clock, handle)
    assert held == [("0", b"hello", 5_000), ("1000", b"hello", 5_000)]
    assert ids(deliveries.acked) == ["0", "1000"]
    assert (deliveries.retried, deliveries.refused, deliveries.total) == ([], [], 2)
    deliveries.raise_for_retried()
    assert [each.id for each in scheduled(store, topic)] == ["2000"]
    assert deliver_due(store, "work", chronoline_clock, handle).total == 0


def test_message_is_due_at_its_millisecond(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    deliver_due(store, topic, chronoline_clock, id)
    chronoline_clock.advance(999)
    assert deliver_due(store, topic, chronoline_clock, id).total == 0
    chronoline_clock.advance(1)
    assert ids(deliver_due(store, topic, chronoline_clock, id).acked) == ["1000"]


def test_exception_retries_the_message(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    deliveries = deliver_due(store, topic, chronoline_clock, fail, retry_ms=10)
    ((leased, error),) = deliveries.retried
    assert (leased.message.id, str(error), deliveries.acked) == ("0", "0", [])
    with pytest.raises(RuntimeError, match="0"):
        deliveries.raise_for_retried()
    again = assert_scheduled(store, topic, id="0", due=chronoline_clock.now_ms() + 10)
    assert again.message.attempts == 1
    assert again.message.lock_consumer is None


def test_failed_assertion_reaches_the_test(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    def handle(leased: LeasedMessage) -> None:
        assert leased.body == b"other"

    with pytest.raises(AssertionError, match="other"):
        deliver_due(store, topic, chronoline_clock, handle)
    assert_scheduled(store, topic, id="0", due=chronoline_clock.now_ms() + 1_000)


def test_message_scheduled_by_a_handler_is_delivered(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    def handle(leased: LeasedMessage) -> None:
        now_ms = chronoline_clock.now_ms()
        if leased.message.id == "0":
            store.create(topic.uid, [NewMessage(id="next", due=now_ms)], now_ms=now_ms)

    assert ids(deliver_due(store, topic, chronoline_clock, handle).acked) == ["0", "next"]


def test_endless_delivery_is_stopped(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronoline.testing.delivery.MOST_DELIVERIES", 50)

    def handle(leased: LeasedMessage) -> None:
        now_ms = chronoline_clock.now_ms()
        again = NewMessage(id=leased.message.id + "+", due=now_ms)
        store.create(topic.uid, [again], now_ms=now_ms)

    with pytest.raises(ChronolineError, match="'work' has no end after 50 deliveries"):
        deliver_due(store, topic, chronoline_clock, handle)


def test_handler_that_outlives_its_lease_loses_it(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    slow = ["0"]

    def handle(leased: LeasedMessage) -> None:
        if leased.message.id in slow:
            slow.clear()
            chronoline_clock.advance(5_000)

    deliveries = deliver_due(store, topic, chronoline_clock, handle)
    assert [(each.id, each.refusal) for each in deliveries.refused] == [("0", Refusal.LAPSED)]
    assert sorted(ids(deliveries.acked)) == ["0", "1000", "2000"]
    assert [each.redelivered for each in deliveries.acked if each.message.id == "0"] == [True]


def test_handler_may_settle_its_lease(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    def handle(leased: LeasedMessage) -> None:
        now_ms = chronoline_clock.now_ms()
        store.release(topic.uid, [(leased.lease, now_ms + 60_000)], now_ms=now_ms)

    deliveries = deliver_due(store, topic, chronoline_clock, handle)
    assert deliveries.acked == []
    assert [each.id for each in deliveries.refused] == ["0"]
    released = assert_scheduled(store, topic, id="0", due=chronoline_clock.now_ms() + 60_000)
    assert released.message.attempts == 0


def test_expired_message_is_reported_as_refused(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    now_ms = chronoline_clock.now_ms()
    new = NewMessage(id="mortal", due=now_ms + 1, expires=now_ms + 500)
    store.create(topic.uid, [new], now_ms=now_ms)
    chronoline_clock.advance(1_000)
    deliveries = deliver_due(store, topic, chronoline_clock, id)
    assert [each.id for each in deliveries.refused] == ["mortal"]
    assert ids(deliveries.acked) == ["0", "1000"]


def test_until_idle_sets_the_clock_to_each_due(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    start_ms = chronoline_clock.now_ms()
    seen: list[tuple[str, int]] = []

    def handle(leased: LeasedMessage) -> None:
        seen.append((leased.message.id, chronoline_clock.now_ms() - start_ms))
        if len(seen) == 1:
            raise RuntimeError("once")

    deliveries = advance_until_idle(store, topic, chronoline_clock, handle, retry_ms=1_500)
    assert seen == [("0", 0), ("1000", 1_000), ("0", 1_500), ("2000", 2_000)]
    assert ids(deliveries.acked) == ["1000", "0", "2000"]
    assert chronoline_clock.now_ms() - start_ms == 2_000
    assert_not_scheduled(store, topic)


def test_until_idle_ends_failures_as_dead_letters(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    deliveries = advance_until_idle(store, topic, chronoline_clock, fail)
    assert len(deliveries.retried) == 9
    assert len(store.dead_letters(topic.uid, limit=10)) == 3


def test_until_idle_never_turns_the_clock_back(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    now_ms = chronoline_clock.advance(10_000)
    advance_until_idle(store, topic, chronoline_clock, id)
    assert chronoline_clock.now_ms() == now_ms


def test_bad_arguments_are_refused_before_leasing(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    async def handle(leased: LeasedMessage) -> None: ...

    with pytest.raises(InvalidInput, match="asynchronous"):
        deliver_due(store, topic, chronoline_clock, handle)
    with pytest.raises(InvalidInput, match="at least 10, not 9"):
        deliver_due(store, topic, chronoline_clock, id, retry_ms=9)
    assert all(each.message.lock_consumer is None for each in scheduled(store, topic))


def test_handler_that_returns_an_awaitable_is_refused(
    store: MemoryStore, topic: Topic, chronoline_clock: ManualClock
) -> None:
    async def handle(leased: LeasedMessage) -> None: ...

    made = []

    def disguised(leased: LeasedMessage) -> object:
        made.append(handle(leased))
        return made[-1]

    with pytest.raises(InvalidInput, match="wrap it"):
        deliver_due(store, topic, chronoline_clock, disguised)
    made[0].close()
    assert deliver_due(store, topic, chronoline_clock, lambda leased: None).total == 1
