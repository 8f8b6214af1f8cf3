"""A firing lane in real time: its deliveries, its messages, and the remaining messages."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from chronoline.core.agenda import Agenda
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic
from chronoline.delivery.firing_lane import Deliver, FiringLane
from chronoline.delivery.lane import summary
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.stores.contract import Store
from tests.delivery.stores import PATIENCE_S, Tap

HOUR_MS = 3_600_000

now_ms = SystemClock().now_ms


class Inbox:
    """The delivered messages and their times."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.messages: list[LeasedMessage] = []
        self.early: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, message: LeasedMessage) -> None:
        moment = self._clock.now_ms()
        with self._changed:
            self.messages.append(message)
            if message.message.due > moment:
                self.early.append(message.lease.id)
            self._changed.notify_all()

    def wait_for(self, *ids: str) -> None:
        """Waits until all of these were delivered."""
        with self._changed:
            self._changed.wait_for(lambda: set(ids) <= self.counts().keys(), PATIENCE_S)
            missing = sorted(set(ids) - self.counts().keys())
        assert not missing, f"{len(missing)} were not delivered, {missing[0]} among them"

    def counts(self) -> Counter[str]:
        return Counter(each.lease.id for each in self.messages)


@contextmanager
def firing(
    store: Store | Tap, topic: Topic, deliver: Deliver, **named: Any
) -> Iterator[FiringLane]:
    """A lane that does not poll within the test: only the agenda and notices wake it."""
    given: dict[str, Any] = {"consumer": "c", "agenda": Agenda(max_sleep_ms=HOUR_MS)} | named
    lane = FiringLane(cast(Store, store), topic, deliver, **given)
    lane.start()
    try:
        yield lane
    finally:
        lane.stop()


def times(number: int, name: str, error: Exception) -> Callable[[str], None]:
    """Returns a function that raises for the first `number` changes of this name."""
    left = [error] * number

    def fail(asked: str) -> None:
        if asked == name and left:
            raise left.pop()

    return fail


def create(store: Store, topic: Topic, *ids: str, in_ms: int) -> int:
    """Creates messages that fall due in `in_ms`; returns their due time."""
    now = now_ms()
    messages = [NewMessage(id=each, due=now + in_ms) for each in ids]
    assert all(outcome.done for outcome in store.create(topic.uid, messages, now_ms=now))
    return now + in_ms


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the lanes, with those that still gather further messages."""
    summary.flush()
    return caplog.messages


def wait_until(condition: Callable[[], bool]) -> None:
    """Polls until a condition of the store holds."""
    give_up = now_ms() + PATIENCE_S * 1000
    while not condition():
        assert now_ms() < give_up
        time.sleep(0.001)  # acks and leases send no signal


def remaining(store: Store, topic: Topic) -> int:
    end = now_ms() + 10 * HOUR_MS
    return store.count(topic.uid, topic.all_buckets, start=0, end=end, now_ms=now_ms()).total


def waiting(store: Store, topic: Topic) -> int:
    end = now_ms() + 10 * HOUR_MS
    return store.count(topic.uid, topic.all_buckets, start=0, end=end, now_ms=now_ms()).waiting
