"""Operations on messages, as data: who may do them in which state, and the traits of those that are changes.

Every engine keeps the table of permissions in the write itself. The memory engine asks it directly; the SQL
engines say the same in their conditions, and use it to name the reason of a refusal. One test walks the whole
product role x operation x state on every engine.

The traits are for the layers that treat changes by their kind: the guards of the stores, the broker and its
metrics, the command. A new operation with traits that others have already needs no code there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from chronoline.core.outcome import Refusal
from chronoline.core.status import Life, Row, State, state_of


class Role(StrEnum):
    OWNER = "owner"
    OTHER_PRODUCER = "other_producer"
    HOLDER = "holder"
    """The consumer that the message names, whether its lease lives or has lapsed."""
    OTHER_CONSUMER = "other_consumer"
    SYSTEM = "system"


class Operation(StrEnum):
    CREATE = "create"
    READ_BODY = "read_body"
    UPDATE_BODY = "update_body"
    LEASE = "lease"
    EXTEND = "extend"
    RELEASE = "release"
    RETRY = "retry"
    BURY = "bury"
    UNRESERVE = "unreserve"
    ACK = "ack"
    RESCHEDULE = "reschedule"
    CANCEL = "cancel"
    DEAD_LETTER = "dead_letter"
    PURGE = "purge"
    REDRIVE = "redrive"
    DISCARD = "discard"


class Effect(Enum):
    """The state in which a change leaves its message."""

    EXTENDS = auto()
    """Leased, until another time."""
    MOVES = auto()
    """On its timeline, not leased: at the change's time, or without one at a time that the write finds."""
    RETRIES = auto()
    """Like `MOVES`; after the last attempt like `BURIES`."""
    BURIES = auto()
    """Among the dead letters."""
    DELETES = auto()
    """Deleted. Besides its query, each SQL engine has one for topics without a dedupe time: `NAME_remove`."""


class NewTime(Enum):
    """The time that a change takes."""

    NONE = auto()
    ANY = auto()
    """Also one in the past. A delay begins when the broker gets the request."""
    AHEAD = auto()
    """At least `MIN_LEASE_MS` ahead. A delay begins at the store's write."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The kind of a change, for the layers that have no rule for its operation by name."""

    role: Role
    """The role that may make it: the holder of a live lease, the owner, or for dead letters the system. Their
    owner may change them too."""
    effect: Effect
    time: NewTime = NewTime.NONE
    counted_as: str = ""
    """The `op` under which metrics count the messages; empty if they do not."""


TRAITS: Mapping[Operation, Traits] = {
    Operation.EXTEND: Traits(Role.HOLDER, Effect.EXTENDS, NewTime.AHEAD, "extend"),
    Operation.RELEASE: Traits(Role.HOLDER, Effect.MOVES, NewTime.AHEAD, "released"),
    Operation.RETRY: Traits(Role.HOLDER, Effect.RETRIES, NewTime.AHEAD, "released"),
    Operation.BURY: Traits(Role.HOLDER, Effect.BURIES, counted_as="buried"),
    Operation.UNRESERVE: Traits(Role.HOLDER, Effect.MOVES, counted_as="unreserved"),
    Operation.ACK: Traits(Role.HOLDER, Effect.DELETES, counted_as="delete"),
    Operation.RESCHEDULE: Traits(Role.OWNER, Effect.MOVES, NewTime.ANY, "rescheduled"),
    Operation.CANCEL: Traits(Role.OWNER, Effect.DELETES, counted_as="delete"),
    Operation.REDRIVE: Traits(Role.SYSTEM, Effect.MOVES, NewTime.ANY),
    Operation.DISCARD: Traits(Role.SYSTEM, Effect.DELETES),
}
"""The operations that change messages one by one.

Each change of owners is a command, a function of its name in `cli.messages`. The help keeps this order.
"""


def changes_with(trait: Role | Effect | NewTime) -> frozenset[Operation]:
    """The changes that have a trait."""
    return frozenset(
        each
        for each, traits in TRAITS.items()
        if trait in (traits.role, traits.effect, traits.time)
    )


@dataclass(frozen=True, slots=True)
class Producer:
    """A caller in the role of a producer of this group."""

    group: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A caller in the role of this consumer."""

    name: str


@dataclass(frozen=True, slots=True)
class System:
    """Chronoline itself: purging, dead-lettering, and reading for analysis."""


Actor = Producer | Consumer | System

# A repeated ack or cancel by the same hand meets "deleted" and is done all the same. A purge waits until the
# dedupe time is over.
# "yes", or the refusal. "*" as an operation stands for all that the role's other lines do not name.
_TABLE = """
role            operation    new         waiting     available   processing  lost        released    deleted     dead
owner           create       yes         exists      exists      exists      exists      exists      exists      exists
owner           read_body    not_found   yes         yes         yes         yes         yes         deleted     yes
owner           update_body  immutable   immutable   immutable   immutable   immutable   immutable   immutable   immutable
owner           reschedule   not_found   yes         yes         leased      yes         yes         deleted     dead
owner           cancel       not_found   yes         yes         leased      yes         yes         deleted     dead
owner           redrive      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     yes
owner           discard      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     yes
owner           *            not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed
other_producer  create       yes         exists      exists      exists      exists      exists      exists      exists
other_producer  read_body    not_found   not_owner   not_owner   not_owner   not_owner   not_owner   deleted     not_owner
other_producer  update_body  immutable   immutable   immutable   immutable   immutable   immutable   immutable   immutable
other_producer  reschedule   not_found   not_owner   not_owner   not_owner   not_owner   not_owner   deleted     not_owner
other_producer  cancel       not_found   not_owner   not_owner   not_owner   not_owner   not_owner   deleted     not_owner
other_producer  redrive      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     not_owner
other_producer  discard      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     not_owner
other_producer  *            not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed
holder          read_body    not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          update_body  immutable   immutable   immutable   immutable   immutable   immutable   immutable   immutable
holder          lease        not_found   not_due     yes         leased      yes         not_due     deleted     dead
holder          extend       not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          release      not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          retry        not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          bury         not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          unreserve    not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          ack          not_found   not_holder  not_holder  yes         lapsed      not_holder  deleted     dead
holder          *            not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed
other_consumer  read_body    not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  update_body  immutable   immutable   immutable   immutable   immutable   immutable   immutable   immutable
other_consumer  lease        not_found   not_due     yes         leased      yes         not_due     deleted     dead
other_consumer  extend       not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  release      not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  retry        not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  bury         not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  unreserve    not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  ack          not_found   not_holder  not_holder  not_holder  not_holder  not_holder  deleted     dead
other_consumer  *            not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed
system          read_body    not_found   yes         yes         yes         yes         yes         deleted     yes
system          update_body  immutable   immutable   immutable   immutable   immutable   immutable   immutable   immutable
system          dead_letter  not_found   not_due     yes         leased      yes         not_due     deleted     dead
system          purge        not_found   not_allowed not_allowed leased      not_allowed not_allowed yes         not_allowed
system          redrive      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     yes
system          discard      not_found   not_dead    not_dead    not_dead    not_dead    not_dead    deleted     yes
system          *            not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed not_allowed
"""  # noqa: E501 - a table reads best with its columns side by side


def _parse(table: str) -> dict[tuple[Role, Operation], dict[State, Refusal | None]]:
    header, *lines = (line.split() for line in table.strip().splitlines())
    states = [State(name) for name in header[2:]]
    verdicts: dict[tuple[Role, Operation], dict[State, Refusal | None]] = {}
    for role, operation, *cells in lines:
        refusals = [None if cell == "yes" else Refusal(cell) for cell in cells]
        named = list(Operation) if operation == "*" else [Operation(operation)]
        for each in named:
            verdicts.setdefault((Role(role), each), dict(zip(states, refusals, strict=True)))
    return verdicts


PERMISSIONS = _parse(_TABLE)


def role_of(actor: Actor, row: Row | None) -> Role:
    """The role of an actor towards a message. The creator of a message that is not there is its owner."""
    match actor:
        case Producer(group):
            owns = row is None or row.producer_group == group
            return Role.OWNER if owns else Role.OTHER_PRODUCER
        case Consumer(name):
            holds = row is not None and row.lock_consumer == name
            return Role.HOLDER if holds else Role.OTHER_CONSUMER
        case System():
            return Role.SYSTEM


def refusal_of(
    operation: Operation, actor: Actor, row: Row | None, now_ms: int, *, reserve_ahead_ms: int = 0
) -> Refusal | None:
    """None if the table allows it, else the reason.

    A reservation looks ahead, but only at messages that nobody holds: a lease that is about to end
    is met again when it has ended.
    """
    free = row is not None and row.life is Life.LIVE and row.lock_consumer is None
    ahead_ms = reserve_ahead_ms if free else 0
    state = state_of(row, now_ms + ahead_ms)
    return PERMISSIONS[role_of(actor, row), operation][state]
