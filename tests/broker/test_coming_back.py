"""A consumer that connects anew: what it is given back, and whether it is let in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import Running, running


class RawConsumer:
    """A consumer's stream, frame by frame."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._came: deque[Any] = deque()

    async def say(self, **fields: Any) -> None:
        await self._call.write(pb.ConsumerFrame(**fields))

    async def hears(self, what: str) -> Any:
        """The next frame of this kind."""
        while True:
            while self._came:
                reply = self._came.popleft()
                if reply.WhichOneof("what") == what:
                    return getattr(reply, what)
            frame = await asyncio.wait_for(self._call.read(), 10)
            assert frame is not aio.EOF, f"the stream ended before {what}"
            self._came.extend((frame, *frame.more))

    async def subscribe(self, topic_uid: int, credit: int, **holding: int) -> None:
        held = [pb.HeldLease(id=id, version=version) for id, version in holding.items()]
        asked = pb.Subscribe(topic_uid=topic_uid, lease_ms=60_000, credit=credit, holding=held)
        await self.say(subscribe=asked, seq=1)

    async def unreserve(self, topic_uid: int, **versions: int) -> list[str]:
        """What each was refused with."""
        moves = [pb.LeaseMove(id=id, version=version) for id, version in versions.items()]
        kind = pb.MoveBatch.KIND_UNRESERVE
        await self.say(move=pb.MoveBatch(topic_uid=topic_uid, kind=kind, moves=moves), seq=2)
        return [each.refusal for each in (await self.hears("moved")).outcomes]


@asynccontextmanager
async def consumer(broker: Running, instance: str) -> AsyncIterator[RawConsumer]:
    async with aio.insecure_channel(broker.address) as channel:
        call: Any = channel.stream_stream(
            "/chronoline.v1.Carrier/Consume",
            request_serializer=pb.ConsumerFrame.SerializeToString,
            response_deserializer=pb.ConsumerReply.FromString,
        )()
        stream = RawConsumer(call)
        await stream.say(hello=pb.Hello(name="c", instance=instance))
        yield stream
        call.cancel()


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed by another"])
def test_what_it_holds_is_kept_unless_it_was_in_other_hands(tmp_path: Path, changed: bool) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            async with consumer(broker, "1") as first:
                await first.subscribe(topic.uid, 1)
                (pushed,) = (await first.hears("push")).deliveries
            version = pushed.version - changed  # as if it had taken it before another did
            async with consumer(broker, "1") as again:
                await again.subscribe(topic.uid, 1, a=version)
                kept = (await again.hears("subscribed")).kept
                if changed:
                    assert not kept
                    (came,) = (await again.hears("push")).deliveries
                    assert (came.id, came.redelivered) == ("a", True)
                else:
                    (came,) = kept
                assert (came.id, came.version) == ("a", pushed.version + 1)

    asyncio.run(play())


def test_one_that_was_replaced_and_missed_it_is_told_when_it_connects_anew(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            async with consumer(broker, "1") as first, consumer(broker, "2") as second:
                assert (await first.hears("go_away")).code == "replaced"
                async with consumer(broker, "1") as returned:
                    failure = await returned.hears("failure")
                    assert (failure.code, failure.kind) == ("consumer_replaced", "refused")
                    await returned.subscribe(topic.uid, 1)
                    assert "hello" in (await returned.hears("failure")).message
                await second.subscribe(topic.uid, 1)  # it has the name still
                await client.send("jobs", b"work", id="a")
                (came,) = (await second.hears("push")).deliveries
                assert came.id == "a"

    asyncio.run(play())


def test_one_that_connects_anew_under_its_instance_is_let_in(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker:
            for _ in range(3):
                async with consumer(broker, "1") as stream:
                    assert (await stream.hears("welcome")).name == "c"
            async with consumer(broker, "1") as first, consumer(broker, "1") as second:
                assert (await first.hears("go_away")).code == "replaced"
                assert (await second.hears("welcome")).name == "c"
                async with consumer(broker, "1") as third:
                    assert (await third.hears("welcome")).name == "c"

    asyncio.run(play())


def test_what_was_taken_and_not_begun_comes_again_as_it_was(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            async with consumer(broker, "1") as stream:
                await stream.subscribe(topic.uid, 2)
                (before,) = (await stream.hears("push")).deliveries
                assert await stream.unreserve(topic.uid, a=before.version - 1) == ["stale"]
                assert await stream.unreserve(topic.uid, a=before.version) == [""]
                (after,) = (await stream.hears("push")).deliveries
                assert after.version > before.version
                before.version, before.until_ms = after.version, after.until_ms
                assert after == before
                assert await stream.unreserve(topic.uid, a=1, b=1) == ["stale", "not_found"]

    asyncio.run(play())
