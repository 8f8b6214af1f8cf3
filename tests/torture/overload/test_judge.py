"""The judge finds each kind of violation, and none in a history without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.torture.history import DELIVERY, FAULT, Event
from tests.torture.overload.judge import CONFIRMED, END, TAKEN_IN, judge

History = list[Event]
Change = Callable[[History], Sequence[Event]]


def event(kind: str, wall_ms: float, process: str = "lane0", **fields: Any) -> Event:
    return Event(kind, process, wall_ms, int(wall_ms * 1e6), fields)


def fired(message_id: str, due: int, late_ms: float = 3, version: int = 1) -> Event:
    return event(DELIVERY, due + late_ms, id=message_id, due=due, version=version)


@pytest.fixture
def history() -> History:
    return [
        event("lane", 0, hold_ms=2_000),
        event(TAKEN_IN, 1, "director", ids=["a", "b"]),
        event(FAULT, 50, "director", fault="the output is slow"),
        fired("a", 100),
        event(CONFIRMED, 3_200, id="a", after_ms=3_100),
        event(FAULT, 4_000, "director", fault="the output is quick"),
        fired("b", 7_000),
        event(CONFIRMED, 7_001, id="b", after_ms=1),
        event(END, 9_000, "director", waiting=0, dead=[]),
    ]


def without(history: History, kind: str) -> History:
    return [each for each in history if each.kind != kind]


def test_recovered_lanes_have_no_violation(history: History) -> None:
    assert judge(history) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param(
            lambda told: [*told, fired("a", 100, 5_000, 2)],
            "48 load alone doubled a message",
            id="twice",
        ),
        pytest.param(
            lambda told: [*without(told, DELIVERY), fired("a", 100, -1), fired("b", 7_000)],
            "10 published before its due",
            id="early",
        ),
        pytest.param(
            lambda told: [*without(told, DELIVERY), fired("b", 7_000)],
            "31 input neither fired nor dead nor waiting",
            id="lost",
        ),
        pytest.param(
            lambda told: [*told, fired("nobody's", 100)], "31 fired without an input", id="foreign"
        ),
        pytest.param(
            lambda told: [*without(told, END), event(END, 9_000, waiting=1, dead=[])],
            "13 due message not served",
            id="waits",
        ),
        pytest.param(
            lambda told: [*without(told, END), event(END, 9_000, waiting=0, dead=["a"])],
            "48 load alone sent messages to the dead letters",
            id="dead",
        ),
        pytest.param(
            lambda told: [*without(told, DELIVERY), fired("a", 100), fired("b", 7_000, 4_000)],
            "48 not on time again",
            id="late",
        ),
        pytest.param(lambda told: without(told, CONFIRMED), "48 was not judged", id="quick"),
        pytest.param(lambda told: without(told, FAULT), "48 was not judged", id="calm"),
        pytest.param(lambda told: without(told, END), "the run did not end", id="no end"),
    ],
)
def test_each_violation_is_found(history: History, change: Change, rule: str) -> None:
    assert rule in {each.rule for each in judge(change(history))}
