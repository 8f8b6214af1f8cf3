"""The stream of a producer: create, reschedule and cancel."""

from __future__ import annotations

from chronoline.broker.grpc.client_stream import ClientStream
from chronoline.broker.limits import check_batch
from chronoline.wire.codec import new_from_wire, outcomes_to_wire
from chronoline.wire.v1 import chronoline_pb2 as pb


class ProducerClientStream(ClientStream[pb.ProducerFrame, pb.ProducerReply]):
    """Its name is its producer group."""

    partner = "producer"
    prefix = "g-"
    frame_type = pb.ProducerFrame
    reply_type = pb.ProducerReply

    async def _carry_out(self, frame: pb.ProducerFrame) -> None:
        if frame.WhichOneof("what") != "create":
            await self._change(frame, self.reply_type(seq=frame.seq))
            return
        batch = frame.create
        check_batch(len(batch.messages), self._parts.limits)
        now_ms = self._parts.access.clock.now_ms()
        messages = [new_from_wire(each, self.name, now_ms) for each in batch.messages]
        outcomes = await self._parts.carrier.create(
            batch.topic_uid, messages, replace=batch.replace
        )
        answer = pb.Outcomes(outcomes=outcomes_to_wire(outcomes))
        self.outbox.put(self.reply_type(seq=frame.seq, outcomes=answer))
