"""Nodes as processes: with the settings of a file, and killed while their calls are under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.client.messages import ToSend
from chronoline.core.errors import InvalidInput
from tests.broker.acceptance.brokers import broker_process
from tests.broker.targets.receivers import receiving
from tests.broker.targets.test_calls import is_done
from tests.deadline import run_scene, until

_MESSAGES = 300


def test_node_calls_by_its_settings(tmp_path: Path) -> None:
    settings = ["callbacks.allow=10.0.0.0/8", "callbacks.first_wait_ms=1"]

    async def scene() -> None:
        async with (
            broker_process(tmp_path, settings=settings) as broker,
            AsyncClient(broker.address) as client,
        ):
            with pytest.raises(InvalidInput, match=r"127\.0\.0\.1 may not be called"):
                await client.create_topic("t", TopicSettings(target="http://127.0.0.1:9/"))
            topic = TopicSettings(target="http://nobody.test/", max_attempts=2)
            await client.create_topic("t", topic)
            await client.send("t", id="a")
            await until(lambda: is_done(client, "t"))
            (letter,) = await client.dead_letters("t")
            assert "nobody.test has no address" in letter.reason
            assert "calls   the public internet, and 10.0.0.0/8   (URLs" in broker.log()
            assert "calls of topic 't' failed, 1 since" in broker.log()

    run_scene(scene)


@pytest.mark.timeout(180)
def test_killed_node_loses_no_message(tmp_path: Path) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.02)  # so that some are under way when it dies
        return web.Response()

    async def scene() -> None:
        async with (
            receiving(answer) as receiver,
            broker_process(tmp_path) as broker,
        ):
            async with AsyncClient(broker.address) as client:
                await client.create_topic("t", TopicSettings(target=receiver.url()))
                sending = [ToSend(id=f"m{n}", delay=n / _MESSAGES) for n in range(_MESSAGES)]
                (await client.send_many("t", sending)).raise_for_refused()
            await until(lambda: len(receiver.calls) > _MESSAGES // 3)
            broker.kill()
            await broker.start()
            async with AsyncClient(broker.address) as client:
                await until(lambda: is_done(client, "t"))
                assert await client.dead_letters("t") == []
            assert await broker.stop() == 0
        attempts: dict[str, list[int]] = {each.id: [] for each in sending if each.id}
        for call in receiver.calls:
            attempts[call.id].append(call.attempts)
        assert all(attempts.values())
        # A receiver recognizes a repeated call by its id and its attempts.
        assert all(each == sorted(set(each)) for each in attempts.values())

    asyncio.run(scene())  # leases have to lapse: each wait has its own patience
