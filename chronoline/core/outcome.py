"""Outcomes of a batch: for each id done, refused for a named reason, or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from chronoline.core.errors import OutcomeUnknown, Refused, StoreBusy, StoreError
from chronoline.core.message import LeasedMessage


class Refusal(StrEnum):
    """Why nothing was changed. The names are stable: they travel on the wire."""

    EXISTS = "exists"
    NOT_FOUND = "not_found"
    DELETED = "deleted"
    DEAD = "dead"
    NOT_DEAD = "not_dead"
    NOT_OWNER = "not_owner"
    NOT_HOLDER = "not_holder"
    NOT_ALLOWED = "not_allowed"
    LEASED = "leased"
    LAPSED = "lapsed"
    STALE = "stale"
    NOT_DUE = "not_due"
    EXPIRED = "expired"
    IMMUTABLE = "immutable"
    TOO_SOON = "too_soon"
    INVALID = "invalid"
    BUSY = "busy"
    QUOTA = "quota"
    PAUSED = "paused"


REASONS = {
    Refusal.EXISTS: "a message with this id exists, or existed within the dedupe time; use another id, or "
    "replace it",
    Refusal.NOT_FOUND: "there is no message with this id; check the id and the topic",
    Refusal.DELETED: "the message was acked or cancelled; nothing is left to change",
    Refusal.DEAD: "the message is among the dead letters; redrive it to put it back, or discard it",
    Refusal.NOT_DEAD: "the message is not among the dead letters; look up its state",
    Refusal.NOT_OWNER: "the message belongs to another producer group, which alone may change it",
    Refusal.NOT_HOLDER: "only the consumer that holds the lease may do this; give its name",
    Refusal.NOT_ALLOWED: "this role may never do this",
    Refusal.LEASED: "a consumer holds a live lease, which nobody may break; try again when it is over",
    Refusal.LAPSED: "the lease is over; the message is delivered again",
    Refusal.STALE: "the version is not the current one; look the message up again",
    Refusal.NOT_DUE: "the message is not due yet; lease it then",
    Refusal.EXPIRED: "the new due is not before the message's `expires`, so nobody would get it; "
    "give a later `expires`, too",
    Refusal.IMMUTABLE: "a body never changes; cancel the message and create another",
    Refusal.TOO_SOON: "the new time must be at least 10 ms ahead, and an extension not end before the due",
    Refusal.INVALID: "the input is not valid",
    Refusal.BUSY: "another transaction holds the message; nothing was changed. Try again",
    Refusal.QUOTA: "the producer group has used up its quota; nothing was changed. Try again later",
    Refusal.PAUSED: "the topic is paused, so nobody gets its messages; resume it, or wait",
}

LEASE_IS_OVER = frozenset(
    {
        Refusal.NOT_FOUND,
        Refusal.DELETED,
        Refusal.DEAD,
        Refusal.NOT_HOLDER,
        Refusal.LAPSED,
        Refusal.STALE,
    }
)
"""Refusals that tell the holder of a lease that it is lost; others leave the lease as it was."""


_UNKNOWN = "an earlier attempt was not answered, and what the store holds does not tell whether it was done"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseOutcome:
    """The outcome of a change for one id: done (then `version` is the new one), refused, or unknown."""

    id: str
    refusal: Refusal | None = None
    version: int = 0
    detail: str = ""
    unknown: bool = False
    """An earlier attempt was not answered, and the store cannot tell whether it was or will be done."""
    warning: str = ""
    """A hint for the producer of a created message."""

    @property
    def passes_after_ms(self) -> int | None:
        """When a refused change is worth a repetition, if known."""
        return None

    @property
    def done(self) -> bool:
        return self.refusal is None and not self.unknown

    @property
    def reason(self) -> str:
        """Why it was not done, in words; empty when done."""
        if self.refusal is not None:
            return self.detail or REASONS[self.refusal]
        return self.detail or _UNKNOWN if self.unknown else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(BaseOutcome):
    """An outcome of a store. The SDK has its own, whose times are datetimes."""

    at: int = 0
    """The time that the change set: the end of the lease, or the new due; 0 where it set none."""
    repeated: bool = False
    """A refused create: the message that has, or had, the id was created with the same digest."""
    retry_after_ms: int | None = None
    """When a refused change is worth a repetition, if known."""

    @property
    def passes_after_ms(self) -> int | None:
        return self.retry_after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a request for leases."""

    leased: tuple[LeasedMessage, ...] = ()
    """In order of `due`."""
    refused: tuple[Outcome, ...] = ()
    """Requested ids without a lease, and messages that went to the dead letters instead."""
    more: bool = False
    """The limit was reached, so there may be more to lease right now."""
    clear_ms: int = 0
    """Nothing is left to lease before this moment; 0 if that is not known."""
    at: int = 0
    """When it was granted, by the clock that granted it."""


def held_error(outcomes: Sequence[Outcome]) -> StoreError | None:
    """The error of a batch of which other transactions hold some messages; None if they hold none.

    Its `answered` has the outcome of each, with the refusal `busy` for those that are held.
    """
    held = sum(outcome.refusal is Refusal.BUSY for outcome in outcomes)
    if not held:
        return None
    reason = f"other transactions hold {held} of the messages"
    error: StoreError = StoreBusy(f"{reason}; nothing was changed. Try again")
    if any(outcome.done for outcome in outcomes):
        error = OutcomeUnknown(f"{reason}, and some are done; ask again with the same ids")
    error.answered = outcomes
    return error


def raise_for_refused(outcomes: Iterable[BaseOutcome]) -> None:
    """Raises `Refused` if any outcome is a refusal, else `OutcomeUnknown` if any is unknown."""
    not_done = [outcome for outcome in outcomes if not outcome.done]
    refused = [outcome for outcome in not_done if outcome.refusal is not None]
    if refused:
        raise Refused(refused)
    if not_done:
        first, others = not_done[0], len(not_done) - 1
        more = f", and {others} more" if others else ""
        raise OutcomeUnknown(f"message {first.id!r}{more}: {first.reason}")
