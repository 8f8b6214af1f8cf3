"""Slow deliveries: a firing lane extends their leases, and notices lost ones."""

import threading

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.errors import StoreUnavailable
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane import Lane
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
)
from tests.delivery.stores import PATIENCE_S, Tap


def test_slow_delivery_keeps_only_its_own_lease(store: Store, inbox: Inbox) -> None:
    topic = store.create_topic("slow", TopicSettings(max_attempts=2), now_ms=now_ms())
    go_on = threading.Event()
    other = Inbox()

    def slow(message: LeasedMessage) -> None:
        if message.lease.id == "slow":
            assert go_on.wait(PATIENCE_S)
        inbox(message)

    create(store, topic, "slow", in_ms=0)
    create(store, topic, "behind", in_ms=20)
    with firing(store, topic, slow, hold_ms=1_500):
        first = store.lookup(topic.uid, ["slow"])["slow"].version
        wait_until(lambda: store.lookup(topic.uid, ["slow"])["slow"].version > first + 2)
        with firing(store, topic, other, consumer="other"):
            other.wait_for("behind")
            go_on.set()
            inbox.wait_for("slow")
    assert inbox.counts() + other.counts() == {"slow": 1, "behind": 1}
    assert store.dead_letters(topic.uid, limit=10) == []
    assert remaining(store, topic) == 0


def test_stuck_delivery_without_lease_still_blocks_reservations(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    begun, go_on, lost = threading.Event(), threading.Event(), threading.Event()

    def stuck(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    def note(name: str) -> None:
        if name == "extend":
            lost.set()

    tap.fail = times(1_000, "extend", StoreUnavailable("the store is gone"))
    tap.lose = note
    create(tap.store, topic, "slow", in_ms=0)
    with firing(tap, topic, stuck, hold_ms=200):
        assert begun.wait(PATIENCE_S)
        wait_until(lambda: tap.store.lookup(topic.uid, ["slow"])["slow"].ts <= now_ms())
        tap.fail = lambda _: None
        assert lost.wait(PATIENCE_S)
        commits = len(tap.commits)
        create(tap.store, topic, "behind", in_ms=0)
        with firing(tap.store, topic, inbox, consumer="other"):
            inbox.wait_for("slow", "behind")
        assert ("reserve", 1) not in tap.commits[commits:]
        go_on.set()
    assert inbox.counts() == {"slow": 1, "behind": 1}
    assert remaining(tap.store, topic) == 0


def test_message_that_expires_behind_a_slow_delivery_dies(
    store: Store,
) -> None:
    topic = store.create_topic("expiring", TopicSettings(max_attempts=1), now_ms=now_ms())
    now = now_ms()
    batch = [NewMessage(id="slow", due=now), NewMessage(id="b", due=now + 20, expires=now + 250)]
    store.create(topic.uid, batch, now_ms=now)
    agenda = Agenda(reserve_ahead_ms=1_000, max_sleep_ms=HOUR_MS)

    def slow(message: LeasedMessage) -> None:
        assert message.lease.id == "slow"
        wait_until(lambda: now_ms() >= now + 250)

    with firing(store, topic, slow, agenda=agenda, hold_ms=HOUR_MS):
        wait_until(lambda: bool(store.dead_letters(topic.uid, limit=10)))
    (dead,) = store.dead_letters(topic.uid, limit=10)
    assert (dead.message.id, dead.reason, dead.message.attempts) == ("b", "expired", 0)


def test_long_delivery_survives_repeated_extension_failures(
    tap: Tap, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "rest_ms", 100)
    failures = 0
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: LeasedMessage) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    def fail_every_other(name: str) -> None:
        nonlocal failures
        if name == "extend" and tap.commits.count(("extend", 1)) % 2:
            failures += 1
            raise StoreUnavailable("the store is gone")
        if failures == 6:
            go_on.set()

    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=400):
        assert begun.wait(PATIENCE_S)
        tap.fail = fail_every_other
    assert remaining(tap.store, topic) == 0
