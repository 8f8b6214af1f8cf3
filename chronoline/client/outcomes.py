"""Outcomes: for each message whether it was done, refused or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from chronoline.core.outcome import BaseOutcome, Refusal, raise_for_refused
from chronoline.runtime.timestamps import from_ms
from chronoline.wire.v1 import chronoline_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(BaseOutcome):
    """The outcome of a request for one message; `refusal` and `reason` say why it was not done."""

    at: datetime | None = None
    """The new end of a lease, or the new due of the message, where the broker sends it; in UTC."""
    retry_after: timedelta | None = None
    """When a refused request is worth a repetition, if known."""

    @property
    def passes_after_ms(self) -> int | None:
        return None if self.retry_after is None else self.retry_after // timedelta(milliseconds=1)

    @classmethod
    def from_wire(cls, wire: pb.Outcome, at_ms: int = 0) -> Self:
        return cls(
            id=wire.id,
            refusal=_refusal(wire.refusal) if wire.refusal else None,
            version=wire.version,
            detail=wire.detail,
            unknown=wire.unknown,
            retry_after=(
                timedelta(milliseconds=wire.retry_after_ms) if wire.retry_after_ms else None
            ),
            warning=wire.warning,
            at=from_ms(at_ms or wire.due_ms) if at_ms or wire.due_ms else None,
        )


class Outcomes(list[Outcome]):
    """An outcome for each message, in their order."""

    def raise_for_refused(self) -> Self:
        """Raises `Refused` if any was refused; else returns itself."""
        raise_for_refused(self)
        return self

    @property
    def refused(self) -> list[Outcome]:
        return [each for each in self if not each.done]


def outcomes_from_wire(outcomes: Iterable[pb.Outcome]) -> list[Outcome]:
    return [Outcome.from_wire(each) for each in outcomes]


def read_answer(reply: pb.ProducerReply | pb.ConsumerReply) -> list[Outcome]:
    """The outcomes of changes; of moves with the times from which they hold."""
    if reply.WhichOneof("what") != "moved":
        return outcomes_from_wire(reply.outcomes.outcomes)
    moved = reply.moved  # type: ignore[union-attr]  # a consumer's
    return [Outcome.from_wire(*each) for each in zip(moved.outcomes, moved.at_ms, strict=True)]


def _refusal(name: str) -> Refusal:
    """An unknown name, of a newer broker, becomes `NOT_ALLOWED`; the detail has its text."""
    try:
        return Refusal(name)
    except ValueError:
        return Refusal.NOT_ALLOWED
