"""The judge of timers finds every kind of violation, and none in a clean history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.torture.history import CALL, DELIVERY, DONE, FAULT, OUTCOME, UNKNOWN, Event
from tests.torture.timers import judge
from tests.torture.timers.injections import INJECTIONS, Injection
from tests.torture.timers.judge import QUICK

_FAR_MS = 3_600_000


class Written:
    """A hand-written history. Times are milliseconds."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._ids: dict[str, str] = {}

    @property
    def events(self) -> list[Event]:
        return sorted(self._events, key=lambda event: event.mono_ns)

    def add(self, kind: str, at_ms: int, **fields: Any) -> None:
        self._events.append(Event(kind, "clients", at_ms, at_ms * 1_000_000, fields))

    def change(
        self,
        op: str,
        timer: str,
        at_ms: int,
        *,
        interval_ms: int = 0,
        pops: int = 1,
        copies: int = 2,
        outcome: str = DONE,
    ) -> str:
        """Adds a call that is answered 5 ms later; returns its label."""
        call, label = f"clients:{len(self._events)}", f"{timer}/{at_ms}"
        timer_id = self._ids.setdefault(timer, f"{len(self._ids):016x}")
        asked = {"label": label, "interval_ms": interval_ms, "pops": pops, "receiver": QUICK}
        self.add(CALL, at_ms, call=call, op=op, timer=timer, **(asked if op != "delete" else {}))
        answer = {"copies": copies, "wanted": 2, "id": timer_id} if outcome == DONE else {}
        self.add(OUTCOME, at_ms + 5, call=call, outcome=outcome, reason="", **answer)
        return label

    def pop(self, label: str, at_ms: int, *, sequence: int = 1, status: int = 200) -> None:
        """Adds a callback that is answered 1 ms later."""
        delivery = len(self._events)
        timer_id = self._ids[label.partition("/")[0]]
        of = {"label": label, "sequence": sequence, "id": timer_id, "receiver": QUICK}
        self.add(DELIVERY, at_ms, delivery=delivery, **of)
        self.add("answered", at_ms + 1, delivery=delivery, status=status)

    def holders(self, at_ms: int, *timers: str) -> None:
        found = {self._ids[timer]: [("a", 0), ("b", 1)] for timer in timers}
        self.add("holders", at_ms, holders=found)


def _clean() -> Written:
    """A history with every kind of event and no violation."""
    written = Written()
    written.add("well", 0)
    written.pop(written.change("create", "calm", 100, interval_ms=2_000), 2_110)
    written.change("create", "deleted", 200, interval_ms=4_000)
    written.change("delete", "deleted", 1_000)
    written.change("create", "replaced", 300, interval_ms=4_000)
    written.pop(written.change("replace", "replaced", 1_100, interval_ms=1_000), 2_150)
    twice = written.change("create", "twice", 400, interval_ms=2_000, pops=2)
    written.pop(twice, 2_450, status=500)
    written.pop(twice, 2_950)
    written.pop(twice, 4_450, sequence=2)
    far = written.change("create", "far", 500, interval_ms=_FAR_MS)
    assert far
    written.change("create", "doomed", 29_000, interval_ms=4_000)
    written.add(FAULT, 30_000, fault="kill -9", node="a", down=1)
    written.change("delete", "doomed", 30_100)
    written.add(FAULT, 32_000, fault="start", node="a", down=0)
    written.add("well", 33_000)
    written.holders(40_000, "far")
    written.add("end", 60_000)
    return written


def _rules(written: Written) -> list[str]:
    return sorted({each.rule for each in judge.judge(written.events)})


def test_clean_history_breaks_no_rule() -> None:
    assert judge.judge(_clean().events) == []
    assert judge.judge([]) == []


@pytest.mark.parametrize(
    ("inject", "rule"), INJECTIONS, ids=[each.__name__ for each, _ in INJECTIONS]
)
def test_injected_violation_is_found(inject: Injection, rule: str) -> None:
    assert rule in {each.rule for each in judge.judge(inject(_clean().events))}


def test_pop_that_was_not_heard_may_come_again() -> None:
    written = _clean()
    label = written.change("create", "t", 10_000, interval_ms=2_000)
    written.pop(label, 12_010, status=500)
    written.pop(label, 12_600)
    assert _rules(written) == []
    written.pop(label, 12_900)
    assert _rules(written) == [judge.TWICE]


@pytest.mark.parametrize("fault_ms", [11_000, 12_400])
def test_pop_may_come_twice_when_a_node_dies(fault_ms: int) -> None:
    written = _clean()
    label = written.change("create", "t", 10_000, interval_ms=2_000)
    written.add(FAULT, fault_ms, fault="kill -9", node="a", down=1)
    written.add(FAULT, 13_000, fault="start", node="a", down=0)
    written.add("well", 13_500)
    written.pop(label, 12_010)
    written.pop(label, 12_600)
    assert _rules(written) == []


def test_pop_is_late_though_its_primary_is_dead() -> None:
    written = _clean()
    label = written.change("create", "t", 29_500, interval_ms=2_000)
    written.pop(label, 34_000 + judge.LATE_MS)
    assert _rules(written) == [judge.LATE]


def test_timer_with_one_copy_waits_for_its_node() -> None:
    written = _clean()
    label = written.change("create", "t", 29_500, interval_ms=2_000, copies=1)
    written.pop(label, 34_000 + judge.LATE_MS)
    assert _rules(written) == []
    written.change("create", "u", 29_600, interval_ms=1_000, copies=1)  # never called at all
    assert _rules(written) == [judge.LOST]


def test_either_version_may_pop_after_an_unknown_outcome() -> None:
    written = _clean()
    label = written.change("create", "t", 10_000, interval_ms=4_000)
    other = written.change("replace", "t", 10_100, interval_ms=5_000, outcome=UNKNOWN)
    written.pop(label, 14_010)
    assert _rules(written) == []
    written.pop(other, 15_200)
    assert _rules(written) == []
    written.change("delete", "t", 15_300)
    written.pop(other, 17_500)
    assert judge.DELETED_CALLED in _rules(written)


def test_call_on_the_wire_may_arrive_after_the_deletion() -> None:
    written = _clean()
    label = written.change("create", "t", 10_000, interval_ms=2_000)
    written.change("delete", "t", 12_000)
    written.pop(label, 12_005 + judge.WIRE_MS)
    assert _rules(written) == []


def test_deletion_that_one_node_heard_may_die_with_it() -> None:
    written = _clean()
    label = written.change("create", "t", 29_000, interval_ms=4_000)
    written.change("delete", "t", 30_500, copies=1)
    written.add(FAULT, 31_000, fault="kill -9", node="b", down=2)
    written.pop(label, 33_100)
    assert _rules(written) == []


def test_stalled_machine_excuses_late_and_double_pops() -> None:
    written = _clean()
    label = written.change("create", "t", 10_000, interval_ms=2_000)
    written.add("stall", 14_000, stall_ms=1_000)
    written.pop(label, 15_800)
    written.pop(label, 15_900)
    assert _rules(written) == []


def test_timer_may_pop_late_after_its_nodes_were_down() -> None:
    written = _clean()
    label = written.change("create", "t", 29_000, interval_ms=2_000, copies=1)
    written.pop(label, 29_005 + 2_000 + judge.END_MS + judge.WIRE_MS + 100)
    assert _rules(written) == []
    label = written.change("create", "u", 29_000, interval_ms=1_000, pops=2, copies=1)
    written.pop(label, 45_000, sequence=2)
    assert _rules(written) == [judge.PAST_END]
