"""The stream of a producer: create, reschedule and cancel."""

from __future__ import annotations

from chronoline.broker.grpc.session import Session
from chronoline.broker.limits import check_batch
from chronoline.core.errors import InvalidInput
from chronoline.core.outcome import Outcome
from chronoline.wire.codec import new_from_wire, outcomes_to_wire
from chronoline.wire.v1 import chronoline_pb2 as pb


class ProducerSession(Session[pb.ProducerFrame, pb.ProducerReply]):
    """Its name is its producer group."""

    partner = "producer"
    prefix = "g-"
    frame_type = pb.ProducerFrame
    reply_type = pb.ProducerReply

    async def _carry_out(self, frame: pb.ProducerFrame) -> None:
        match frame.WhichOneof("what"):
            case "create":
                outcomes = await self._create(frame.create)
            case "reschedule":
                outcomes = await self._reschedule(frame.reschedule)
            case "cancel":
                check_batch(len(frame.cancel.ids), self._parts.limits)
                outcomes = await self._parts.carrier.cancel(
                    frame.cancel.topic_uid,
                    list(frame.cancel.ids),
                    producer_group=self.name,
                    again=frame.cancel.again,
                )
            case _:
                raise InvalidInput("the frame asks for nothing that this broker knows")
        answer = pb.Outcomes(outcomes=outcomes_to_wire(outcomes))
        self.outbox.put(self.reply_type(seq=frame.seq, outcomes=answer))

    async def _create(self, batch: pb.CreateBatch) -> list[Outcome]:
        check_batch(len(batch.messages), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        messages = [new_from_wire(each, self.name, now_ms) for each in batch.messages]
        return await self._parts.carrier.create(batch.topic_uid, messages, replace=batch.replace)

    async def _reschedule(self, batch: pb.RescheduleBatch) -> list[Outcome]:
        check_batch(len(batch.moves), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        moves = [
            (each.id, each.due_ms if each.HasField("due_ms") else now_ms + each.delay_ms)
            for each in batch.moves
        ]
        return await self._parts.carrier.reschedule(
            batch.topic_uid, moves, producer_group=self.name, again=batch.again
        )
