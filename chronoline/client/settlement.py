"""What a consumer says of its leases, as frames: ack, extend, release, retry, bury, unreserve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from chronoline.core.outcome import Outcome
from chronoline.wire.codec import outcomes_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

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


def settling_frame(
    kind: Settling, items: Sequence[Any], seq: int, *, again: bool
) -> pb.ConsumerFrame:
    """The frame that says it; `again` if it was said before, and not answered."""
    frame = pb.ConsumerFrame(seq=seq)
    if kind.what == "ack":
        frame.ack.topic_uid, frame.ack.again = kind.topic_uid, again
        frame.ack.leases.extend(
            pb.LeaseRef(id=lease.id, version=lease.version) for lease, _ in items
        )
        return frame
    frame.move.topic_uid, frame.move.again = kind.topic_uid, again
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


def settling_answers(reply: pb.ConsumerReply) -> list[tuple[Outcome, int]]:
    """What became of each lease, and from when it is so."""
    if reply.WhichOneof("what") != "moved":
        return [(outcome, 0) for outcome in outcomes_from_wire(reply.outcomes.outcomes)]
    return list(zip(outcomes_from_wire(reply.moved.outcomes), reply.moved.at_ms, strict=True))
