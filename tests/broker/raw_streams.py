"""gRPC streams frame by frame, for clients that behave as the SDK never does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from chronoline.wire.v1 import chronoline_pb2 as pb

_KINDS: dict[str, tuple[Any, Any]] = {
    "Produce": (pb.ProducerFrame, pb.ProducerReply),
    "Consume": (pb.ConsumerFrame, pb.ConsumerReply),
}


class RawStream:
    """One stream. Replies are read only on request."""

    def __init__(self, call: Any, frame_type: Any) -> None:
        self.call = call
        self._frame_type = frame_type
        self._came: deque[Any] = deque()

    async def say(self, **fields: Any) -> None:
        await self.call.write(self._frame_type(**fields))

    async def hear(self) -> Any:
        """Return the next reply, also one from the `more` of a frame."""
        if not self._came:
            frame = await self.call.read()
            assert frame is not aio.EOF, "the stream ended"
            self._came.extend((frame, *frame.more))
        return self._came.popleft()

    async def hears(self, what: str) -> Any:
        """Skip to the next reply of this kind and return it."""
        async with asyncio.timeout(60):
            while True:
                reply = await self.hear()
                if reply.WhichOneof("what") == what:
                    return getattr(reply, what)


class RawConsumer(RawStream):
    """A stream with the frames of a consumer."""

    async def subscribe(
        self, topic_uid: int, credit: int, *, unanswered: int = 0, **holding: int
    ) -> None:
        held = [pb.HeldLease(id=id, version=version) for id, version in holding.items()]
        asked = pb.Subscribe(topic_uid=topic_uid, lease_ms=60_000, credit=credit, holding=held)
        asked.unanswered = unanswered
        await self.say(subscribe=asked, seq=1)

    async def unreserve(self, topic_uid: int, **versions: int) -> list[str]:
        """Unreserve leases; returns the refusal of each, empty when it is done."""
        moves = [pb.LeaseMove(id=id, version=version) for id, version in versions.items()]
        kind = pb.MoveBatch.KIND_UNRESERVE
        await self.say(move=pb.MoveBatch(topic_uid=topic_uid, kind=kind, moves=moves), seq=2)
        return [each.refusal for each in (await self.hears("moved")).outcomes]


@asynccontextmanager
async def raw_consumer(address: str, name: str, instance: str) -> AsyncIterator[RawConsumer]:
    async with raw_stream(address, "Consume", name, instance) as stream:
        yield RawConsumer(stream.call, pb.ConsumerFrame)


@asynccontextmanager
async def raw_stream(
    address: str, kind: str, name: str, instance: str = ""
) -> AsyncIterator[RawStream]:
    """Open a `Produce` or `Consume` stream and send its hello."""
    frame_type, reply_type = _KINDS[kind]
    options = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.http2.bdp_probe", 0),  # keeps the receive window small, so little is buffered unread
    ]
    async with aio.insecure_channel(address, options) as channel:
        call: Any = channel.stream_stream(
            f"/chronoline.v1.Carrier/{kind}",
            request_serializer=frame_type.SerializeToString,
            response_deserializer=reply_type.FromString,
        )()
        stream = RawStream(call, frame_type)
        await stream.say(hello=pb.Hello(name=name, instance=instance))
        yield stream
        call.cancel()
