"""The judge of a soak, on made-up runs: a flat one passes, and each kind of leak is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.torture.history import FAULT, Event, Violation
from tests.torture.soak.judge import END, FLOW, SAMPLE, STORE, judge

_SAMPLES = 80
_EVERY_NS = 5_000_000_000
_END = {"sent": 1_000, "delivered": 1_000, "lost": 0, "early": 0, "double": 0}
_END |= {"uncalled": 0, "unpopped": 0, "unscheduled": 0, "unfired": 0}
_FLAT: dict[str, dict[str, float]] = {
    SAMPLE: {"rss_mb": 120, "descriptors": 60, "threads": 20},
    STORE: {"rows": 5_000, "disk_mb": 60},
    FLOW: {"p50_ms": 2},
}


def _run(
    shape: Callable[[str, str, float, int], float] = lambda kind, figure, value, number: value,
    samples: int = _SAMPLES,
    end: Mapping[str, int] = MappingProxyType({}),
) -> list[Event]:
    """A run whose figures have a shape over its samples."""
    found = []
    for number in range(samples):
        for kind, figures in _FLAT.items():
            fields: dict[str, Any] = {
                figure: shape(kind, figure, value, number) for figure, value in figures.items()
            }
            if kind == SAMPLE:
                fields["who"] = "broker-1.1"
            found.append(Event(kind, "director", 0.0, number * _EVERY_NS, fields))
    found.append(Event(END, "director", 0.0, samples * _EVERY_NS, {**_END, **end}))
    return found


def _rules(events: list[Event]) -> list[str]:
    return [violation.rule for violation in judge(events)]


def _wave(kind: str, figure: str, value: float, number: int) -> float:
    """Up and down, as a collector and a vacuum make it."""
    return value * (1 + 0.2 * (number % 7) / 7)


def test_flat_run_passes() -> None:
    assert judge(_run()) == []
    assert judge(_run(_wave)) == []


@pytest.mark.parametrize(
    "leaking", [(kind, figure) for kind, figures in _FLAT.items() for figure in figures]
)
def test_leak_of_each_kind_is_found(leaking: tuple[str, str]) -> None:
    def leak(kind: str, figure: str, value: float, number: int) -> float:
        grown = number / _SAMPLES * 2 * (value + 30)
        return _wave(kind, figure, value, number) + grown * ((kind, figure) == leaking)

    assert _rules(_run(leak)) == [f"37 {leaking[1]} grows"]


def test_growth_in_the_warm_up_is_allowed() -> None:
    def grow(kind: str, figure: str, value: float, number: int) -> float:
        return value * min(1.0, (number + 1) / (_SAMPLES * 0.25))

    assert judge(_run(grow)) == []


def test_process_that_was_started_again_is_not_judged() -> None:
    def started(number: int) -> Event:
        fields = {"who": "broker-2.2", "rss_mb": number, "descriptors": number, "threads": number}
        return Event(SAMPLE, "director", 0.0, number * _EVERY_NS + 1, fields)

    late = [started(number) for number in range(_SAMPLES // 2, _SAMPLES)]
    early = [started(number) for number in range(_SAMPLES)]
    for more, expected in ((late, 0), (early, 3)):
        events = sorted([*_run(), *more], key=lambda event: event.mono_ns)
        assert len(_rules(events)) == expected


def test_lateness_in_an_outage_is_allowed() -> None:
    def late(kind: str, figure: str, value: float, number: int) -> float:
        return 4_000 if kind == FLOW and number >= _SAMPLES - 2 else value

    def slow(kind: str, figure: str, value: float, number: int) -> float:
        return 4_000 if kind == FLOW and number >= _SAMPLES // 2 else value

    fault = Event(FAULT, "director", 0.0, (_SAMPLES - 2) * _EVERY_NS - 1, {"fault": "kill"})
    assert judge(sorted([*_run(late), fault], key=lambda event: event.mono_ns)) == []
    assert _rules(_run(slow)) == ["37 p50_ms grows"]


@pytest.mark.parametrize(
    ("field", "rule"),
    [("lost", "6 "), ("early", "10 "), ("double", "7 "), ("unpopped", "32 "), ("unfired", "31 ")],
)
def test_loss_of_each_kind_is_found(field: str, rule: str) -> None:
    (found,) = judge(_run(end={field: 3}))
    assert found.rule.startswith(rule)
    assert found.detail == "3 of 1,000"


def test_run_that_proves_nothing_fails() -> None:
    rules = _rules(_run(samples=4))
    assert "37 rss_mb was not judged" in rules
    assert judge(_run()[:-1]) == [Violation("the run did not end", "its last event is missing")]
    assert _rules(_run(end={"delivered": 0})) == ["13 due message not served"]
