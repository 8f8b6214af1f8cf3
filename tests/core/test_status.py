"""The status rule at the three instants: one millisecond before, at, and after `ts`."""

import pytest

from chronoline.core.status import Life, State, Status, state_of, status_of
from tests.core.rows import StoredRow

TS = 1_000
INSTANTS = (TS - 1, TS, TS + 1)


def states_of(life: Life, consumer: str | None = None) -> list[State]:
    row = StoredRow(life, TS, "group", consumer, version=1)
    return [state_of(row, now_ms) for now_ms in INSTANTS]


@pytest.mark.parametrize(("locked", "before"), [(False, Status.WAITING), (True, Status.PROCESSING)])
def test_status_at_the_three_instants(locked: bool, before: Status) -> None:
    statuses = [status_of(TS, locked, now_ms) for now_ms in INSTANTS]
    assert statuses == [before, Status.AVAILABLE, Status.AVAILABLE]


def test_state_without_a_row() -> None:
    assert state_of(None, TS) is State.NEW


def test_state_of_a_message_that_nobody_holds() -> None:
    assert states_of(Life.LIVE) == [State.WAITING, State.AVAILABLE, State.AVAILABLE]


def test_state_of_a_leased_message() -> None:
    assert states_of(Life.LIVE, "c") == [State.PROCESSING, State.LOST, State.LOST]


@pytest.mark.parametrize("consumer", [None, "c"])
def test_a_mark_holds_the_id_until_its_time(consumer: str | None) -> None:
    assert states_of(Life.GONE, consumer) == [State.DELETED, State.NEW, State.NEW]


def test_a_dead_letter_is_dead_at_any_time() -> None:
    assert states_of(Life.DEAD) == [State.DEAD] * 3
