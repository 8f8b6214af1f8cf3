"""Walks the whole table role × operation × state on every engine.

A message is brought into each state by real operations, each role tries each operation, and the
answer is what the table says. A refusal has changed nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product

import pytest

from chronoline.core.message import Lease
from chronoline.core.outcome import Grant, Outcome, Refusal
from chronoline.core.permissions import (
    PERMISSIONS,
    Actor,
    Consumer,
    Operation,
    Producer,
    Role,
    System,
)
from chronoline.core.status import State
from chronoline.stores.contract import Store
from tests.stores.line import NOW, OWNERS, Line, MakeLine, new

LATER = NOW + 1_000
DEDUPE = 5_000
HOLDER = "holder"
ID = "a"

ACTORS: dict[Role, Actor] = {
    Role.OWNER: Producer(OWNERS),
    Role.OTHER_PRODUCER: Producer("others"),
    Role.HOLDER: Consumer(HOLDER),
    Role.OTHER_CONSUMER: Consumer("another"),
    Role.SYSTEM: System(),
}
PRODUCERS = (Role.OWNER, Role.OTHER_PRODUCER)
CONSUMERS = (Role.HOLDER, Role.OTHER_CONSUMER)

ROLES: dict[Operation, tuple[Role, ...]] = {
    Operation.CREATE: PRODUCERS,
    Operation.READ_BODY: tuple(Role),
    Operation.UPDATE_BODY: (),
    Operation.LEASE: CONSUMERS,
    Operation.EXTEND: CONSUMERS,
    Operation.RELEASE: CONSUMERS,
    Operation.RETRY: CONSUMERS,
    Operation.BURY: CONSUMERS,
    Operation.UNRESERVE: CONSUMERS,
    Operation.ACK: CONSUMERS,
    Operation.RESCHEDULE: PRODUCERS,
    Operation.CANCEL: PRODUCERS,
    Operation.DEAD_LETTER: (Role.SYSTEM,),
    Operation.PURGE: (Role.SYSTEM,),
    Operation.REDRIVE: (*PRODUCERS, Role.SYSTEM),
    Operation.DISCARD: (*PRODUCERS, Role.SYSTEM),
}
"""The roles that can call each operation; the contract has no call for other roles."""

METHODS: dict[str, Operation | None] = {
    "create": Operation.CREATE,
    "bodies": Operation.READ_BODY,
    "reserve": Operation.LEASE,
    "reserve_for": Operation.LEASE,
    "lease": Operation.LEASE,
    "extend": Operation.EXTEND,
    "release": Operation.RELEASE,
    "retry": Operation.RETRY,
    "bury": Operation.BURY,
    "unreserve": Operation.UNRESERVE,
    "ack": Operation.ACK,
    "reschedule": Operation.RESCHEDULE,
    "cancel": Operation.CANCEL,
    "purge": Operation.PURGE,
    "redrive": Operation.REDRIVE,
    "discard": Operation.DISCARD,
    # They hand out what the table's lines for leases allow already, or look without a body.
    **dict.fromkeys(("resume", "select", "lookup", "select_held", "select_owned")),
    **dict.fromkeys(("count_owned", "next_group")),
    **dict.fromkeys(("select_prefix", "select_between", "rows")),
    **dict.fromkeys(("next_ts", "next_times")),
    **dict.fromkeys(
        ("count", "forecast", "scan", "scan_held", "dead_letters", "watch", "clock_ms", "close")
    ),
    **dict.fromkeys(("await_durable", "identity", "probe")),
    **dict.fromkeys(("create_topic", "ensure_topic", "get_topic", "find_topic")),
    **dict.fromkeys(("change_topic", "changed_topics", "pause_topic", "resume_topic")),
    **dict.fromkeys(("list_topics", "delete_topic", "deleted_topics", "together")),
    # The methods of the operations call it.
    "apply": None,
    # It creates, for the system.
    "restore": None,
    # They concern inputs and members; `take_in` creates, cancels and reschedules as a producer.
    **dict.fromkeys(("claim_inputs", "renew_claims", "release_claims", "take_in")),
    **dict.fromkeys(("input_accounts", "forget_inputs")),
    **dict.fromkeys(("beat", "members", "live_groups", "ask_to_stop", "leave")),
}
BESIDE_LEASE: dict[Operation, int | str] = {
    Operation.EXTEND: LATER,
    Operation.RELEASE: LATER,
    Operation.RETRY: LATER,
    Operation.BURY: "no use",
}
"""The arguments of a holder beside its lease."""
PAIRS = [(role, operation) for operation, roles in ROLES.items() for role in roles]


@dataclass
class Met:
    """A message in a state, and the last lease that the holder was given on it."""

    line: Line
    state: State
    lease: Lease

    @property
    def version(self) -> int:
        found = self.line.store.lookup(self.line.uid, [ID])
        return found[ID].version if found else self.lease.version

    def snapshot(self) -> object:
        """Everything that can be seen of the message, and of the mark that it left."""
        line = self.line
        bodies = line.store.bodies(line.uid, [ID], actor=System(), now_ms=line.now)
        mark = None
        if self.state is State.DELETED:
            mark = line.store.ack(line.uid, [self.lease], now_ms=line.now)
        return line.store.lookup(line.uid, [ID]), line.dead(), bodies, line.next_ts(), mark


def meet(line: Line, state: State, *, expires: bool) -> Met:
    """Brings a message into a state, which it is in at NOW; if it expires, then right after due."""
    line.now = NOW - 500
    no_lease = Lease(id=ID, consumer=HOLDER, version=NOW, until=NOW)
    if state is State.NEW:
        line.now = NOW
        return Met(line, state, no_lease)
    due = LATER if state is State.WAITING else line.now
    line.put(ID, due=due, expires=due + 1 if expires else None, body=b"x")
    if state in (State.WAITING, State.AVAILABLE):
        line.now = NOW
        return Met(line, state, no_lease)
    lease = line.take(HOLDER, lease_ms=100 if state is State.LOST else 5_000)
    match state:
        case State.RELEASED:
            assert line.release(lease, LATER) == "done"
        case State.DELETED:
            assert line.ack(lease) == ["done"]
        case State.DEAD:
            assert line.retry(lease, LATER) == "done"
    line.now = NOW
    return Met(line, state, lease)


def attempt(met: Met, operation: Operation, actor: Actor) -> Refusal | None:  # noqa: PLR0911
    """Makes the change in the store and returns the refusal."""
    store, uid, now = met.line.store, met.line.uid, met.line.now
    match operation, actor:
        case Operation.READ_BODY, _:
            bodies = store.bodies(uid, [ID], actor=actor, now_ms=now)
            return None if bodies.found == {ID: b"x"} else only(bodies.refused)
        case Operation.CREATE, Producer(group):
            young = new(ID, producer_group=group)
            return only(store.create(uid, [young], now_ms=now))
        case Operation.RESCHEDULE, Producer(group):
            return only(store.reschedule(uid, [(ID, LATER)], producer_group=group, now_ms=now))
        case Operation.CANCEL, Producer(group):
            return only(store.cancel(uid, [ID], producer_group=group, now_ms=now))
        case Operation.LEASE, Consumer(name):
            return leased(met, name)
        case _, Consumer(name):
            return with_lease(met, operation, name)
        case Operation.REDRIVE, Producer(group):
            return only(store.redrive(uid, [ID], due=NOW, producer_group=group, now_ms=now))
        case Operation.DISCARD, Producer(group):
            return only(store.discard(uid, [ID], producer_group=group, now_ms=now))
        case Operation.REDRIVE, System():
            return only(store.redrive(uid, [ID], due=NOW, now_ms=now))
        case Operation.DISCARD, System():
            return only(store.discard(uid, [ID], now_ms=now))
        case Operation.DEAD_LETTER, System():
            return dead_lettered(met)
        case Operation.PURGE, System():
            return purged(met)
    raise AssertionError(f"there is no way to {operation} as {actor}")


def only(outcomes: list[Outcome] | tuple[Outcome, ...]) -> Refusal | None:
    (outcome,) = outcomes
    return outcome.refusal


def with_lease(met: Met, operation: Operation, consumer: str) -> Refusal | None:
    """A lease that names the current version, and so is refused for no other reason than its state.

    The mark of an ack is the exception: there it would be a repeated ack, which is done.
    """
    version = met.version - 1 if met.state is State.DELETED else met.version
    lease = Lease(id=ID, consumer=consumer, version=version, until=LATER)
    method = getattr(met.line.store, operation.value)
    item = (lease, BESIDE_LEASE[operation]) if operation in BESIDE_LEASE else lease
    return only(method(met.line.uid, [item], now_ms=met.line.now))


def leased(met: Met, consumer: str) -> Refusal | None:
    """By (id, version), and by range, which must agree."""
    before = met.snapshot()
    by_id = met.line.lease((ID, met.version), consumer=consumer)
    if not by_id.leased:
        assert met.snapshot() == before
        assert replace(met.line.reserve(consumer), clear_ms=0) == Grant()
        return only(by_id.refused)
    (taken,) = by_id.leased
    assert taken.lease.consumer == consumer
    return None


def dead_lettered(met: Met) -> Refusal | None:
    """The system sends a message to the dead letters when someone would lease it, and it expired."""
    grant = met.line.lease((ID, met.version), consumer="reaper")
    assert grant.leased == ()
    (outcome,) = grant.refused
    if "sent to the dead letters" in outcome.reason:
        assert [letter.reason for letter in met.line.dead()] == ["expired"]
        return None
    return outcome.refusal


def purged(met: Met) -> Refusal | None:
    """Purges the store, which takes no ids. Returns the refusal of the table for a row that stays.

    A purge may remove only a mark, after its dedupe time.
    """
    before = met.snapshot()
    assert met.line.purge() == 0
    assert met.snapshot() == before
    met.line.now += DEDUPE
    removed = met.line.purge() == 1
    met.line.now -= DEDUPE
    return None if removed else PERMISSIONS[Role.SYSTEM, Operation.PURGE][met.state]


@pytest.mark.parametrize(("role", "operation"), PAIRS)
def test_the_table_on_every_engine(make_line: MakeLine, role: Role, operation: Operation) -> None:
    answers: dict[State, Refusal | None] = {}
    for state in State:
        line = make_line(max_attempts=1 if state is State.DEAD else 20, dedupe_ms=DEDUPE)
        met = meet(line, state, expires=operation is Operation.DEAD_LETTER)
        before = met.snapshot()
        answers[state] = attempt(met, operation, ACTORS[role])
        if answers[state] is not None or operation is Operation.READ_BODY:
            assert met.snapshot() == before
        else:
            assert met.snapshot() != before
    assert answers == PERMISSIONS[role, operation]


@pytest.mark.parametrize(("role", "operation"), list(product(Role, Operation)))
def test_role_without_a_method_is_denied(role: Role, operation: Operation) -> None:
    if role in ROLES[operation]:
        assert any(verdict is None for verdict in PERMISSIONS[role, operation].values()) or (
            role in (Role.OTHER_PRODUCER, Role.OTHER_CONSUMER)
        )
    else:
        refusal = Refusal.IMMUTABLE if operation is Operation.UPDATE_BODY else Refusal.NOT_ALLOWED
        assert set(PERMISSIONS[role, operation].values()) == {refusal}


def test_the_contract_has_no_other_methods() -> None:
    public = {
        name for name, each in vars(Store).items() if not name.startswith("_") and callable(each)
    }
    assert public == set(METHODS)
    without_method = set(Operation) - set(METHODS.values())
    # The system makes dead letters while it leases; no method updates a body.
    assert without_method == {Operation.UPDATE_BODY, Operation.DEAD_LETTER}


def says_who(method: str) -> set[str]:
    """Returns the kinds of callers that the parameters of a method name."""
    parameters = signature(getattr(Store, method)).parameters
    ways: dict[str, Callable[[str], bool]] = {
        "producer": lambda name: name in ("producer_group", "messages"),
        "consumer": lambda name: name in ("consumer", "recipients", "leases"),
        "anyone": lambda name: name == "actor",
    }
    return {way for way, fits in ways.items() if any(map(fits, parameters))}


@pytest.mark.parametrize("method", [name for name, operation in METHODS.items() if operation])
def test_a_method_is_called_in_one_kind_of_role(method: str) -> None:
    operation = METHODS[method]
    assert operation is not None
    kinds = {
        PRODUCERS: {"producer"},
        CONSUMERS: {"consumer"},
        tuple(Role): {"anyone"},
        (*PRODUCERS, Role.SYSTEM): {"producer"},  # without a group it is the system
        (Role.SYSTEM,): set(),
    }
    assert says_who(method) == kinds[ROLES[operation]]
