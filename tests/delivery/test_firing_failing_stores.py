"""A store that fails, or does not answer, costs a firing lane neither messages nor leases."""

import threading
from collections import Counter

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.message import LeasedMessage
from chronoline.core.topic import Topic
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

UNANSWERED = OutcomeUnknown("the answer was lost")


# Changes that fail


def test_a_store_that_fails_for_a_while_is_survived(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    left = Counter({"reserve": 2, "ack": 2})

    def fail(name: str) -> None:
        if left[name]:
            left[name] -= 1
            raise StoreUnavailable("the store is gone")

    tap.fail = fail
    create(tap.store, topic, "a", "b", in_ms=0)
    with firing(tap, topic, inbox):
        inbox.wait_for("a", "b")
        wait_until(lambda: remaining(tap.store, topic) == 0)
        create(tap.store, topic, "c", in_ms=50)
        inbox.wait_for("c")
    assert not +left
    assert inbox.counts() == {"a": 1, "b": 1, "c": 1}
    assert inbox.early == []


def test_whatever_the_store_raises_no_ack_is_lost(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    tap.fail = times(1, "ack", RuntimeError("a bug"))
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("a")
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


# Changes without an answer


@pytest.mark.parametrize("made", [True, False])
def test_an_unanswered_extension_does_not_cost_the_lease(
    tap: Tap, topic: Topic, inbox: Inbox, made: bool
) -> None:
    def slow(message: LeasedMessage) -> None:
        inbox(message)
        wait_until(lambda: tap.commits.count(("extend", 1)) == 3)

    unanswered = times(1, "extend", UNANSWERED)
    if made:
        tap.lose = unanswered
    else:
        tap.fail = unanswered
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=2_000):
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


def test_delivery_that_ends_during_an_unanswered_extension_is_acked(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    unanswered = threading.Event()
    twice = times(2, "extend", UNANSWERED)

    def lose(name: str) -> None:
        if name == "extend":
            unanswered.set()
        twice(name)

    def slow(message: LeasedMessage) -> None:
        inbox(message)
        assert unanswered.wait(PATIENCE_S)

    tap.lose = lose
    create(tap.store, topic, "a", in_ms=0)
    with firing(tap, topic, slow, hold_ms=1_500):
        wait_until(lambda: remaining(tap.store, topic) == 0)
    assert inbox.counts() == {"a": 1}


def test_unanswered_reservation_is_found_behind_many_leases(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    create(tap.store, topic, *(f"a{number:04}" for number in range(1_200)), in_ms=0)
    tap.store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="c",
        limit=1_200,
        lease_ms=2 * HOUR_MS,
        now_ms=now_ms(),
    )
    tap.lose = times(1, "reserve", UNANSWERED)
    create(tap.store, topic, "z", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("z")
    assert inbox.counts() == {"z": 1}


def test_unanswered_reservation_is_delivered_before_its_lease_lapses(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    tap.lose = times(2, "reserve", UNANSWERED)
    create(tap.store, topic, "a", "b", in_ms=0)
    with firing(tap, topic, inbox, hold_ms=HOUR_MS):
        inbox.wait_for("a", "b")
    assert inbox.counts() == {"a": 1, "b": 1}
    assert {each.message.attempts for each in inbox.messages} == {0}
    assert remaining(tap.store, topic) == 0


def test_unanswered_reservation_leaves_other_leases_alone(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    def version(message_id: str) -> int:
        return tap.store.lookup(topic.uid, [message_id])[message_id].version

    create(tap.store, topic, "elsewhere", in_ms=0)
    tap.store.reserve(
        topic.uid,
        topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=2 * HOUR_MS,
        now_ms=now_ms(),
    )
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(tap.store, topic, "held", in_ms=50_000)
    with firing(tap, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        wait_until(lambda: len(agenda) == 1)
        before = version("held"), version("elsewhere")
        tap.lose = times(1, "reserve", UNANSWERED)
        create(tap.store, topic, "lost", in_ms=0)
        inbox.wait_for("lost")
        assert (version("held"), version("elsewhere")) == before
    assert inbox.counts() == {"lost": 1}


def test_unanswered_reservation_keeps_messages_in_delivery(
    tap: Tap, topic: Topic, inbox: Inbox
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(message: LeasedMessage) -> None:
        if message.lease.id == "slow":
            begun.set()
            assert go_on.wait(PATIENCE_S)
        inbox(message)

    create(tap.store, topic, "slow", in_ms=0)
    agenda = Agenda(max_sleep_ms=HOUR_MS)
    with firing(tap, topic, slow, agenda=agenda, hold_ms=HOUR_MS):
        assert begun.wait(PATIENCE_S)
        version = tap.store.lookup(topic.uid, ["slow"])["slow"].version
        tap.lose = times(1, "reserve", UNANSWERED)
        create(tap.store, topic, "lost", in_ms=0)
        wait_until(lambda: [lease.id for lease in agenda.leases()] == ["lost"])
        assert tap.store.lookup(topic.uid, ["slow"])["slow"].version == version
        go_on.set()
        inbox.wait_for("slow", "lost")
    assert inbox.counts() == {"slow": 1, "lost": 1}
    assert remaining(tap.store, topic) == 0


def test_stop_releases_an_unanswered_reservation(tap: Tap, topic: Topic, inbox: Inbox) -> None:
    lost = threading.Event()

    def lose(name: str) -> None:
        if name == "reserve":
            lost.set()
            raise UNANSWERED

    tap.lose = lose
    create(tap.store, topic, "a", in_ms=50_000)
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(tap, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        assert lost.wait(PATIENCE_S)
    assert waiting(tap.store, topic) == 1
    assert inbox.messages == []
