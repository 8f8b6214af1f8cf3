"""What a lane holds: what waits to be said is said once it can be, and nothing else is lost or made up."""

from collections.abc import Iterator
from typing import cast

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.topic import Topic
from chronoline.delivery.reservations import Holding
from chronoline.stores.contract import Store
from tests.delivery.inbox import HOUR_MS, create, now_ms, remaining, times, waiting
from tests.delivery.stores import Tap


@pytest.fixture
def holding(tap: Tap, topic: Topic) -> Iterator[Holding]:
    holding = Holding(
        cast(Store, tap),
        topic,
        Agenda(),
        consumer="c",
        ranges=None,
        clock=None,
        hold_ms=HOUR_MS,
        retry_ms=HOUR_MS,
        rest_ms=200,
    )
    yield holding
    holding.close_watch()


def test_what_is_reserved_is_in_the_agenda_and_can_be_given_back(
    tap: Tap, topic: Topic, holding: Holding
) -> None:
    create(tap.store, topic, "a", "b", in_ms=50)
    assert len(holding.reserve(now_ms(), most=1).leased) == 1
    assert len(holding.reserve(now_ms()).leased) == 1
    assert len(holding.agenda) == 2
    holding.give_back(holding.agenda.give_back())
    assert (holding.given_back, holding.settled) == (2, False)
    holding.flush()
    assert holding.settled
    held = tap.store.select_held(topic.uid, "c", limit=10)
    assert held.messages == ()


def test_what_could_not_be_said_is_said_again(tap: Tap, topic: Topic, holding: Holding) -> None:
    create(tap.store, topic, "acked", "tried again", "given back", in_ms=0)
    leases = {each.lease.id: each.lease for each in holding.reserve(now_ms()).leased}
    holding.agenda.give_back()
    holding.to_ack.append(leases["acked"])
    holding.to_retry.append(leases["tried again"])
    holding.give_back([leases["given back"]])
    tap.fail = times(1, "retry", StoreUnavailable("the store is gone"))
    with pytest.raises(StoreUnavailable):
        holding.flush()
    assert (holding.to_ack, holding.to_retry) == ([], [leases["tried again"]])  # the ack is said
    holding.flush(at_once=True)
    assert holding.settled
    assert (remaining(tap.store, topic), waiting(tap.store, topic)) == (2, 1)


@pytest.mark.parametrize("made", [True, False])
def test_what_an_unanswered_reservation_took_is_given_back_but_not_what_is_in_hand(
    tap: Tap, topic: Topic, holding: Holding, made: bool
) -> None:
    now = now_ms()
    create(tap.store, topic, "in hand", in_ms=-60_000)
    assert len(holding.reserve(now).leased) == 1
    holding.agenda.give_back()
    unanswered = times(1, "reserve", OutcomeUnknown("the answer was lost"))
    if made:
        tap.lose = unanswered
    else:
        tap.fail = unanswered
    create(tap.store, topic, "lost", in_ms=-60_000)
    with pytest.raises(OutcomeUnknown):
        holding.reserve(now)  # at the same moment: only the lane knows which is which
    assert not holding.settled
    holding.recover()
    assert [lease.id for lease in holding.unwanted] == (["lost"] if made else [])
    holding.flush()
    assert holding.settled
    assert tap.store.lookup(topic.uid, ["in hand"])["in hand"].lock_consumer == "c"


def test_a_sleeper_without_a_watch_does_not_sleep(holding: Holding) -> None:
    holding.sleep(HOUR_MS)
    holding.wake()
    holding.open_watch()
    holding.wake()
    holding.sleep(HOUR_MS)  # the wake came before
    assert holding.settled
