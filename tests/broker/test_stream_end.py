"""The end of a stream: it leaves nothing behind, leases nothing more, and the client learns of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from chronoline.broker.auth import Door
from chronoline.broker.grpc import client_stream as client_stream_module
from chronoline.broker.grpc.client_stream import ClientStream
from chronoline.broker.grpc.consumer_stream import ConsumerClientStream
from chronoline.broker.grpc.consumers import ConsumerNames
from chronoline.broker.limits import Limits
from chronoline.broker.subscription import Subscription
from chronoline.broker.tokens import Tokens
from chronoline.client import Topic, TopicSettings
from chronoline.client.aio import ToSend
from chronoline.core.errors import BrokerUnavailable, TopicNotFound
from chronoline.core.rights import Rights
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.gated_store import running_gated
from tests.broker.nodes import Running, running
from tests.broker.raw_streams import RawConsumer, RawStream, raw_consumer
from tests.deadline import until

KIB = 1024


def _session(broker: Running, name: str) -> ClientStream[Any, Any] | None:
    assert broker.node.grpc is not None
    return next((each for each in broker.node.grpc.sessions if each.name == name), None)


async def _rest(stream: RawStream) -> list[str]:
    """The kinds of the remaining replies until the stream ends."""
    kinds: list[str] = []
    async with asyncio.timeout(60):
        while (frame := await stream.call.read()) is not aio.EOF:
            kinds += [each.WhichOneof("what") for each in (frame, *frame.more)]
    return kinds


# By its client


async def _frames(topic: Topic) -> AsyncIterator[bytes]:
    subscribe = pb.Subscribe(topic_uid=topic.uid, credit=10)
    for frame in (
        pb.ConsumerFrame(hello=pb.Hello(name="c")),
        pb.ConsumerFrame(subscribe=subscribe),
    ):
        yield frame.SerializeToString()
    await asyncio.Event().wait()


@pytest.mark.parametrize("turns", range(4))
def test_stream_cancelled_twice_leaves_no_subscription(tmp_path: Path, turns: int) -> None:
    async def write(_: bytes) -> None:
        """A client that reads every frame."""

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            assert broker.node.parts is not None
            topic = await client.create_topic("jobs")
            session = ConsumerClientStream(broker.node.parts, ConsumerNames())
            serving = asyncio.ensure_future(session.serve(_frames(topic), write))
            await until(lambda: [each.joined for each in broker.subscriptions] == [True])
            serving.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)  # the first cancellation is still under way
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            assert broker.subscriptions == []

    asyncio.run(play())


def test_closed_outbox_stops_new_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(client_stream_module, "_CLOGGED_BYTES", 256 * KIB)

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            messages = [ToSend(body=bytes(100 * KIB)) for _ in range(50)]
            await client.send_many("jobs", messages)
            async with raw_consumer(broker.address, "deaf", "") as deaf:
                await deaf.subscribe(topic.uid, 1_000)
                await until(lambda: _is_clogged(broker))
                session = _session(broker, "deaf")
                assert session is not None
                await deaf.call.done_writing()
                # The client does not read, so only the outbox shows that it is closed.
                await until(lambda: session.outbox._closed)
                assert broker.subscriptions == []

    asyncio.run(play())


def _is_clogged(broker: Running) -> bool:
    session = _session(broker, "deaf")
    return session is not None and session.outbox.clogged


# By another that has its name


def test_replaced_subscribe_does_not_block_its_successor(tmp_path: Path) -> None:
    async def play() -> None:
        async with (
            running_gated(tmp_path, "resume") as (broker, store),
            broker.client() as client,
        ):
            topic = await client.create_topic("jobs")
            store.gate.clear()
            async with raw_consumer(broker.address, "c", "one") as older:
                await older.hears("welcome")
                await older.subscribe(topic.uid, 10)
                await until(lambda: store.waiting == 1)
                (before,) = broker.subscriptions
                async with raw_consumer(broker.address, "c", "one") as newer:
                    await newer.hears("welcome")
                    await newer.subscribe(topic.uid, 10)
                    answering = asyncio.ensure_future(_answer(newer))
                    await until(
                        lambda: answering.done() or _other_than(before, broker.subscriptions)
                    )
                    store.gate.set()
                    assert (await answering).WhichOneof("what") == "subscribed"
                    assert (await _rest(older))[-1] == "go_away"

    asyncio.run(play())


async def _answer(stream: RawStream) -> Any:
    async with asyncio.timeout(60):
        while not (reply := await stream.hear()).seq:
            pass  # it was not asked for
    return reply


def _other_than(before: Subscription, now: list[Subscription]) -> bool:
    return bool(now) and now != [before]


# By the broker


def test_stopping_broker_answers_requests_and_leases_nothing(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with running_gated(tmp_path, "ack") as (broker, store), broker.client() as client:
            topic = await client.create_topic("jobs", TopicSettings(window=0.1))
            await client.send("jobs", b"now", id="now")
            await client.send("jobs", b"soon", id="soon", delay=2)
            async with raw_consumer(broker.address, "c", "") as consumer:
                await consumer.subscribe(topic.uid, 10)
                (delivery,) = (await consumer.hears("push")).deliveries
                await until(lambda: _holds_ahead(broker))
                store.gate.clear()
                await _ack(consumer, topic, delivery)
                await until(lambda: store.waiting == 1)
                stopping = asyncio.ensure_future(broker.node.stop())
                await consumer.hears("go_away")
                assert broker.subscriptions == []
                store.gate.set()
                assert await _rest(consumer) == ["outcomes"]
                await stopping
            assert set(store.lookup(topic.uid, ["now", "soon"])) == {"soon"}
            assert store.lookup(topic.uid, ["soon"])["soon"].lock_consumer is None

    asyncio.run(play())


def _holds_ahead(broker: Running) -> bool:
    return any(len(each.agenda) for each in broker.subscriptions)


async def _ack(consumer: RawConsumer, topic: Topic, delivery: pb.Delivery) -> None:
    lease = pb.LeaseRef(id=delivery.id, version=delivery.version)
    await consumer.say(ack=pb.AckBatch(topic_uid=topic.uid, leases=[lease]), seq=7)


def test_client_that_reads_late_finds_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_stream_module, "_CLOGGED_BYTES", 256 * KIB)
    limits = Limits(ping_interval_ms=100, ping_timeout_ms=500)

    async def play() -> None:
        async with running(tmp_path, limits=limits) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            messages = [ToSend(body=bytes(100 * KIB)) for _ in range(50)]
            await client.send_many("jobs", messages)
            async with raw_consumer(broker.address, "deaf", "") as deaf:
                await deaf.subscribe(topic.uid, 1_000)
                pinging = asyncio.ensure_future(_ping(deaf))
                await until(lambda: _is_clogged(broker))
                await until(lambda: _session(broker, "deaf") is None)
                assert "push" in await _rest(deaf)
                await asyncio.gather(pinging, return_exceptions=True)

    asyncio.run(play())


def test_revoked_token_ends_only_its_streams(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        keys = {name: tokens.create(name) for name in ("one", "other")}
        async with (
            running(tmp_path, door=Door(tokens)) as broker,
            broker.client(token=keys["one"]) as one,
            broker.client(token=keys["other"]) as other,
        ):
            await one.create_topic("jobs")
            await one.send("jobs", b"x", id="a", delay=3_600)
            await other.send("jobs", b"x", id="b", delay=3_600)
            assert broker.node.grpc is not None
            before = broker.node.grpc.sessions
            tokens.revoke("one")
            await until(lambda: _ended(broker) == 1)
            (left,) = broker.node.grpc.sessions
            assert left in before
            await other.send("jobs", b"x", id="c", delay=3_600)

    def _ended(broker: Running) -> int:
        assert broker.node.grpc is not None
        return 2 - len(broker.node.grpc.sessions)

    asyncio.run(play())


def test_changed_rights_end_the_streams_of_a_token(tmp_path: Path) -> None:
    async def play() -> None:
        file = tmp_path / "tokens.json"
        tokens = Tokens(file)
        admin, key = tokens.create("admin"), tokens.create("worker", Rights.parse(["consume"]))
        async with (
            running(tmp_path, door=Door(tokens)) as broker,
            broker.client(token=admin) as producer,
            broker.client(token=key) as client,
        ):
            await producer.create_topic("jobs")
            await producer.send("jobs", b"x", id="a")
            leases = client.consume("jobs")
            assert (await anext(leases)).id == "a"
            stored = json.loads(file.read_text())
            stored["worker"]["rights"] = ["consume:others"]
            changed = file.with_suffix(".new")
            changed.write_text(json.dumps(stored))
            changed.replace(file)
            await producer.send("jobs", b"x", id="b", delay=2)
            with pytest.raises(TopicNotFound):  # as it is for all that it may not see
                await anext(leases)

    asyncio.run(play())


def test_unreadable_tokens_are_a_broker_that_is_unavailable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        (tmp_path / "tokens.json").write_text("{")
        door = Door(Tokens(tmp_path / "tokens.json"))
        async with running(tmp_path, door=door) as broker, broker.client(timeout=0.5) as client:
            for ask in (client.topics, lambda: client.send("jobs", b"x")):
                with pytest.raises(BrokerUnavailable, match="cannot read its tokens"):
                    await ask()

    asyncio.run(play())
    assert (
        "the tokens in 'tokens.json' cannot be read" in caplog.text
    )  # the reason is not for strangers


def test_unreadable_tokens_end_no_stream(tmp_path: Path) -> None:
    async def play() -> None:
        file = tmp_path / "tokens.json"
        tokens = Tokens(file)
        key = tokens.create("one")
        async with (
            running(tmp_path, door=Door(tokens)) as broker,
            broker.client(token=key) as client,
        ):
            await client.create_topic("jobs")
            await client.send("jobs", b"x", id="a", delay=3_600)
            assert broker.node.grpc is not None
            (session,) = broker.node.grpc.sessions
            file.write_text("nonsense")
            # Called directly: otherwise the test would wait for two periodic checks.
            broker.node.grpc._check_tokens()
            # The client hears of it a moment later.
            assert session._ending is None
            file.write_text("{}")
            broker.node.grpc._check_tokens()
            assert session._ending is not None

    asyncio.run(play())


def test_stream_without_hello_is_ended(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(ping_timeout_ms=500)
        async with (
            running(tmp_path, limits=limits) as broker,
            aio.insecure_channel(broker.address) as channel,
        ):
            call: Any = channel.stream_stream(
                "/chronoline.v1.Carrier/Produce",
                request_serializer=pb.ProducerFrame.SerializeToString,
                response_deserializer=pb.ProducerReply.FromString,
            )()
            stream = RawStream(call, pb.ProducerFrame)
            pinging = asyncio.ensure_future(_ping(stream))
            told = await stream.hears("go_away")
            assert (told.code, "no hello" in told.message) == ("silent", True)
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)

    asyncio.run(play())


async def _ping(stream: RawStream) -> None:
    while True:
        await stream.say(ping=pb.Ping())
        await asyncio.sleep(0.05)  # far within the time-out
