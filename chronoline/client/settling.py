"""What a consumer says of its leases, as frames: ack, extend, release, retry, bury, unreserve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from chronoline.client.requests import Part
from chronoline.core.outcome import Outcome
from chronoline.wire.codec import outcomes_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

Move = Literal["extend", "release", "retry"]
_KINDS = {
    "extend": pb.MoveBatch.KIND_EXTEND,
    "release": pb.MoveBatch.KIND_RELEASE,
    "retry": pb.MoveBatch.KIND_RETRY,
    "bury": pb.MoveBatch.KIND_BURY,
    "unreserve": pb.MoveBatch.KIND_UNRESERVE,
}
_ITEM_BYTES = 64
"""What the fields around an id take."""


class Settling(NamedTuple):
    """What is said of a lease; what is the same may share a frame.

    An item is the lease, and the new time or the reason if there is one. Its version is that of the moment
    when it leaves.
    """

    what: str
    topic_uid: int


def settling_frame(kind: Settling, items: Sequence[Any], seq: int) -> pb.ConsumerFrame:
    """The frame that says it."""
    frame = pb.ConsumerFrame(seq=seq)
    if kind.what == "ack":
        frame.ack.topic_uid = kind.topic_uid
        frame.ack.leases.extend(
            pb.LeaseRef(id=lease.id, version=lease.version) for lease, _ in items
        )
        return frame
    frame.move.topic_uid = kind.topic_uid
    frame.move.kind = _KINDS[kind.what]
    if kind.what == "unreserve":
        frame.move.moves.extend(
            pb.LeaseMove(id=lease.id, version=lease.version) for lease, _ in items
        )
    elif kind.what == "bury":
        frame.move.moves.extend(
            pb.LeaseMove(id=lease.id, version=lease.version, reason=reason)
            for lease, reason in items
        )
    else:
        frame.move.moves.extend(
            pb.LeaseMove(id=lease.id, version=lease.version, at_ms=at.at_ms, delay_ms=at.delay_ms)
            for lease, at in items
        )
    return frame


def settling_bytes(kind: Settling, item: Any) -> int:
    """How much of a frame it takes, about."""
    lease, said = item
    return _ITEM_BYTES + len(lease.id) + (len(said) if kind.what == "bury" else 0)


def settling_answers(reply: pb.ConsumerReply, parts: Sequence[Part]) -> list[tuple[Outcome, int]]:
    """What became of each lease, and from when it is so."""
    if reply.WhichOneof("what") != "moved":
        return [(outcome, 0) for outcome in outcomes_from_wire(reply.outcomes.outcomes)]
    outcomes = outcomes_from_wire(reply.moved.outcomes)
    repeated = [part.sent > 1 for part in parts for _ in range(part.begin, part.end)]
    return [
        (_perhaps_done(outcome) if again and not outcome.done else outcome, at_ms)
        for outcome, at_ms, again in zip(outcomes, reply.moved.at_ms, repeated, strict=True)
    ]


def _perhaps_done(outcome: Outcome) -> Outcome:
    """Of a lease that was given back, or buried, and the answer was lost: asking again is refused."""
    return replace(
        outcome, detail=f"{outcome.reason}; perhaps by an earlier attempt of this request"
    )
