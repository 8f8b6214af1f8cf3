"""Violations of the invariants of timers, put into a recorded history that breaks none.

Each function finds suitable events, and returns the history with the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.torture.history import CALL, DELIVERY, DONE, FAULT, OUTCOME, REFUSED, Event
from tests.torture.timers import judge
from tests.torture.timers.judge import QUICK

Events = list[Event]
Injection = Callable[[Events], Events]

_MS = 1_000_000
_LONG_MS = 2_000
"""With this interval the backups of a timer wait long enough to judge a second pop."""


class NoSuitableEvents(Exception):
    """The history has no events for this violation."""


def _changed(event: Event, *, later_ms: float = 0, **fields: Any) -> Event:
    mono_ns = event.mono_ns + round(later_ms * _MS)
    return replace(event, mono_ns=mono_ns, fields={**event.fields, **fields})


def _instead(events: Events, old: Event, *new: Event) -> Events:
    """Returns the history with other events in place of one."""
    kept = [event for event in events if event is not old]
    return sorted([*kept, *new], key=lambda event: event.mono_ns)


def _with(events: Events, *new: Event) -> Events:
    return sorted([*events, *new], key=lambda event: event.mono_ns)


def _outcomes(events: Events) -> Mapping[str, Event]:
    return {event["call"]: event for event in events if event.kind == OUTCOME}


def _by_label(events: Events) -> Iterator[tuple[Event, Event, list[Event]]]:
    """Yields each created timer with a quick receiver: the call, its outcome, and its deliveries."""
    outcomes = _outcomes(events)
    deliveries: dict[str, list[Event]] = {}
    for event in events:
        if event.kind == DELIVERY:
            deliveries.setdefault(event["label"], []).append(event)
    for event in events:
        if event.kind == CALL and event.get("receiver") == QUICK:
            outcome = outcomes.get(event["call"])
            if outcome is not None and outcome["outcome"] == DONE:
                yield event, outcome, deliveries.get(event["label"], [])


def _is_last(events: Events, call: Event) -> bool:
    """True if no change of the timer follows."""
    of_timer = [each for each in events if each.kind == CALL and each["timer"] == call["timer"]]
    return of_timer[-1] is call


def _calm_pop(events: Events) -> tuple[Event, Event, Event]:
    """Returns a call, its outcome and its only pop, without an excuse or a later change."""
    troubles = [event.mono_ns for event in events if event.kind in (FAULT, "stall", "well")]
    for call, outcome, pops in _by_label(events):
        if len(pops) != 1 or call["pops"] != 1 or call["interval_ms"] < _LONG_MS:
            continue
        until_ns = outcome.mono_ns + (2 * call["interval_ms"] + judge.LATE_MS + 10) * _MS
        is_calm = not any(call.mono_ns <= each <= until_ns for each in troubles)
        is_last = _is_last(events, call)
        if is_calm and is_last and until_ns < events[-1].mono_ns:
            return call, outcome, pops[0]
    raise NoSuitableEvents("no timer popped while all was well")


def _ended(events: Events, op: str, *, broken: bool) -> tuple[Event, Event]:
    """Returns a timer's call and the outcome of the change that ended it; `broken`: a fault came after."""
    outcomes = _outcomes(events)
    faults = [event.mono_ns for event in events if event.kind == FAULT]
    calls = [event for event in events if event.kind == CALL]
    for made in calls:
        changes = [each for each in calls if each["timer"] == made["timer"]]
        after = changes[changes.index(made) + 1 :]
        if made["op"] == "delete" or not after or after[0]["op"] != op:
            continue
        outcome = outcomes.get(after[0]["call"])
        if outcome is None or outcome["outcome"] != DONE or outcome["copies"] != outcome["wanted"]:
            continue
        until_ns = outcome.mono_ns + 2 * judge.WIRE_MS * _MS
        is_broken = any(after[0].mono_ns <= each <= until_ns for each in faults)
        if is_broken == broken:
            return made, outcome
    raise NoSuitableEvents(f"no {op} was answered")


def _pop(call: Event, outcome: Event, **fields: Any) -> Event:
    made = {"delivery": -1, "label": call["label"], "sequence": 1, "id": outcome.get("id", "")}
    return Event(DELIVERY, "receivers", 0, outcome.mono_ns, {**made, "receiver": QUICK, **fields})


def early(events: Events) -> Events:
    call, _, pop = _calm_pop(events)
    at_ns = call.mono_ns + (call["interval_ms"] - 1) * _MS
    return _instead(events, pop, replace(pop, mono_ns=at_ns))


def late(events: Events) -> Events:
    call, outcome, pop = _calm_pop(events)
    late_ms = 2 * call["interval_ms"] + judge.LATE_MS + 1
    return _instead(events, pop, replace(pop, mono_ns=outcome.mono_ns + late_ms * _MS))


def lost(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _instead(events, pop)


def twice(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _with(events, _changed(pop, later_ms=600, delivery=-1))


def without_sequence(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _instead(events, pop, _changed(pop, sequence=None))


def one_pop_too_many(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _with(events, _changed(pop, later_ms=5_000, delivery=-1, sequence=2))


def under_another_id(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _instead(events, pop, _changed(pop, id="f" * 16))


def nobody_asked(events: Events) -> Events:
    _, _, pop = _calm_pop(events)
    return _with(events, _changed(pop, delivery=-1, label="t0/0"))


def refused(events: Events) -> Events:
    _, outcome, _ = _calm_pop(events)
    return _instead(events, outcome, _changed(outcome, outcome=REFUSED))


def past_its_end(events: Events) -> Events:
    for call, outcome, pops in _by_label(events):
        if call["pops"] > 1 and pops and _is_last(events, call):
            repeat_for_ms = call["pops"] * call["interval_ms"]
            end_ms = repeat_for_ms + judge.END_MS + judge.WIRE_MS + 1
            last = replace(pops[-1], mono_ns=outcome.mono_ns + end_ms * _MS)
            return _with(events, _changed(last, delivery=-1, sequence=call["pops"]))
    raise NoSuitableEvents("no timer popped several times")


def deleted_called(events: Events) -> Events:
    call, outcome = _ended(events, "delete", broken=False)
    return _with(events, _changed(_pop(call, outcome), later_ms=judge.WIRE_MS + 100))


def replaced_called(events: Events) -> Events:
    call, outcome = _ended(events, "replace", broken=False)
    return _with(events, _changed(_pop(call, outcome), later_ms=judge.WIRE_MS + 100))


def brought_back(events: Events) -> Events:
    call, outcome = _ended(events, "delete", broken=True)
    return _with(events, _changed(_pop(call, outcome), later_ms=2 * judge.WIRE_MS))


def _judged_holders(events: Events) -> tuple[Event, str]:
    """Returns a record of holders, and a timer in it that the judge checks."""
    for event in events:
        if event.kind != "holders":
            continue
        for timer_id in event["holders"]:
            without = {**event["holders"], timer_id: []}
            if judge.judge(_instead(events, event, _changed(event, holders=without))):
                return event, timer_id
    raise NoSuitableEvents("no holders were recorded")


def replica_lost(events: Events) -> Events:
    event, timer_id = _judged_holders(events)
    holders = {**event["holders"], timer_id: event["holders"][timer_id][1:]}
    return _instead(events, event, _changed(event, holders=holders))


def two_primaries(events: Events) -> Events:
    event, timer_id = _judged_holders(events)
    firsts = [(node, 0) for node, _ in event["holders"][timer_id]]
    return _instead(events, event, _changed(event, holders={**event["holders"], timer_id: firsts}))


INJECTIONS: Sequence[tuple[Injection, str]] = (
    (early, judge.EARLY),
    (late, judge.LATE),
    (lost, judge.LOST),
    (twice, judge.TWICE),
    (without_sequence, judge.UNMARKED),
    (one_pop_too_many, judge.UNMARKED),
    (under_another_id, judge.UNMARKED),
    (nobody_asked, judge.UNMARKED),
    (refused, judge.REFUSED_POPPED),
    (past_its_end, judge.PAST_END),
    (deleted_called, judge.DELETED_CALLED),
    (replaced_called, judge.REPLACED_CALLED),
    (brought_back, judge.REVIVED),
    (replica_lost, judge.REPLICAS),
    (two_primaries, judge.PRIMARY),
)
