"""Histories: the changes that the store confirmed to concurrent callers, checked against the rules.

Every change adds 1 to the version of its message, so the versions put all changes of a message in one
order, whichever caller made them. In that order each change must have been allowed at its own `now`, and
none is missing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from chronoline.core.permissions import Operation


@dataclass(frozen=True, kw_only=True)
class Event:
    """One change of one message that the store said was done."""

    id: str
    version: int
    did: Operation
    who: str
    now: int
    due: int = 0
    until: int = 0
    """The new `ts`, or the time until which a deleted id stays taken."""
    leased_at: int = 0
    """The version that a holder named."""
    reserve_ahead_ms: int = 0


@dataclass
class _State:
    version: int
    ts: int
    due: int
    holder: str | None = None
    deleted: bool = False


def by_message(events: Iterable[Event]) -> dict[str, list[Event]]:
    """The events of each message, in the order of their versions."""
    found: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        found[event.id].append(event)
    return {
        message_id: _without_repeated_cancels(sorted(history, key=lambda event: event.version))
        for message_id, history in found.items()
    }


def _without_repeated_cancels(history: list[Event]) -> list[Event]:
    """A cancel that another of the same group has made before is done too, with the same version.

    Nobody knows who was first, so what stays is the one that the rules allow most easily.
    """
    kept: list[Event] = []
    for event in history:
        last = kept[-1] if kept else None
        if last and last.did is event.did is Operation.CANCEL and last.version == event.version:
            now, until = max(last.now, event.now), min(last.until, event.until)
            kept[-1] = replace(last, now=now, until=until)
        else:
            kept.append(event)
    return kept


def check(events: Iterable[Event]) -> None:
    """Fails at the first change that the rules do not allow."""
    for history in by_message(events).values():
        for before, after in pairwise(history):
            assert before.version < after.version, f"one version twice: {before} and {after}"
        state: _State | None = None
        for event in history:
            state = _follow(state, event, history)


def _follow(state: _State | None, event: Event, history: list[Event]) -> _State:
    text = f"{event}, met {state}, in {history}"
    if event.did is Operation.CREATE:
        assert state is None or (state.deleted and state.ts <= event.now), text
        assert event.version == max(event.now, state.version + 1 if state else 0), text
        return _State(version=event.version, ts=event.due, due=event.due)
    assert state is not None, text
    assert not state.deleted, text
    assert event.version == state.version + 1, text
    live_lease = state.holder is not None and state.ts > event.now
    match event.did:
        case Operation.LEASE:
            ahead_ms = 0 if state.holder else event.reserve_ahead_ms
            assert state.ts <= event.now + ahead_ms, text
            assert event.due == state.due, text
        case Operation.RESCHEDULE | Operation.CANCEL:
            assert not live_lease, text
        case _:
            assert live_lease, text
            assert state.holder == event.who, text
            assert state.version == event.leased_at, text
    holder = event.who if event.did in (Operation.LEASE, Operation.EXTEND) else None
    deleted = event.did in (Operation.ACK, Operation.CANCEL)
    return _State(
        version=event.version, ts=event.until, due=event.due, holder=holder, deleted=deleted
    )
