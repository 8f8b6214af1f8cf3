"""Limits: a client that does not read, floods, or sends too much affects only itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from chronoline.broker import subscription as subscription_module
from chronoline.broker.grpc import client_stream as client_stream_module
from chronoline.broker.grpc.client_stream import ClientStream
from chronoline.broker.limits import Limits
from chronoline.client import Topic, TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.core.errors import BrokerUnavailable, Refused
from chronoline.core.outcome import Refusal
from chronoline.wire.codes import FAILURE_KEY
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import Running, running
from tests.broker.raw_streams import RawStream, raw_consumer, raw_stream
from tests.deadline import until

KIB = 1024
MIB = 1024 * KIB
_QUICK = Limits(in_flight_bytes=MIB, ping_interval_ms=100, ping_timeout_ms=1_000)


def _session(broker: Running, name: str) -> ClientStream[Any, Any] | None:
    assert broker.node.grpc is not None
    return next((each for each in broker.node.grpc.sessions if each.name == name), None)


async def _drain(client: AsyncClient, topic: str, count: int) -> set[str]:
    """Consume and ack `count` messages."""
    came: set[str] = set()
    leases = client.consume(topic, consumer="good")
    async with asyncio.timeout(60):
        while len(came) < count:
            lease = await anext(leases)
            came.add(lease.id)
            await lease.ack()
    await leases.aclose()
    return came


# A consumer that does not read


@asynccontextmanager
async def _pinging(stream: RawStream) -> AsyncIterator[None]:
    """Send pings, so that the stream ends only because it does not read."""

    async def ping() -> None:
        while True:
            await stream.say(ping=pb.Ping())
            await asyncio.sleep(0.1)  # far within the time-out

    pinging = asyncio.ensure_future(ping())
    yield
    pinging.cancel()
    await asyncio.gather(pinging, return_exceptions=True)


def test_consumer_that_never_reads_is_bounded_and_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(client_stream_module, "_CLOGGED_BYTES", MIB)
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(subscription_module, "_MOST_BYTES", 4 * MIB)

    async def play() -> None:
        async with running(tmp_path, limits=_QUICK) as broker, broker.client() as client:
            topic = await client.create_topic(
                "jobs", TopicSettings(window=0.1, largest_body_bytes=100 * KIB)
            )
            ids = {f"m{number}" for number in range(200)}
            await client.send_many("jobs", [ToSend(id=each, body=bytes(100 * KIB)) for each in ids])
            async with raw_stream(broker.address, "Consume", "deaf") as deaf, _pinging(deaf):
                asked = pb.Subscribe(topic_uid=topic.uid, lease_ms=2_000, credit=10_000)
                await deaf.say(subscribe=asked)
                await until(lambda: _held_bytes(broker) > MIB)
                draining = asyncio.ensure_future(_drain(client, "jobs", 200))
                most_bytes = 0

                def is_ended() -> bool:
                    nonlocal most_bytes
                    most_bytes = max(most_bytes, _held_bytes(broker))
                    return _session(broker, "deaf") is None

                await until(is_ended)
                # One reservation, and the frames in the outbox until it was full.
                assert most_bytes <= (4 + 1) * MIB
                assert await draining == ids  # its own too, after their leases

    asyncio.run(play())


def _held_bytes(broker: Running) -> int:
    """The bytes that the broker holds for the consumer that does not read."""
    session = _session(broker, "deaf")
    agendas = [each.agenda for each in broker.subscriptions if each.name == "deaf"]
    # No metric shows the bytes of one outbox.
    return sum(each.held_bytes for each in agendas) + (session.outbox._bytes if session else 0)


# A producer that floods


def _large(topic: Topic, number: int) -> pb.ProducerFrame:
    messages = [
        pb.NewMessage(id=f"f{number}-{each}", delay_ms=3_600_000, body=bytes(100 * KIB))
        for each in range(5)
    ]
    return pb.ProducerFrame(create=pb.CreateBatch(topic_uid=topic.uid, messages=messages))


def _verbose(topic: Topic, number: int) -> pb.ProducerFrame:
    """The answer is ten times as long."""
    return pb.ProducerFrame(cancel=pb.CancelBatch(topic_uid=topic.uid, ids=[""] * 1_000))


def _small(topic: Topic, number: int) -> pb.ProducerFrame:
    return pb.ProducerFrame(cancel=pb.CancelBatch(topic_uid=topic.uid, ids=["a"]))


def _pings(topic: Topic, number: int) -> pb.ProducerFrame:
    return pb.ProducerFrame(ping=pb.Ping(), more=[pb.ProducerFrame(ping=pb.Ping())] * 1_000)


@pytest.mark.parametrize("make", [_large, _verbose, _small, _pings])
def test_flooding_producer_delays_no_other(
    tmp_path: Path, make: Callable[[Topic, int], pb.ProducerFrame]
) -> None:
    async def play() -> None:
        async with running(tmp_path, limits=_QUICK) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", TopicSettings(window=0.1))
            async with _flooding(broker, topic, make, reads=True) as session:
                under_way: list[tuple[int, int]] = []
                leases = client.consume("jobs")
                for number in range(4):  # other clients continue
                    sent = await client.send("jobs", b"work", id=f"m{number}")
                    lease = await anext(leases)
                    assert lease.id == sent
                    await lease.ack()
                    # No metric shows the requests of one stream.
                    under_way.append((session._budget._used_bytes, len(session._running)))
                await leases.aclose()
            assert max(size_bytes for size_bytes, _ in under_way) <= MIB
            assert max(requests for _, requests in under_way) <= 1_000

    asyncio.run(play())


@pytest.mark.parametrize("make", [_verbose, _pings])
def test_flooding_producer_without_reads_is_not_read(
    tmp_path: Path, make: Callable[[Topic, int], pb.ProducerFrame]
) -> None:
    async def play() -> None:
        async with running(tmp_path, limits=_QUICK) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", TopicSettings(window=0.1))
            async with _flooding(broker, topic, make) as session:
                most_waiting = 0

                def is_ended() -> bool:
                    nonlocal most_waiting
                    # No metric shows the length of one outbox.
                    most_waiting = max(most_waiting, len(session.outbox._waiting))
                    return _session(broker, "flood") is None

                await until(is_ended)
                assert 0 < most_waiting <= 1_000  # answered, and the client does not read
            await client.send("jobs", b"work", id="m")
            assert await _drain(client, "jobs", 1) == {"m"}

    asyncio.run(play())


@asynccontextmanager
async def _flooding(
    broker: Running,
    topic: Topic,
    make: Callable[[Topic, int], pb.ProducerFrame],
    *,
    reads: bool = False,
) -> AsyncIterator[ClientStream[Any, Any]]:
    """A producer that sends what it can, and waits for no answer."""
    async with raw_stream(broker.address, "Produce", "flood") as stream:
        tasks = [asyncio.ensure_future(_flood(stream, topic, make))]
        if reads:
            tasks.append(asyncio.ensure_future(_read(stream)))
        await until(lambda: _session(broker, "flood") is not None)
        session = _session(broker, "flood")
        assert session is not None
        yield session
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _flood(
    stream: RawStream, topic: Topic, make: Callable[[Topic, int], pb.ProducerFrame]
) -> None:
    number = 0
    while True:
        await stream.call.write(make(topic, number))
        number += 1
        await asyncio.sleep(0)  # the broker lives in this process too


async def _read(stream: RawStream) -> None:
    while True:
        await stream.hear()


# Too many, and too much at once


def test_number_of_streams_is_limited(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(connections=2)
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            await client.create_topic("jobs")
            async with (
                raw_stream(broker.address, "Produce", "one") as one,
                raw_stream(broker.address, "Consume", "two") as two,
            ):
                await one.hears("welcome")
                await two.hears("welcome")
                with pytest.raises(aio.AioRpcError) as refused:
                    async with raw_stream(broker.address, "Produce", "three") as three:
                        await three.hears("welcome")
                told = dict(refused.value.trailing_metadata() or ())
                failure = pb.Failure.FromString(told[FAILURE_KEY])
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
                assert (failure.code, failure.kind) == ("too_much", "try_again")
                assert failure.retry_after_ms > 0
                sending = asyncio.ensure_future(client.send("jobs", b"work", id="a"))
                await one.say(ping=pb.Ping())
                await one.hears("pong")  # open streams stay open
                assert not sending.done()
            assert await sending == "a"  # as soon as there is room

    asyncio.run(play())


def test_client_learns_that_streams_are_exhausted(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(connections=1)
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            async with broker.client(timeout=3) as another:
                with pytest.raises(BrokerUnavailable, match="1 streams are open already"):
                    await another.send("jobs", b"work", id="b")

    asyncio.run(play())


def test_too_large_body_is_refused_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", TopicSettings(largest_body_bytes=KIB))
            large = ToSend(id="large", body=bytes(KIB + 1))
            outcomes = await client.send_many("jobs", [ToSend(id="a"), large, ToSend(id="b")])
            assert [each.refusal for each in outcomes] == [None, Refusal.INVALID, None]
            assert "1025 bytes; at most 1024 are allowed" in outcomes.refused[0].detail
            with pytest.raises(Refused, match="at most 1024"):
                await client.send("jobs", bytes(KIB + 1), id="large")
            assert (await client.count("jobs")).total == 2

    asyncio.run(play())


def test_too_large_batch_changes_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(batch=10)
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            async with raw_stream(broker.address, "Produce", "p") as stream:
                messages = [pb.NewMessage(id=f"m{number}") for number in range(11)]
                create = pb.CreateBatch(topic_uid=topic.uid, messages=messages)
                await stream.say(seq=1, create=create)
                failure = await stream.hears("failure")
                assert (failure.code, failure.kind) == ("invalid_input", "refused")
                assert "a batch of 11 messages; at most 10" in failure.message
                assert (await client.count("jobs")).total == 0
                del create.messages[10:]
                await stream.say(seq=2, create=create)
                assert len((await stream.hears("outcomes")).outcomes) == 10
            await client.send_many("jobs", [ToSend() for _ in range(25)])  # the SDK knows the limit
            assert (await client.count("jobs")).total == 35

    asyncio.run(play())


def test_endless_instance_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            running(tmp_path) as broker,
            raw_consumer(broker.address, "c", "i" * 1_000_000) as stream,
        ):
            failure = await stream.hears("failure")
            assert failure.message == "instance has 1000000 bytes; at most 255 are allowed"

    asyncio.run(play())


def test_too_large_frame_ends_only_its_stream(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(frame_bytes=64 * KIB)
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", TopicSettings(largest_body_bytes=32 * KIB))
            async with raw_stream(broker.address, "Produce", "p") as stream:
                before = pb.CreateBatch(topic_uid=topic.uid, messages=[pb.NewMessage(id="a")])
                await stream.say(seq=1, create=before)
                assert (await stream.hears("outcomes")).outcomes[0].id == "a"
                large = pb.NewMessage(id="b", body=bytes(200 * KIB))
                await stream.say(
                    seq=2, create=pb.CreateBatch(topic_uid=topic.uid, messages=[large])
                )
                with pytest.raises(aio.AioRpcError, match="larger than max") as refused:
                    await stream.hears("outcomes")
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await client.count("jobs")).total == 1
            # A batch larger than a frame travels in several frames.
            await client.send_many("jobs", [ToSend(body=bytes(30 * KIB)) for _ in range(60)])
            assert len(await _drain(client, "jobs", 61)) == 61

    asyncio.run(play())


def test_compressed_frame_is_inflated_to_the_bound_alone(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(frame_bytes=64 * KIB)
        async with (
            running(tmp_path, limits=limits) as broker,
            aio.insecure_channel(broker.address) as channel,
        ):
            call: Any = channel.unary_unary("/chronoline.v1.Overseer/GetTopic")
            bomb = pb.GetTopicRequest(name="a" * 3_000_000).SerializeToString()
            with pytest.raises(
                aio.AioRpcError, match="Decompressed message larger than max"
            ) as refused:
                await call(bomb, compression=grpc.Compression.Gzip)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    asyncio.run(play())


def test_bodies_beyond_one_answer_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(frame_bytes=64 * KIB)
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            topic = await client.create_topic("jobs", TopicSettings(largest_body_bytes=KIB))
            ids = [f"m{number}" for number in range(120)]
            messages = [ToSend(id=each, body=bytes(KIB), delay=60) for each in ids]
            await client.send_many("jobs", messages)
            async with aio.insecure_channel(broker.address) as channel:
                read: Any = channel.unary_unary(
                    "/chronoline.v1.Carrier/ReadBodies",
                    request_serializer=pb.BodiesRequest.SerializeToString,
                    response_deserializer=pb.BodiesFound.FromString,
                )
                asked = pb.BodiesRequest(topic_uid=topic.uid, ids=ids, producer_group="default")
                with pytest.raises(aio.AioRpcError, match="ask for fewer at once"):
                    await read(asked)
                del asked.ids[50:]
                assert {each.id for each in (await read(asked)).found} == set(ids[:50])

    asyncio.run(play())


def test_wide_empty_frames_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            headers = pb.NewMessage(id="a", headers=[pb.Header()] * 100_000)
            create = pb.CreateBatch(topic_uid=topic.uid, messages=[headers])
            async with raw_stream(broker.address, "Produce", "p") as stream:
                await stream.say(seq=1, more=[pb.ProducerFrame()] * 100_000)
                failure = await stream.hears("failure")
                assert (failure.code, "100001 frames in one" in failure.message) == (
                    "invalid_input",
                    True,
                )
                await stream.say(seq=2, create=create)
                (outcome,) = (await stream.hears("outcomes")).outcomes
                assert (outcome.refusal, "headers" in outcome.detail) == ("invalid", True)
            async with raw_stream(broker.address, "Consume", "c") as stream:
                held = [pb.HeldLease()] * 100_001
                await stream.say(seq=1, subscribe=pb.Subscribe(topic_uid=topic.uid, holding=held))
                failure = await stream.hears("failure")
                assert (failure.code, "100001 leases" in failure.message) == ("invalid_input", True)
                await stream.say(seq=2, subscribe=pb.Subscribe(topic_uid=topic.uid))
                await stream.hears("subscribed")

    asyncio.run(play())


# Pings


@pytest.mark.parametrize(
    ("streams", "interval_ms"), [(1, 1_000), (250, 1_000), (500, 2_000), (5_000, 3_333)]
)
def test_many_streams_ping_less_often(streams: int, interval_ms: int) -> None:
    assert Limits().ping_interval_of(streams) == interval_ms


def test_interval_of_the_settings_is_the_least() -> None:
    assert Limits(ping_interval_ms=6_000).ping_interval_of(10_000) == 6_000


def test_pong_tells_the_interval_for_the_open_streams(tmp_path: Path) -> None:
    limits = Limits(ping_interval_ms=50)

    async def play() -> None:
        async with running(tmp_path, limits=limits) as broker, AsyncExitStack() as streams:
            opened = [
                await streams.enter_async_context(raw_stream(broker.address, "Produce", f"p{each}"))
                for each in range(25)
            ]
            for stream in opened:
                await stream.hears("welcome")
            await opened[-1].say(ping=pb.Ping())
            assert (await opened[-1].hears("pong")).interval_ms == 100

    asyncio.run(play())
