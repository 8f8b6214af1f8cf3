"""Accounts of inputs: who takes in which partition of a source, and up to where it was taken in.

A pipe reads a source (a Kafka topic, a topic of the log) and puts what it finds on a timeline. The position
of each partition is kept in the store and moved in the transaction that changes the timeline. So a batch that
runs again, a lost checkpoint or a second pipe adds nothing, also when its messages have been fired since.

A partition is claimed until a moment, under a fence that grows with each claim: whoever lost it is refused.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import NamedTuple

from chronoline.core.errors import ChronolineError
from chronoline.core.message import NewMessage


class ClaimLost(ChronolineError):
    """The claim on the input is over, or another has it; nothing was changed."""


class Cancel(NamedTuple):
    """Asks that a message of the pipe's be cancelled."""

    id: str


class Reschedule(NamedTuple):
    """Asks that a message of the pipe's be moved."""

    id: str
    due: int


class Rejected(NamedTuple):
    """A record that can be no message: it is kept among the dead letters as it is.

    The limits on keys and headers do not hold for it.
    """

    message: NewMessage


Entry = NewMessage | Cancel | Reschedule | Rejected


class InputRecord(NamedTuple):
    """What a record asks for, and where it stood in its partition."""

    offset: int
    entry: Entry


class InputClaim(NamedTuple):
    """The right to take in one partition of a source until a moment."""

    source: str
    partition: int
    holder: str
    fence: int
    """Grows with each claim, and names it."""
    until_ms: int
    position: int
    """The next offset to take in, when it was claimed or renewed."""


class Intake(NamedTuple):
    """Some records of one partition, in their order, and the offset behind the last that was looked at."""

    claim: InputClaim
    records: Sequence[InputRecord]
    upto: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of records; each one that was taken in is in exactly one of these."""

    accepted: int = 0
    """Became messages."""
    ignored: int = 0
    """Their ids were on the timeline already."""
    rejected: int = 0
    """Could be no messages, and are among the dead letters."""
    cancelled: int = 0
    """Cancelled a message."""
    rescheduled: int = 0
    """Moved a message."""
    missed: int = 0
    """Asked for a message that was not there, or could not be changed any more."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(operator.add, astuple(self), astuple(other)))

    @property
    def total(self) -> int:
        return sum(astuple(self))

    def by_name(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAccount:
    """What is known of one partition of a source."""

    partition: int
    position: int
    tally: Tally
    holder: str | None
    until_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What became of the records of one intake."""

    skipped: int
    """How many had been taken in before; they changed nothing and are not counted again."""
    tally: Tally


class Inputs(ABC):
    """The accounts of a store."""

    @abstractmethod
    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        """Claims those partitions that nobody has, and one's own again under a new fence.

        `starts` says for each partition where it begins if it is new to the store.
        """

    @abstractmethod
    def renew_claims(
        self, claims: Sequence[InputClaim], *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        """Moves the end of those claims that live; the others are over or lost."""

    @abstractmethod
    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        """Gives up those that are still one's own."""

    @abstractmethod
    def take_in(
        self, topic_uid: int, intakes: Sequence[Intake], *, producer_group: str, now_ms: int
    ) -> list[TakenIn]:
        """Does what the records ask for and moves each position to `upto`, all in one transaction.

        Records below the position were taken in before and are skipped. The others are done in their
        order: messages are created, with the first of an id counting; cancels and reschedules are those of
        `producer_group`. At most 10,000 records in all. Raises `ClaimLost` unless every claim lives, and
        `InvalidInput` if one of the records is not valid; then nothing was changed.
        """

    @abstractmethod
    def input_accounts(self, source: str) -> list[InputAccount]:
        """The accounts of a source, by partition."""

    @abstractmethod
    def forget_inputs(self, source: str, *, now_ms: int) -> int:
        """Forgets those partitions of a source that nobody claims; says how many.

        Whoever claims them next begins anew, and takes in again what was taken in before.
        """
