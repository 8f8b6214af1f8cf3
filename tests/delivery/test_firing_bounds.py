"""Floods: a firing lane holds and changes no more at once than its agenda, its bytes and a batch allow."""

from collections.abc import Iterable

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import MAX_BATCH, Store
from tests.delivery.inbox import (
    HOUR_MS,
    Inbox,
    create,
    firing,
    now_ms,
    remaining,
    wait_until,
    waiting,
)


class Ledger(Agenda):
    """An agenda that remembers how many bytes it held at most."""

    most_held_bytes = 0

    def reserved(
        self, leased: Iterable[LeasedMessage], *, next_ts: int | None, more: bool, now_ms: int
    ) -> None:
        super().reserved(leased, next_ts=next_ts, more=more, now_ms=now_ms)
        self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)


def test_more_messages_than_an_agenda_holds(store: Store, topic: Topic, inbox: Inbox) -> None:
    ids = [f"m{number}" for number in range(200)]
    create(store, topic, *ids, in_ms=50)
    agenda = Agenda(capacity=7, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert inbox.early == []
    assert remaining(store, topic) == 0


def test_held_bodies_stay_within_the_byte_bound(store: Store, inbox: Inbox) -> None:
    largest = TopicSettings(largest_body_bytes=100_000)
    topic = store.create_topic("large", largest, now_ms=now_ms())
    ids = [f"m{number}" for number in range(60)]
    now = now_ms()
    flood = [NewMessage(id=each, due=now, body=bytes(100_000)) for each in ids]
    store.create(topic.uid, flood, now_ms=now)
    agenda = Ledger(max_sleep_ms=HOUR_MS, most_bytes=1_000_000)
    with firing(store, topic, inbox, agenda=agenda):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert 100_000 < agenda.most_held_bytes <= 1_000_000
    assert agenda.held_bytes == 0
    assert remaining(store, topic) == 0


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_more_acks_than_a_store_takes_in_a_batch(store: Store, topic: Topic, inbox: Inbox) -> None:
    ids = [f"m{number}" for number in range(MAX_BATCH + 1_000)]
    for place in range(0, len(ids), 1_000):
        create(store, topic, *ids[place : place + 1_000], in_ms=0)
    # Acks gather for half of what is reserved ahead: long enough for all of them.
    agenda = Agenda(reserve_ahead_ms=10_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda, hold_ms=HOUR_MS):
        inbox.wait_for(*ids)
    assert inbox.counts() == dict.fromkeys(ids, 1)
    assert remaining(store, topic) == 0


@pytest.mark.parametrize("url", ["memory"], indirect=True)
def test_more_releases_than_a_store_takes_in_a_batch(
    store: Store, topic: Topic, inbox: Inbox
) -> None:
    ids = [f"m{number}" for number in range(MAX_BATCH + 1_000)]
    for place in range(0, len(ids), 1_000):
        create(store, topic, *ids[place : place + 1_000], in_ms=50_000)
    agenda = Agenda(capacity=len(ids), reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda):
        wait_until(lambda: waiting(store, topic) == 0)
    assert waiting(store, topic) == len(ids)
    assert inbox.messages == []
