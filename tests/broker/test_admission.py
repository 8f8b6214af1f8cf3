"""gRPC requests are admitted or refused before they are read; the requests of all clients are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from chronoline.broker.auth import Door
from chronoline.broker.limits import Limits
from chronoline.broker.tokens import Tokens
from chronoline.client import TopicSettings
from chronoline.wire.codes import FAILURE_KEY
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.gated_store import running_gated
from tests.broker.nodes import Running, running
from tests.broker.raw_streams import raw_stream
from tests.deadline import until

KIB = 1024
_FULL_BY_TWO = Limits(frame_bytes=64 * KIB, node_bytes=128 * KIB, node_requests=1_000)


def _hasty(folder: Path) -> AbstractAsyncContextManager[Running]:
    """A node that is full by two requests, and refuses the next one soon."""
    admission = _FULL_BY_TWO.admission(patience_s=0.05)
    return running(folder, limits=_FULL_BY_TWO, admission=admission)


@asynccontextmanager
async def _asking(address: str) -> AsyncIterator[Any]:
    """Calls of a request whose body the test sends."""
    async with aio.insecure_channel(address) as channel:
        yield channel.stream_unary("/chronoline.v1.Overseer/Info")


async def _failure(call: Any) -> pb.Failure:
    with pytest.raises(aio.AioRpcError) as failed:
        await call
    told = dict(failed.value.trailing_metadata() or ())
    return pb.Failure.FromString(told[FAILURE_KEY])


def _under_way(broker: Running) -> int:
    assert broker.node.parts is not None
    return broker.node.parts.admission.under_way_bytes


def _refused(broker: Running) -> dict[tuple[str, ...], float]:
    samples = broker.node.metrics.snapshot().samples
    return {labels: value for name, labels, value in samples if name == "broker_refused_count"}


def test_missing_token_is_refused_before_reading(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")
    tokens.create("somebody")

    async def play() -> None:
        async with running(tmp_path, door=Door(tokens)) as broker, _asking(broker.address) as ask:
            call = ask()  # it is never written to
            async with asyncio.timeout(60):
                assert (await _failure(call)).code == "unauthenticated"
            assert _refused(broker) == {("grpc", "unauthenticated"): 1}
            assert _under_way(broker) == 0

    asyncio.run(play())


def test_requests_are_read_only_while_there_is_room(tmp_path: Path) -> None:
    async def play() -> None:
        async with _hasty(tmp_path) as broker, _asking(broker.address) as ask:
            silent = [ask(), ask()]
            await until(lambda: _under_way(broker) == 128 * KIB)
            refused = await _failure(ask())
            assert (refused.code, refused.kind) == ("node_busy", "try_again")
            assert _refused(broker) == {("grpc", "node_busy"): 1}
            for each in silent:
                each.cancel()
            await until(lambda: _under_way(broker) == 0)
            last = ask()
            await last.write(pb.InfoRequest().SerializeToString())
            await last.done_writing()
            assert pb.Cluster.FromString(await last).brokers

    asyncio.run(play())


def test_unsent_request_times_out(tmp_path: Path) -> None:
    async def play() -> None:
        limits = Limits(ping_interval_ms=50, ping_timeout_ms=100)
        async with running(tmp_path, limits=limits) as broker, _asking(broker.address) as ask:
            assert (await _failure(ask())).code == "invalid_input"
            ended = ask()
            await ended.done_writing()
            assert (await _failure(ended)).code == "invalid_input"
            await until(lambda: _under_way(broker) == 0)

    asyncio.run(play())


def test_client_retries_a_full_node(tmp_path: Path) -> None:
    async def play() -> None:
        async with _hasty(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs", TopicSettings(largest_body_bytes=KIB))
            await client.send("jobs", b"work", id="before")
            async with _asking(broker.address) as ask:
                silent = [ask(), ask()]
                await until(lambda: _under_way(broker) == 128 * KIB)
                sending = asyncio.ensure_future(client.send("jobs", b"work", id="a"))
                looking = asyncio.ensure_future(client.lookup("jobs", "before"))
                await until(lambda: _refused(broker).get(("grpc", "node_busy"), 0) > 1)
                for each in silent:
                    each.cancel()
                assert await sending == "a"  # the SDK repeats the request
                assert (await looking) is not None

    asyncio.run(play())


def test_ended_stream_frees_its_requests(tmp_path: Path) -> None:
    async def play() -> None:
        async with running_gated(tmp_path, "cancel") as (broker, store), broker.client() as client:
            topic = await client.create_topic("jobs")
            store.gate.clear()
            async with raw_stream(broker.address, "Produce", "gone") as gone:
                await gone.say(cancel=pb.CancelBatch(topic_uid=topic.uid, ids=["a"]), seq=1)
                await until(lambda: store.waiting > 0)
                assert _under_way(broker) > 0
            await until(lambda: _under_way(broker) == 0)

    asyncio.run(play())
