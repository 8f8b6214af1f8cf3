"""The client's side of a producer's stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from chronoline.client.requests import Part
from chronoline.client.stream import Stream
from chronoline.client.times import When
from chronoline.core.message import NewMessage, content_bytes
from chronoline.core.outcome import Outcome, Refusal
from chronoline.wire.codec import new_to_wire, outcomes_from_wire
from chronoline.wire.v1 import chronoline_pb2 as pb

_ITEM_BYTES = 64
_HEADER_BYTES = 16
"""What the fields around them take."""


class _Kind(NamedTuple):
    what: str
    topic_uid: int
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Sending:
    """A message on its way."""

    message: NewMessage
    delay_ms: int | None
    made: bool
    """The id is ours, so nobody else can have created it."""


class ProducerStream(Stream):
    """Its name is the producer group."""

    method = "Produce"
    reply_type = pb.ProducerReply

    async def create(
        self, topic_uid: int, messages: Sequence[Sending], *, replace: bool
    ) -> list[Outcome]:
        return await self.request(_Kind("create", topic_uid, replace), messages)

    async def reschedule(self, topic_uid: int, moves: Sequence[tuple[str, When]]) -> list[Outcome]:
        return await self.request(_Kind("reschedule", topic_uid), moves)

    async def cancel(self, topic_uid: int, ids: Sequence[str]) -> list[Outcome]:
        return await self.request(_Kind("cancel", topic_uid), ids)

    def _frame(self, **fields: Any) -> pb.ProducerFrame:
        return pb.ProducerFrame(**fields)

    def _request_frame(
        self, kind: _Kind, items: Sequence[Any], seq: int, *, again: bool
    ) -> pb.ProducerFrame:
        frame = pb.ProducerFrame(seq=seq)
        if kind.what == "create":
            frame.create.topic_uid, frame.create.replace = kind.topic_uid, kind.replace
            frame.create.messages.extend(new_to_wire(each.message, each.delay_ms) for each in items)
        elif kind.what == "reschedule":
            frame.reschedule.topic_uid, frame.reschedule.again = kind.topic_uid, again
            frame.reschedule.moves.extend(
                pb.Move(id=each, due_ms=at.at_ms, delay_ms=at.delay_ms) for each, at in items
            )
        else:
            frame.cancel.topic_uid, frame.cancel.again = kind.topic_uid, again
            frame.cancel.ids.extend(items)
        return frame

    def _size_bytes(self, kind: _Kind, item: Any) -> int:
        if kind.what == "create":
            message: NewMessage = item.message
            content = content_bytes(message.body, message.key, message.headers)
            return content + len(message.id) + _ITEM_BYTES + _HEADER_BYTES * len(message.headers)
        return _ITEM_BYTES + len(item if kind.what == "cancel" else item[0])

    def _can_repeat(self, part: Part) -> bool:
        """A second replacement would create anew what was delivered and acked meanwhile."""
        kind: _Kind = part.request.kind
        return not kind.replace

    async def _welcomed(self) -> None:
        """Nothing has to be said again but what was not answered."""

    def _told(self, reply: pb.ProducerReply) -> None:
        """An answer to what nobody waits for any more."""

    def _answers(self, reply: pb.ProducerReply, parts: Sequence[Part]) -> list[Any]:
        outcomes = outcomes_from_wire(reply.outcomes.outcomes)
        begin = 0
        for part in parts:
            end = begin + part.end - part.begin
            if part.sent > 1 and part.request.kind.what == "create":
                outcomes[begin:end] = map(_settled, part.items, outcomes[begin:end])
            begin = end
        return outcomes


def _settled(sending: Sending, outcome: Outcome) -> Outcome:
    """Of a message that was sent again: if it is there, and nobody else can have made it, it is done."""
    if outcome.refusal is not Refusal.EXISTS:
        return outcome
    if sending.made:
        return Outcome(id=outcome.id, version=outcome.version)
    return replace(
        outcome, detail=f"{outcome.reason}; perhaps by an earlier attempt of this request"
    )
