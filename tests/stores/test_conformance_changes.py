"""Changes as values: one call makes those of one operation."""

from typing import Any

import pytest

from chronoline.core.change import CHANGES, Change, lease_change
from chronoline.core.errors import InvalidInput
from chronoline.core.message import After
from chronoline.core.permissions import Operation
from tests.stores.line import LEASE_MS, NOW, OWNERS, Line, MakeLine

LATER = NOW + LEASE_MS


@pytest.mark.parametrize("operation", sorted(CHANGES))
def test_apply_makes_every_change(make_line: MakeLine, operation: Operation) -> None:
    line = make_line(max_attempts=1)
    line.put("m")
    name = OWNERS
    change = Change(operation, "m", name, to=LATER)
    if operation in (Operation.REDRIVE, Operation.DISCARD):
        line.bury(line.take())
    elif operation not in (Operation.CANCEL, Operation.RESCHEDULE):
        change = lease_change(operation, line.take(), LATER, "no use")
    assert line.apply(change) == ["done"]
    assert line.reserved() == (["m"] if operation is Operation.UNRESERVE else [])


def test_apply_makes_a_relative_time_absolute(line: Line) -> None:
    line.put("m")
    change = lease_change(Operation.EXTEND, line.take(), After(5_000))
    (outcome,) = line.store.apply(line.uid, [change], now_ms=NOW)
    assert outcome.at == line["m"].ts == NOW + 5_000


def test_a_batch_of_changes_has_one_operation(line: Line) -> None:
    line.put("a", "b", "c")
    cancel = Change(Operation.CANCEL, "a", OWNERS)
    move = Change(Operation.RESCHEDULE, "b", OWNERS, to=LATER)
    bad: Any = ("c", OWNERS)
    assert line.apply(bad, cancel, move) == ["invalid", "done", "invalid"]
    assert line.reserved() == ["b", "c"]


@pytest.mark.parametrize("operation", sorted(set(Operation) - CHANGES))
def test_apply_makes_nothing_but_changes(line: Line, operation: Operation) -> None:
    with pytest.raises(InvalidInput, match="one of these operations"):
        line.apply(Change(operation, "m", OWNERS))


def test_a_lease_by_version_names_its_session(line: Line) -> None:
    line.put("m")
    grant = line.store.lease(
        line.uid, [("m", NOW)], consumer="c", lease_ms=LEASE_MS, session="i/s", now_ms=NOW
    )
    assert [each.lease.session for each in grant.leased] == ["i/s"]
    held = line.store.select_held(line.uid, "c", session="i/s", limit=10)
    assert [message.id for message in held.messages] == ["m"]
