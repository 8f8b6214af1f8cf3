"""The table of permissions is complete, and matches the documented rules."""

from itertools import product

import pytest

from chronoline.core.outcome import Refusal
from chronoline.core.permissions import (
    PERMISSIONS,
    Actor,
    Consumer,
    Operation,
    Producer,
    Role,
    System,
    refusal_of,
    role_of,
)
from chronoline.core.status import Life, State
from tests.core.rows import StoredRow

NOW = 1_000


def row(ts: int, consumer: str | None = None, life: Life = Life.LIVE) -> StoredRow:
    return StoredRow(life, ts, "owners", consumer, version=1)


def test_every_role_operation_and_state_has_a_verdict() -> None:
    assert set(PERMISSIONS) == set(product(Role, Operation))
    assert all(set(verdicts) == set(State) for verdicts in PERMISSIONS.values())


@pytest.mark.parametrize(("role", "operation"), list(product(Role, Operation)))
def test_a_released_message_is_treated_like_a_waiting_one(role: Role, operation: Operation) -> None:
    verdicts = PERMISSIONS[role, operation]
    assert verdicts[State.RELEASED] == verdicts[State.WAITING]


@pytest.mark.parametrize(("role", "state"), list(product(Role, State)))
def test_nobody_may_update_a_body(role: Role, state: State) -> None:
    assert PERMISSIONS[role, Operation.UPDATE_BODY][state] is Refusal.IMMUTABLE


@pytest.mark.parametrize(("role", "operation"), list(product(Role, Operation)))
def test_only_the_holder_changes_a_leased_message(role: Role, operation: Operation) -> None:
    allowed = PERMISSIONS[role, operation][State.PROCESSING] is None
    may_read = operation is Operation.READ_BODY and role in (Role.OWNER, Role.SYSTEM)
    with_the_lease = {
        Operation.READ_BODY,
        Operation.EXTEND,
        Operation.RELEASE,
        Operation.RETRY,
        Operation.BURY,
        Operation.UNRESERVE,
        Operation.ACK,
    }
    assert allowed == (may_read or (role is Role.HOLDER and operation in with_the_lease))


@pytest.mark.parametrize(
    ("role", "operation", "state", "verdict"),
    [
        (Role.OWNER, Operation.CREATE, State.NEW, None),
        (Role.OWNER, Operation.CREATE, State.DELETED, Refusal.EXISTS),
        (Role.OWNER, Operation.CANCEL, State.WAITING, None),
        (Role.OWNER, Operation.CANCEL, State.AVAILABLE, None),
        (Role.OWNER, Operation.CANCEL, State.PROCESSING, Refusal.LEASED),
        (Role.OWNER, Operation.RESCHEDULE, State.LOST, None),
        (Role.OWNER, Operation.ACK, State.PROCESSING, Refusal.NOT_ALLOWED),
        (Role.OTHER_PRODUCER, Operation.CANCEL, State.WAITING, Refusal.NOT_OWNER),
        (Role.OTHER_PRODUCER, Operation.READ_BODY, State.DEAD, Refusal.NOT_OWNER),
        (Role.HOLDER, Operation.ACK, State.PROCESSING, None),
        (Role.HOLDER, Operation.ACK, State.LOST, Refusal.LAPSED),
        (Role.HOLDER, Operation.BURY, State.PROCESSING, None),
        (Role.HOLDER, Operation.BURY, State.DEAD, Refusal.DEAD),
        (Role.HOLDER, Operation.CANCEL, State.PROCESSING, Refusal.NOT_ALLOWED),
        (Role.OTHER_CONSUMER, Operation.LEASE, State.LOST, None),
        (Role.OTHER_CONSUMER, Operation.LEASE, State.WAITING, Refusal.NOT_DUE),
        (Role.OTHER_CONSUMER, Operation.ACK, State.PROCESSING, Refusal.NOT_HOLDER),
        (Role.SYSTEM, Operation.PURGE, State.PROCESSING, Refusal.LEASED),
        (Role.SYSTEM, Operation.DEAD_LETTER, State.PROCESSING, Refusal.LEASED),
        (Role.SYSTEM, Operation.BURY, State.PROCESSING, Refusal.NOT_ALLOWED),
        (Role.SYSTEM, Operation.REDRIVE, State.DEAD, None),
        (Role.SYSTEM, Operation.CREATE, State.NEW, Refusal.NOT_ALLOWED),
    ],
)
def test_table_matches_the_documented_rules(
    role: Role, operation: Operation, state: State, verdict: Refusal | None
) -> None:
    assert PERMISSIONS[role, operation][state] is verdict


@pytest.mark.parametrize(
    ("actor", "role"),
    [
        (Producer("owners"), Role.OWNER),
        (Producer("others"), Role.OTHER_PRODUCER),
        (Consumer("c"), Role.HOLDER),
        (Consumer("d"), Role.OTHER_CONSUMER),
        (System(), Role.SYSTEM),
    ],
)
def test_the_role_of_an_actor(actor: Actor, role: Role) -> None:
    assert role_of(actor, row(NOW, "c")) is role


def test_producer_of_a_missing_message_is_its_owner() -> None:
    assert role_of(Producer("anyone"), None) is Role.OWNER
    assert role_of(Consumer("c"), None) is Role.OTHER_CONSUMER


@pytest.mark.parametrize(
    ("ts", "verdict"), [(NOW + 99, None), (NOW + 100, None), (NOW + 101, Refusal.NOT_DUE)]
)
def test_reservation_ahead_takes_unheld_messages(ts: int, verdict: Refusal | None) -> None:
    found = refusal_of(Operation.LEASE, Consumer("c"), row(ts), NOW, reserve_ahead_ms=100)
    assert found is verdict


@pytest.mark.parametrize(
    ("end", "verdict"), [(NOW - 1, None), (NOW, None), (NOW + 1, Refusal.LEASED)]
)
def test_a_reservation_ahead_never_takes_a_live_lease(end: int, verdict: Refusal | None) -> None:
    found = refusal_of(Operation.LEASE, Consumer("c"), row(end, "d"), NOW, reserve_ahead_ms=100)
    assert found is verdict


def test_reservation_ahead_never_takes_a_deleted_message() -> None:
    mark = row(NOW + 50, life=Life.GONE)
    found = refusal_of(Operation.LEASE, Consumer("c"), mark, NOW, reserve_ahead_ms=100)
    assert found is Refusal.DELETED
