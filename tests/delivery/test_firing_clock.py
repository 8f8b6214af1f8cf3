"""A firing lane whose clock is put back: it is not early, and it does not stall."""

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from tests.delivery.inbox import (
    HOUR_MS,
    Inbox,
    create,
    firing,
    now_ms,
    remaining,
    wait_until,
)


class ShiftedClock(SystemClock):
    """The clock of the machine, set back by `back_ms`."""

    back_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self.back_ms

    def seconds_until(self, moment_ms: int) -> float:
        return super().seconds_until(moment_ms + self.back_ms)


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


def test_clock_rollback_does_not_delay_acks(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    def deliver(message: LeasedMessage) -> None:
        if message.lease.id == "second":  # the first waits for its ack by now
            clock.back_ms = HOUR_MS

    create(store, topic, "first", in_ms=-1)
    create(store, topic, "second", in_ms=0)
    # Acks gather for half a minute.
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    with firing(store, topic, deliver, agenda=agenda, clock=clock, hold_ms=400):
        wait_until(lambda: remaining(store, topic) == 0)
    assert clock.back_ms == HOUR_MS


def test_clock_rollback_fires_nothing_early(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    inbox = Inbox(clock)
    agenda = Agenda(reserve_ahead_ms=60_000, max_sleep_ms=HOUR_MS)
    create(store, topic, "held", in_ms=1_500)
    with firing(store, topic, inbox, agenda=agenda, clock=clock):
        wait_until(lambda: len(agenda) == 1)
        clock.back_ms = 300
        inbox.wait_for("held")
    assert inbox.early == []
    assert inbox.counts() == {"held": 1}


def test_clock_rollback_does_not_stall_the_lane(
    store: Store, topic: Topic, clock: ShiftedClock
) -> None:
    inbox = Inbox(clock)
    agenda = Agenda(max_sleep_ms=HOUR_MS)
    with firing(store, topic, inbox, agenda=agenda, clock=clock, hold_ms=400):
        wait_until(lambda: (agenda.reserve_at(now_ms()) or 0) > now_ms() + HOUR_MS // 2)
        # The clock of its creator was far off, so no notice was sent.
        unnoticed = NewMessage(id="unnoticed", due=now_ms() - 1_000)
        store.create(topic.uid, [unnoticed], now_ms=0)
        clock.back_ms = 500
        inbox.wait_for("unnoticed")
    assert inbox.early == []
    assert remaining(store, topic) == 0
