"""Accounts of inputs: the holder and the position of each partition of a source.

A pipe reads a source (a Kafka topic, a topic of the log) and puts its records on a timeline. The store keeps
the position of each partition, and moves it in the transaction that changes the timeline. So a batch that
runs again, a lost checkpoint or a second pipe adds nothing, also when its messages have been fired since.

A claim on a partition lasts until a moment and has a fence, which grows with each claim. A holder whose claim
was lost is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from typing import NamedTuple

from chronoline.core.errors import ChronolineError
from chronoline.core.message import NewMessage

KEPT_ID_HEADER = "chronosDeadLetterId"
"""The id of a dead letter until a new message took it."""
MAX_EARLY_CANCEL_MS = 60_000
"""A cancel waits at most this long for its create."""


class ClaimLost(ChronolineError):
    """The claim on the input is over, or another has it; nothing was changed."""


class InputGap(ChronolineError):
    """Records between the position and the first one that was read would be lost; nothing was changed."""


class Cancel(NamedTuple):
    """A record that cancels a message of the pipe's."""

    id: str
    wait_ms: int = 0
    """How long it waits for a create from another partition if there is no such message."""


class Reschedule(NamedTuple):
    """A record that moves a message of the pipe's."""

    id: str
    due: int


class Rejected(NamedTuple):
    """A malformed record, which becomes a dead letter as it is. Its key and headers have no limits."""

    message: NewMessage


Entry = NewMessage | Cancel | Reschedule | Rejected


class InputRecord(NamedTuple):
    """A record: its entry, and its offset in its partition."""

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
    """All records of one partition in a range of offsets, in their order; offsets may be missing."""

    claim: InputClaim
    records: Sequence[InputRecord]
    first: int
    """The offset from which the partition was read."""
    upto: int
    """The offset from which it is read on."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of records by their outcome; each record that was taken in is in exactly one."""

    accepted: int = 0
    """Became messages; also if a dead letter had their id."""
    ignored: int = 0
    """Their ids were on the timeline already."""
    rejected: int = 0
    """Were malformed, and are dead letters."""
    cancelled: int = 0
    """Cancelled a message."""
    rescheduled: int = 0
    """Moved a message."""
    missed: int = 0
    """Named a message that did not exist, or could not be changed any more."""
    withdrawn: int = 0
    """Would have become messages, but a cancel from another partition waited for them."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(operator.add, astuple(self), astuple(other)))

    @property
    def total(self) -> int:
        return sum(astuple(self))

    def by_name(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAccount:
    """The account of one partition of a source."""

    partition: int
    position: int
    tally: Tally
    holder: str | None
    until_ms: int | None
    fence: int
    """Of the last claim."""

    def claim_of(self, source: str, holder: str, now_ms: int) -> InputClaim | None:
        """The holder's claim on the partition, if it lives."""
        if self.holder != holder or self.until_ms is None or self.until_ms <= now_ms:
            return None
        return InputClaim(source, self.partition, holder, self.fence, self.until_ms, self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """The outcome of one intake."""

    skipped: int
    """Records that had been taken in before; they changed nothing and are not counted again."""
    tally: Tally
