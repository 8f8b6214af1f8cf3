"""Log lines of events that many messages share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from chronoline.runtime.log_summary import LogSummary

LOGGER = logging.getLogger("tests.log_summary")


class Clock:
    """A clock that the test moves. It calls the functions that are due."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def later(self, wait_s: float, function: Callable[[], None]) -> None:
        self._calls.append((self.now_s + wait_s, function))

    def move_to(self, now_s: float) -> None:
        self.now_s = now_s
        due = [function for at_s, function in self._calls if at_s <= now_s]
        self._calls = [(at_s, function) for at_s, function in self._calls if at_s > now_s]
        for function in due:
            function()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def summary(clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[LogSummary]:
    caplog.set_level(logging.INFO, LOGGER.name)
    summary = LogSummary(LOGGER, monotonic=lambda: clock.now_s, later=clock.later)
    yield summary
    summary.flush()


def test_the_first_event_is_logged_at_once(
    summary: LogSummary, caplog: pytest.LogCaptureFixture
) -> None:
    summary.warning("too_late", "the ack of %s came too late", "a", topic="mail")
    assert caplog.messages == ["the ack of a came too late"]
    fields = vars(caplog.records[0])
    assert (fields["action"], fields["topic"], fields["count"]) == ("too_late", "mail", 1)


def test_events_of_one_second_share_a_line_with_a_count_and_an_example(
    summary: LogSummary, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1_000):
        summary.warning("too_late", "the ack of %s came too late", f"m-{number}")
    assert len(caplog.messages) == 1
    clock.move_to(1)
    assert caplog.messages[1:] == ["the ack of m-1 came too late (and 998 more like this)"]
    assert vars(caplog.records[1])["count"] == 999


def test_a_flood_costs_one_line_a_second(
    summary: LogSummary, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for tenth in range(100):
        clock.move_to(tenth / 10)
        summary.warning("too_late", "late")
    clock.move_to(11)
    assert len(caplog.records) == 11
    assert sum(vars(record)["count"] for record in caplog.records) == 100


def test_each_action_has_its_own_lines(
    summary: LogSummary, caplog: pytest.LogCaptureFixture
) -> None:
    summary.warning("too_late", "late")
    summary.info("ended", "ended")
    assert caplog.messages == ["late", "ended"]


def test_a_call_can_report_many_events(
    summary: LogSummary, caplog: pytest.LogCaptureFixture
) -> None:
    summary.warning("too_late", "%s came too late", "a", count=40)
    assert caplog.messages == ["a came too late (and 39 more like this)"]


def test_a_line_is_held_back_only_after_another_one(
    summary: LogSummary, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    summary.warning("too_late", "first")
    clock.move_to(5)
    summary.warning("too_late", "second")
    assert caplog.messages == ["first", "second"]


def test_flush_writes_the_events_of_the_running_second(
    summary: LogSummary, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        summary.warning("too_late", "late")
    summary.flush()
    summary.flush()
    assert caplog.messages == ["late", "late (and 1 more like this)"]


def test_the_real_clock_writes_the_rest_by_itself() -> None:
    counted = 0
    complete = threading.Event()

    class Counter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            nonlocal counted
            counted += vars(record)["count"]
            if counted == 3:
                complete.set()

    handler = Counter()
    LOGGER.addHandler(handler)
    try:
        summary = LogSummary(LOGGER, every_s=0.01)
        for _ in range(3):
            summary.warning("too_late", "late")
        assert complete.wait(10)
    finally:
        LOGGER.removeHandler(handler)
