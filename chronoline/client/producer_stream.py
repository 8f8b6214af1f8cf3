"""The client's side of a producer's stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chronoline.client.outcomes import Outcome, read_answer
from chronoline.client.requests import ITEM_BYTES, Part, RequestKind, change_bytes
from chronoline.client.stream import Stream
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.wire.codec import new_to_wire, write_changes
from chronoline.wire.v1 import chronoline_pb2 as pb

_HEADER_BYTES = 24
"""The size of the fields around a header, and more: a broker bounds the fields of a frame."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message that is being sent."""

    message: NewMessage
    delay_ms: int | None
    made: bool
    """Whether the SDK made the id, so that no other client can have created it."""


class ProducerStream(Stream):
    """Its name is the producer group."""

    method = "Produce"
    frame_type = pb.ProducerFrame
    reply_type = pb.ProducerReply
    kind = pb.PreferRequest.KIND_PRODUCER

    def _request_frame(
        self, kind: RequestKind, items: Sequence[Any], seq: int, *, again: bool
    ) -> pb.ProducerFrame:
        frame = pb.ProducerFrame(seq=seq)
        if kind.operation is Operation.CREATE:
            frame.create.topic_uid, frame.create.replace = kind.topic_uid, kind.replace
            frame.create.messages.extend(new_to_wire(each.message, each.delay_ms) for each in items)
        else:
            write_changes(frame, kind.topic_uid, items, again=again)
        return frame

    def _size_bytes(self, kind: RequestKind, item: Any) -> int:
        if kind.operation is not Operation.CREATE:
            return change_bytes(item)
        message: NewMessage = item.message
        named = len(message.id) + _HEADER_BYTES * len(message.headers)
        return message.content_bytes + named + ITEM_BYTES

    def _can_repeat(self, part: Part) -> bool:
        """A second replacement would create a message again that was delivered and acked meanwhile."""
        return not part.request.kind.replace

    async def _welcomed(self) -> None:
        """Does nothing: only unanswered requests are repeated."""

    def _received(self, reply: pb.ProducerReply) -> None:
        """Ignores a late answer to an abandoned request."""

    def _answers(self, reply: pb.ProducerReply, parts: Sequence[Part]) -> list[Outcome]:
        outcomes = read_answer(reply)
        begin = 0
        for part in parts:
            end = begin + part.end - part.begin
            if part.sent > 1 and part.request.kind.operation is Operation.CREATE:
                outcomes[begin:end] = map(_settled, part.items, outcomes[begin:end])
            begin = end
        return outcomes


def _settled(outgoing: OutgoingMessage, outcome: Outcome) -> Outcome:
    """The outcome of a repeated create: an existing message with an id of the SDK is done."""
    if outcome.refusal is not Refusal.EXISTS:
        return outcome
    if outgoing.made:
        return Outcome(id=outcome.id, version=outcome.version)
    return replace(
        outcome, detail=f"{outcome.reason}; perhaps by an earlier attempt of this request"
    )
