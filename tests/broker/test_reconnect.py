"""A consumer that reconnects: its leases, and whether it is accepted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.broker.nodes import running
from tests.broker.raw_streams import raw_consumer


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed by another"])
def test_reconnected_consumer_keeps_its_unchanged_leases(tmp_path: Path, changed: bool) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            async with raw_consumer(broker.address, "c", "1") as first:
                await first.subscribe(topic.uid, 1)
                (pushed,) = (await first.hears("push")).deliveries
            version = (
                pushed.version - changed
            )  # an older version, as if another consumer had leased it since
            async with raw_consumer(broker.address, "c", "1") as again:
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


def test_replaced_consumer_is_refused_when_it_reconnects(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            async with (
                raw_consumer(broker.address, "c", "1") as first,
                raw_consumer(broker.address, "c", "2") as second,
            ):
                assert (await first.hears("go_away")).code == "replaced"
                async with raw_consumer(broker.address, "c", "1") as returned:
                    failure = await returned.hears("failure")
                    assert (failure.code, failure.kind) == ("consumer_replaced", "refused")
                    await returned.subscribe(topic.uid, 1)
                    assert "hello" in (await returned.hears("failure")).message
                await second.subscribe(topic.uid, 1)  # it still owns the name
                await client.send("jobs", b"work", id="a")
                (came,) = (await second.hears("push")).deliveries
                assert came.id == "a"

    asyncio.run(play())


def test_same_instance_may_reconnect(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker:
            for _ in range(3):
                async with raw_consumer(broker.address, "c", "1") as stream:
                    assert (await stream.hears("welcome")).name == "c"
            async with (
                raw_consumer(broker.address, "c", "1") as first,
                raw_consumer(broker.address, "c", "1") as second,
            ):
                assert (await first.hears("go_away")).code == "replaced"
                assert (await second.hears("welcome")).name == "c"
                async with raw_consumer(broker.address, "c", "1") as third:
                    assert (await third.hears("welcome")).name == "c"

    asyncio.run(play())


def test_unreserved_message_comes_back_unchanged(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            async with raw_consumer(broker.address, "c", "1") as stream:
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
