"""A fake broker: it records every frame and answers by a function of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import grpc
from grpc import aio

from chronoline.client.aio import AsyncClient
from chronoline.core.errors import ChronolineError
from chronoline.wire.codes import BROKERS_KEY, FAILURE_KEY, STATUS, failure_of
from chronoline.wire.v1 import chronoline_pb2 as pb

LIMITS = pb.Limits(
    frame_bytes=16 * 1024 * 1024, batch=10_000, credit=10_000, ping_interval_ms=60_000
)
TOPIC_UID = 7


class FakeStream:
    """One stream of a client."""

    def __init__(
        self, write: Callable[[Any], Awaitable[None]], reply_type: Any, ahead_us: int
    ) -> None:
        self._write = write
        self._reply_type = reply_type
        self.frames: list[Any] = []
        self.ended = asyncio.Event()
        self._ahead_us = ahead_us
        self._writing = asyncio.Lock()  # gRPC takes one at a time

    async def reply(self, **fields: Any) -> None:
        async with self._writing:
            stamp = pb.Stamp(now_us=time.time_ns() // 1000 + self._ahead_us, epoch=0)
            await self._write(self._reply_type(stamp=stamp, **fields))

    async def outcomes(self, seq: int, outcomes: list[pb.Outcome]) -> None:
        await self.reply(seq=seq, outcomes=pb.Outcomes(outcomes=outcomes))

    async def failure(self, seq: int, kind: str, code: str = "", retry_after_ms: int = 1) -> None:
        failure = pb.Failure(code=code, kind=kind, message=kind, retry_after_ms=retry_after_ms)
        await self.reply(seq=seq, failure=failure)

    def end(self) -> None:
        """The connection breaks, as far as the client can tell."""
        self.ended.set()


Answer = Callable[[FakeStream, Any], Awaitable[None]]


async def done(stream: FakeStream, frame: Any) -> None:
    """The answers of a broker that refuses nothing."""
    match frame.WhichOneof("what"):
        case "create":
            await stream.outcomes(frame.seq, [pb.Outcome(id=m.id) for m in frame.create.messages])
        case "reschedule":
            await stream.outcomes(frame.seq, [pb.Outcome(id=m.id) for m in frame.reschedule.moves])
        case "cancel":
            await stream.outcomes(frame.seq, [pb.Outcome(id=each) for each in frame.cancel.ids])
        case "subscribe":
            subscribed = pb.Subscribed(topic_uid=frame.subscribe.topic_uid, lease_ms=30_000)
            await stream.reply(seq=frame.seq, subscribed=subscribed)
        case "ack":
            await stream.outcomes(frame.seq, [pb.Outcome(id=r.id) for r in frame.ack.leases])
        case "move":
            moves = frame.move.moves
            moved = pb.Moved(
                outcomes=[pb.Outcome(id=move.id, version=move.version + 1) for move in moves],
                at_ms=[now_ms() + move.delay_ms for move in moves],
            )
            await stream.reply(seq=frame.seq, moved=moved)
        case "unsubscribe":
            await stream.outcomes(frame.seq, [])


class FakeBroker:
    """From `async with` to its end. `answer` is called for every frame but pings and hellos."""

    def __init__(self, answer: Answer = done, *, limits: pb.Limits = LIMITS) -> None:
        self.answer = answer
        self.limits = limits
        self.silent = False
        """Accept streams and never send a welcome."""
        self.deaf = False
        """Read no more frames and answer no pings."""
        self.answer_hello: pb.Failure | None = None
        """A failure to send instead of the welcome."""
        self.behind_welcome: list[Any] = []
        """Replies in the frame of the welcome; then the stream ends."""
        self.ahead_us = 0
        """The offset of its clock from the machine's."""
        self.drift_us = 0
        """The time by which it finds the client's clock ahead; beyond the bound unless it is 0."""
        self.pongs = 0
        self.ping_interval_ms = 0
        """The interval in its pongs."""
        self.pings: list[pb.Ping] = []
        self.others: list[str] = []
        """The addresses in its welcome, and with a topic."""
        self.preferred: list[str] = []
        """The answer to a question about preferences; if empty, the method is unknown."""
        self.health = "healthy"
        """Its own health in that answer."""
        self.names_itself = True
        """Whether that answer says which broker gives it; one of an earlier version does not."""
        self.questions: list[pb.PreferRequest] = []
        self.answers_after_s = 0.0
        """The time for a question for a topic."""
        self.call_failures: list[ChronolineError] = []
        """The answers to the next questions for a topic, before the topic itself."""
        self.hellos: list[pb.Hello] = []
        self.streams: list[FakeStream] = []
        self._news = asyncio.Event()
        self._server: aio.Server | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = aio.server()
        streams: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.stream_stream_rpc_method_handler(
                self._serve(reply),
                request_deserializer=frame.FromString,
                response_serializer=lambda each: each.SerializeToString(),
            )
            for name, frame, reply in (
                ("Produce", pb.ProducerFrame, pb.ProducerReply),
                ("Consume", pb.ConsumerFrame, pb.ConsumerReply),
            )
        }
        questions: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetTopic": grpc.unary_unary_rpc_method_handler(
                self._topic,
                request_deserializer=pb.GetTopicRequest.FromString,
                response_serializer=lambda each: each.SerializeToString(),
            ),
            "Prefer": grpc.unary_unary_rpc_method_handler(
                self._prefer,
                request_deserializer=pb.PreferRequest.FromString,
                response_serializer=lambda each: each.SerializeToString(),
            ),
        }
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("chronoline.v1.Carrier", streams),
                grpc.method_handlers_generic_handler("chronoline.v1.Overseer", questions),
            )
        )
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """It is gone. May be called twice."""
        assert self._server is not None
        await self._server.stop(None)

    def client(self, **given: Any) -> AsyncClient:
        return AsyncClient(self.address, **given)

    @property
    def frames(self) -> list[Any]:
        """The frames of all streams, in order."""
        return [frame for stream in self.streams for frame in stream.frames]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked after every frame."""
        async with asyncio.timeout(60):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def of(self, what: str) -> list[Any]:
        """The frames of a kind."""
        return [each for each in self.frames if each.WhichOneof("what") == what]

    async def seen(self, what: str, count: int = 1) -> list[Any]:
        """Wait for a number of frames of a kind."""
        await self.until(lambda: len(self.of(what)) >= count)
        return self.of(what)

    async def push(self, *deliveries: pb.Delivery) -> None:
        """Push to the latest stream, after it has subscribed."""
        await self.until(
            lambda: any(each.WhichOneof("what") == "subscribe" for each in self.streams[-1].frames)
        )
        await self.streams[-1].reply(push=pb.Push(topic_uid=TOPIC_UID, deliveries=deliveries))

    async def _topic(self, asked: pb.GetTopicRequest, context: Any) -> pb.Topic:
        await asyncio.sleep(self.answers_after_s)
        if self.call_failures:
            failure = failure_of(self.call_failures.pop(0))
            failed = ((FAILURE_KEY, failure.SerializeToString()),)
            await context.abort(STATUS[failure.kind], failure.message, failed)
        known = pb.KnownBrokers(others=self.others)
        context.set_trailing_metadata(((BROKERS_KEY, known.SerializeToString()),))
        return pb.Topic(uid=TOPIC_UID, name=asked.name)

    async def _prefer(self, asked: pb.PreferRequest, context: Any) -> pb.PreferredBrokers:
        self.questions.append(asked)
        self._news.set()
        if not self.preferred:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown")
        brokers = [
            pb.Broker(
                id=each, address=each, health=self.health if each == self.address else "healthy"
            )
            for each in self.preferred
        ]
        answered_by = self.address if self.names_itself else ""
        return pb.PreferredBrokers(brokers=brokers, answered_by=answered_by)

    def _serve(self, reply_type: Any) -> Any:
        async def serve(frames: AsyncIterator[Any], context: Any) -> None:
            stream = FakeStream(context.write, reply_type, self.ahead_us)
            self.streams.append(stream)
            reading = asyncio.create_task(self._read(stream, frames))
            ending = asyncio.create_task(stream.ended.wait())
            try:
                await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (reading, ending):
                    task.cancel()
                await asyncio.gather(reading, ending, return_exceptions=True)

        return serve

    async def _read(self, stream: FakeStream, frames: AsyncIterator[Any]) -> None:
        async for together in frames:
            for frame in (together, *together.more):
                if stream.ended.is_set():
                    return
                if not (self.deaf and len(self.streams) == 1):
                    await self._take_in(stream, frame)

    async def _take_in(self, stream: FakeStream, frame: Any) -> None:
        match frame.WhichOneof("what"):
            case "hello":
                self.hellos.append(frame.hello)
                self._news.set()
                if self.answer_hello is not None:
                    await stream.reply(seq=frame.seq, failure=self.answer_hello)
                elif not self.silent:
                    welcome = pb.Welcome(
                        name=frame.hello.name or "made", limits=self.limits, others=self.others
                    )
                    await stream.reply(seq=frame.seq, welcome=welcome, more=self.behind_welcome)
                    if self.behind_welcome:
                        stream.end()
            case "ping":
                pong = pb.Pong(
                    sent_us=frame.ping.sent_us,
                    drift_us=self.drift_us,
                    drifting=self.drift_us != 0,
                    interval_ms=self.ping_interval_ms,
                )
                self.pings.append(frame.ping)
                await stream.reply(seq=frame.seq, pong=pong)
                self.pongs += 1
            case _:
                stream.frames.append(frame)
                await self.answer(stream, frame)
                self._news.set()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delivery(
    message_id: str, *, due_ms: int | None = None, version: int = 1, lease_ms: int = 30_000
) -> pb.Delivery:
    due_ms = now_ms() if due_ms is None else due_ms
    return pb.Delivery(id=message_id, due_ms=due_ms, version=version, until_ms=due_ms + lease_ms)
