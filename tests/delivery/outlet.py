"""A publishing lane in a thread: its output, its windows, and its reports."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.topic import Topic
from chronoline.delivery.lane_settings import LaneReport, LaneSettings
from chronoline.delivery.publishing_lane import Confirm, Publish, PublishingLane
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.stores.contract import Store
from chronoline.testing import ManualClock
from tests.delivery.inbox import now_ms, wait_until
from tests.delivery.stores import PATIENCE_S, Tap

MINUTE_MS = 60_000


class Outlet:
    """The published messages. Confirms each at once with the result of `answer`, or at `confirm`."""

    def __init__(self, clock: Clock | None = None, *, patient: bool = False) -> None:
        self._clock = clock or SystemClock()
        self.patient = patient
        """Keeps the confirmations until `confirm`."""
        self.answer: Callable[[LeasedMessage], BaseException | None] = lambda _: None
        self.messages: list[LeasedMessage] = []
        self.early: list[str] = []
        self.advance_ms = 0
        self._confirms: list[tuple[LeasedMessage, Confirm]] = []
        self._changed = threading.Condition()

    def __call__(self, message: LeasedMessage, confirm: Confirm) -> None:
        moment = self._clock.now_ms()
        with self._changed:
            self.messages.append(message)
            if message.message.due - self.advance_ms > moment:
                self.early.append(message.lease.id)
            if self.patient:
                self._confirms.append((message, confirm))
            self._changed.notify_all()
        if not self.patient:
            confirm(self.answer(message))

    def confirm(self) -> int:
        """Confirms all waiting messages; returns their number."""
        with self._changed:
            confirms, self._confirms = self._confirms, []
        for message, confirm in confirms:
            confirm(self.answer(message))
        return len(confirms)

    def wait_for(self, *ids: str) -> None:
        """Waits until all of these were published."""
        with self._changed:
            self._changed.wait_for(lambda: set(ids) <= self.counts().keys(), PATIENCE_S)
            missing = sorted(set(ids) - self.counts().keys())
        assert not missing, f"{len(missing)} were not published, {missing[0]} among them"

    def wait_for_number(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= number, PATIENCE_S)

    def counts(self) -> Counter[str]:
        return Counter(each.lease.id for each in self.messages)


def put(store: Store, topic: Topic, *ids: str, clock: Clock) -> None:
    """Creates messages that are due now by this clock."""
    now = clock.now_ms()
    messages = [NewMessage(id=each, due=now) for each in ids]
    assert all(outcome.done for outcome in store.create(topic.uid, messages, now_ms=now))


def near_the_end(clock: ManualClock, store: Store, topic: Topic, *ids: str, hold_ms: int) -> None:
    """Moves the clock to where the leases nearly end, and waits until the lane has changed all of them."""
    before = store.lookup(topic.uid, ids)
    end_ms = min(each.ts for each in before.values()) - hold_ms // 10
    clock.advance(max(0, end_ms - clock.now_ms()))

    def are_changed() -> bool:
        now = store.lookup(topic.uid, ids)
        return all(now[message_id].version > before[message_id].version for message_id in ids)

    wait_until(are_changed)


class Serving:
    """One window of a lane, in a thread of its own."""

    def __init__(self, lane: PublishingLane, start_ms: int, end_ms: int) -> None:
        self._told = threading.Event()
        self._asked = threading.Semaphore(0)
        self._reports: list[LaneReport] = []
        self._errors: list[BaseException] = []

        def run() -> None:
            try:
                self._reports.append(
                    lane.run(start_ms=start_ms, end_ms=end_ms, stopping=self._stopping)
                )
            except BaseException as error:  # the test hears of it
                self._errors.append(error)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def _stopping(self) -> bool:
        self._asked.release()
        return self._told.is_set()

    def wait_for_a_round(self) -> None:
        """Waits until the storage thread has nothing more to do now."""
        while self._asked.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self._asked.acquire(timeout=PATIENCE_S)

    def stop(self) -> LaneReport:
        self._told.set()
        return self.report()

    def report(self) -> LaneReport:
        """Waits for the end of the window."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the window does not end"
        if self._errors:
            raise self._errors[0]
        return self._reports[0]

    def leave(self) -> None:
        self._told.set()
        self._thread.join(PATIENCE_S)


def lane_of(store: Store | Tap, topic: Topic, publish: Publish, **named: Any) -> PublishingLane:
    """Makes a lane; other arguments are its settings."""
    arguments = {"consumer": "node/1"} | {
        name: named.pop(name)
        for name in ("consumer", "ranges", "clock", "gate", "on_fired")
        if name in named
    }
    return PublishingLane(
        cast(Store, store), topic, publish, settings=LaneSettings(**named), **arguments
    )


@contextmanager
def publishing(
    store: Store | Tap, topic: Topic, publish: Publish, **named: Any
) -> Iterator[Serving]:
    """A lane whose window has begun, and ends with the block."""
    now = named["clock"].now_ms() if "clock" in named else now_ms()
    with lane_of(store, topic, publish, **named) as lane:
        window = Serving(lane, now, now + MINUTE_MS)
        try:
            yield window
        finally:
            window.leave()
