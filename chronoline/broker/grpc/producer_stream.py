"""The stream of a producer: create, reschedule and cancel."""

from __future__ import annotations

import time

from chronoline.broker.context import BrokerContext
from chronoline.broker.failure_sampler import THROTTLE, THROTTLED, FailureSampler
from chronoline.broker.grpc.client_stream import ClientStream
from chronoline.broker.limits import check_batch
from chronoline.core.errors import ChronolineError, TooMuch
from chronoline.core.outcome import Refusal
from chronoline.core.rights import RightKind
from chronoline.wire.codec import new_from_wire, outcomes_to_wire
from chronoline.wire.codes import FailureKind, failure_of
from chronoline.wire.v1 import chronoline_pb2 as pb


class ProducerClientStream(ClientStream[pb.ProducerFrame, pb.ProducerReply]):
    """Its name is its producer group."""

    partner = "producer"
    right = RightKind.PRODUCE
    prefix = "g-"
    frame_type = pb.ProducerFrame
    reply_type = pb.ProducerReply

    def __init__(self, parts: BrokerContext, client: str = "") -> None:
        super().__init__(parts, client)
        self.throttle = FailureSampler(THROTTLE)

    async def _carry_out(self, frame: pb.ProducerFrame) -> None:
        now_s = time.monotonic()
        if not self.throttle.admits(now_s):
            self._parts.metrics.refused("grpc", "throttled")
            error = TooMuch(THROTTLED)
            error.retry_after_ms = self.throttle.wait_ms(now_s)
            raise error
        try:
            is_valid = await self._produce(frame)
        except ChronolineError as error:
            # A failure of the store or of this broker is not the producer's.
            if failure_of(error).kind == FailureKind.REFUSED:
                self.throttle.failed(time.monotonic())
            raise
        if is_valid:
            self.throttle.succeeded(time.monotonic())
        else:
            self.throttle.failed(time.monotonic())

    async def _produce(self, frame: pb.ProducerFrame) -> bool:
        """Carries out a request; False if all its messages are invalid."""
        if frame.WhichOneof("what") != "create":
            await self._change(frame, self.reply_type(seq=frame.seq))
            return True
        batch = frame.create
        check_batch(len(batch.messages), self._parts.limits)
        await self._check_right(batch.topic_uid)
        now_ms = self._parts.access.clock.now_ms()
        messages = [new_from_wire(each, self.name, now_ms) for each in batch.messages]
        outcomes = await self._parts.carrier.create(
            batch.topic_uid, messages, replace=batch.replace
        )
        answer = pb.Outcomes(outcomes=outcomes_to_wire(outcomes))
        self.outbox.put(self.reply_type(seq=frame.seq, outcomes=answer))
        return not outcomes or any(each.refusal is not Refusal.INVALID for each in outcomes)
