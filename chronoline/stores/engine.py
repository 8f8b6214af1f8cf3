"""The contract of an engine: the primitives that `Timeline` is built on, and the values they pass.

Primitives get valid input in which no id occurs twice, and answer what they did. They name no refusals:
`Timeline` looks up the rows of the items that a primitive did not change.

A primitive whose first argument is `connection` works inside the transaction of that connection. None stands
for a transaction of its own, which is committed when the primitive returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from chronoline.core.change import Change
from chronoline.core.expiry import DeathReason
from chronoline.core.message import DeadLetter, Header, Message, NewMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.schedule import Schedule
from chronoline.core.topic import Topic
from chronoline.runtime.partner_traffic import PartnerTraffic
from chronoline.stores.contract import (
    Capabilities,
    Counts,
    Notice,
    Reach,
    Recipient,
    Result,
    StoredRow,
    Watch,
)
from chronoline.stores.inputs import InputAccount, InputClaim, Tally
from chronoline.stores.members import Member
from chronoline.stores.schedules import SchedulePlace
from chronoline.stores.stripes import Cell

Connection = TypeVar("Connection")
Answer = TypeVar("Answer")
FLOOR_KEPT_MS = 60_000
"""The floor of a removed schedule is kept this long: no broker takes longer to make a schedule."""
Key = tuple[int, str]
"""The place of a row in its topic: bucket and id."""
NewRows = Sequence[tuple[int, NewMessage]]
"""New messages, each behind its bucket."""
ChangedRows = Sequence[tuple[int, Change]]
"""Changes of one operation, each behind its bucket."""
Partition = tuple[str, int]
"""A source and one of its partitions."""


class LeaseRequest(NamedTuple):
    """The part of a request for leases that all its messages share."""

    consumer: str
    lease_ms: int
    reserve_ahead_ms: int
    session: str | None
    now_ms: int
    since_ms: int = 0


def request_of(recipient: Recipient, shared: LeaseRequest) -> LeaseRequest:
    """The request of one of several recipients."""
    return shared._replace(consumer=recipient.consumer, session=recipient.session or None)


class ResumeRequest(NamedTuple):
    """The live leases that a returning consumer wants back, and the session that takes them."""

    consumer: str
    session: str | None
    after: str
    limit: int
    now_ms: int


class Taken(NamedTuple):
    """A message that an engine leased, or sent to the dead letters instead."""

    message: Message
    body: bytes | None
    redelivered: bool
    death: DeathReason | None
    taken_from: str | None = None
    """The holder of its last lease, which lapsed."""
    resumed_from: str | None = None
    """The session that held it before it was resumed."""


class Reserved(NamedTuple):
    """The messages that a reservation took."""

    taken: list[Taken]
    more: bool
    """The limit was reached, so there may be more."""
    clear_ms: int = 0
    """As `Grant.clear_ms`."""


class Span(NamedTuple):
    """A stretch of the timeline that is counted in steps."""

    start: int
    end: int
    step_ms: int
    now_ms: int


class Ids(NamedTuple):
    """A stretch of ids."""

    after: str = ""
    """They lie behind it."""
    first: str = ""
    """The first that they may be."""
    end: str = ""
    """They lie before it; only `select_keys` reads it."""


class InputMove(NamedTuple):
    """The new position of a partition, and the records that it adds to the counts."""

    partition: Partition
    upto: int
    tally: Tally


class KeptLetter(NamedTuple):
    """A dead letter that gets a new key, because a new message needs its id."""

    key: Key
    kept: Key
    header: Header


class RestoredRow(NamedTuple):
    """The history of a message that is restored."""

    key: Key
    due: int
    attempts: int
    death: str | None
    """Why it died, of a dead letter."""
    died: int


class EarlyCancel(NamedTuple):
    """A cancel that found no message, and waits for it until a moment."""

    key: Key
    partition: str
    until_ms: int


class ScheduleMove(NamedTuple):
    """The next time of a schedule, if it has this state."""

    name: str
    uid: int
    version: int
    next_ms: int | None


class RowsHeld(Exception):
    """Raised by an engine: other transactions hold some rows of a batch, and all others are done."""

    def __init__(self, made: dict[str, int], held: frozenset[str]) -> None:
        super().__init__(f"{len(held)} rows are held by other transactions")
        self.made = made
        self.held = held


class Engine(Protocol[Connection]):
    """A database of topics, messages, input accounts and members. Thread-safe."""

    capabilities: Capabilities
    traffic: PartnerTraffic | None = None
    """That with the database's server, if it has one."""

    # Transactions

    def transact(self, work: Callable[[Connection], Answer]) -> Answer:
        """Runs `work` in one transaction, which is rolled back if it raises.

        An engine may run it again if the database gave the transaction up.
        """

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        """Runs works that call this engine without a connection, and answers what each returned or raised.

        An engine whose writes exclude each other commits them together; here each call is a commit.
        """
        return [_result_of(work) for work in works]

    # Topics

    def insert_topic(self, topic: Topic) -> bool:
        """False if its name or its uid is taken."""

    def is_name_taken(self, name: str) -> bool:
        """Whether a topic has that name, or a deleted one keeps it until its messages are removed."""

    def fetch_topic(self, connection: Connection | None, uid: int) -> Topic | None:
        """The live topic with this uid."""

    def find_topic(self, name: str) -> Topic | None: ...

    def list_topics(self) -> list[Topic]: ...

    def deleted_topics(self) -> list[Topic]: ...

    def changed_topics(self) -> list[Topic]: ...

    def change_topic(self, topic: Topic) -> bool:
        """Writes settings and pause of a live topic that still has this revision, and adds 1 to it.

        False if it does not.
        """

    def delete_topic(self, uid: int, now_ms: int) -> bool: ...

    # Changes

    def create(
        self,
        connection: Connection | None,
        topic: Topic,
        messages: NewRows,
        replace: bool,
        now_ms: int,
    ) -> dict[str, int]:
        """Creates (bucket, message) where the id is free, and answers the versions of those it created."""

    def change(
        self,
        connection: Connection | None,
        topic: Topic,
        changes: ChangedRows,
        now_ms: int,
    ) -> dict[str, int]:
        """Makes each (bucket, change) whose guard holds, and answers the new versions."""

    def reject(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        """Sends messages that were just created to the dead letters."""

    def restore(
        self, connection: Connection | None, topic: Topic, rows: Sequence[RestoredRow]
    ) -> None:
        """Gives messages that were just created their saved history."""

    def keep_letters(
        self, connection: Connection | None, topic: Topic, letters: Sequence[KeptLetter]
    ) -> set[str]:
        """Copies dead letters to new keys, with one more header, and answers the ids that it copied."""

    def mark_early(
        self,
        connection: Connection | None,
        topic: Topic,
        cancels: Sequence[EarlyCancel],
        producer_group: str,
        now_ms: int,
    ) -> set[str]:
        """Makes marks that take their ids until a moment, where the id is free or so marked already.

        Answers the ids of those that it made.
        """

    def free(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key], now_ms: int
    ) -> None:
        """Turns dead letters and marks into marks that take no id; they only keep the version."""

    # Leases

    def reserve(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, request: LeaseRequest
    ) -> Reserved:
        """Leases the oldest messages; none of a paused topic."""

    def reserve_for(
        self, topic: Topic, recipients: Sequence[Recipient], request: LeaseRequest
    ) -> list[Reserved]:
        """Leases the oldest messages of each recipient, in one write.

        The consumer and the session are those of the recipients, and not of the request.
        """

    def lease(self, topic: Topic, wanted: ChangedRows, request: LeaseRequest) -> list[Taken]:
        """Leases those messages that have the version of their (bucket, change)."""

    def resume(self, topic: Topic, request: ResumeRequest) -> list[Taken]: ...

    # Reads

    def rows(
        self, connection: Connection | None, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, StoredRow]:
        """The rows at these keys by id, marks and dead letters included; none of a deleted topic."""

    def lookup(self, topic: Topic, keys: Sequence[Key]) -> Iterable[Message]: ...

    def bodies(
        self, topic: Topic, keys: Sequence[Key]
    ) -> dict[str, tuple[StoredRow, bytes | None]]: ...

    def select(
        self, topic: Topic, ranges: Sequence[BucketRange], limit: int, max_ts: int
    ) -> list[Message]: ...

    def select_held(
        self, topic: Topic, consumer: str, session: str | None, ids: Ids, limit: int
    ) -> list[Message]: ...

    def select_owned(
        self, topic: Topic, producer_group: str, ids: Ids, limit: int
    ) -> list[Message]: ...

    def select_keys(
        self, topic: Topic, buckets: BucketRange, ids: Ids, limit: int
    ) -> list[Message]:
        """Messages of some buckets by (bucket, id). `ids.after` holds in the first bucket alone."""

    def next_group(self, topic: Topic, after: str) -> str | None:
        """The first producer group behind a name."""

    def count_owned(self, topic: Topic, producer_group: str, most: int) -> int:
        """The number of a producer group's messages, `most` at most."""

    def next_times(self, topic: Topic, shares: Sequence[Sequence[BucketRange]]) -> list[int | None]:
        """The oldest position of each share; None also if the topic was deleted, or is paused."""

    def forecast(
        self, topic: Topic, ranges: Sequence[BucketRange], span: Span
    ) -> dict[int, Counts]:
        """Counts by the number of the step; empty steps may be missing."""

    def scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        """Messages of a cell in the order of (ts, id), behind `after` and before the moment `end`."""

    def scan_held(self, topic: Topic, after: tuple[str, str], limit: int) -> list[Message]:
        """Messages that name a holder, in the order of (holder, id), behind `after`."""

    def dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        """The dead letters whose (died, id) lies behind `after`."""

    # Upkeep

    def raise_floors(self, uids: Sequence[int], now_ms: int) -> None:
        """Allows that rows of these topics whose versions are settled are removed without a mark.

        New messages begin above a topic's floor. An engine also raises it when it purges marks and dead
        letters, in the same transaction.
        """

    def purge(self, limit: int, now_ms: int) -> int: ...

    def announce(self, connection: Connection | None, notice: Notice) -> None:
        """Sends a notice to the watches of this store, in this process and others."""

    def watch(self) -> Watch: ...

    def probe(self, patience_s: float) -> Reach: ...

    def clock_ms(self) -> int | None: ...

    def await_durable(self, connection: Connection | None) -> None:
        """Waits until everything that was read before is as durable as a write.

        With a connection its commit waits, and not the call. Here nobody sees a change before it is durable.
        """
        return

    def identity(self) -> str: ...

    def close(self) -> None: ...

    # Inputs

    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, until_ms: int, now_ms: int
    ) -> list[InputClaim]: ...

    def renew_claims(
        self, claims: Sequence[InputClaim], until_ms: int, now_ms: int
    ) -> list[InputClaim]: ...

    def release_claims(self, claims: Sequence[InputClaim]) -> None: ...

    def positions(
        self, connection: Connection | None, claims: Sequence[InputClaim], now_ms: int
    ) -> dict[Partition, int]:
        """The positions of live claims; nobody else moves them until the transaction ends."""

    def move_inputs(self, connection: Connection | None, moves: Sequence[InputMove]) -> None:
        """Moves positions, never backwards, and adds to the counts."""

    def input_accounts(self, source: str) -> list[InputAccount]: ...

    def forget_inputs(self, source: str, now_ms: int) -> int: ...

    # Members

    def beat(
        self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int
    ) -> None: ...

    def members(self, group: str) -> list[Member]: ...

    def live_groups(self, now_ms: int) -> frozenset[str]: ...

    def ask_to_stop(self, group: str, name: str | None) -> int: ...

    def leave(self, group: str, name: str) -> None: ...

    # Schedules

    def insert_schedule(self, connection: Connection | None, schedule: Schedule) -> bool:
        """False if a schedule whose topic lives has its name, or its own topic was deleted.

        A removed one keeps its name from schedules with a `next_ms` up to its floor.
        """

    def replace_schedule(
        self, connection: Connection | None, schedule: Schedule, instead_of: Schedule
    ) -> bool:
        """False unless `instead_of` is the state of the row, or if the topic was deleted."""

    def remove_schedule(
        self, connection: Connection | None, schedule: Schedule, floor_ms: int
    ) -> bool:
        """Turns the row into one of `NO_TOPIC`, which has the next version and `floor_ms` as its `next_ms`.

        `purge` deletes it `FLOOR_KEPT_MS` after its floor.
        """

    def schedule_floor_ms(self, name: str) -> int:
        """The floor of a removed schedule, or 0."""

    def move_schedules(
        self, connection: Connection | None, moves: Sequence[ScheduleMove]
    ) -> set[str]:
        """Moves schedules that have their states, are not paused and whose topics live.

        Rows that other transactions hold may be passed over. Answers the names of those that it moved; nobody
        else changes them until the transaction ends.
        """

    def find_schedule(self, name: str) -> Schedule | None: ...

    def list_schedules(self, topic_uid: int | None, after: str, limit: int) -> list[Schedule]: ...

    def count_schedules(self, topic_uid: int, most: int) -> int: ...

    def due_schedules(self, before_ms: int, after: SchedulePlace, limit: int) -> list[Schedule]: ...

    def next_schedule_ms(self, after_ms: int) -> int | None: ...


def _result_of(work: Callable[[], Result]) -> Result | Exception:
    try:
        return work()
    except Exception as error:
        return error
