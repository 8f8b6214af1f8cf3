"""A stopping node waits only for work under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chronoline.broker import loader
from tests.broker.nodes import running


@pytest.mark.parametrize("leaves", [True, False], ids=["has left", "is there"])
def test_idle_loader_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    # No setting: a loader that waited this long would not stop in the test.
    monkeypatch.setattr(loader, "_LAST_WORK_S", 3_600)

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("idle")
            stream = await client.subscribe(["idle"])
            if leaves:
                await client.unsubscribe(stream)
            async with asyncio.timeout(60):
                await broker.node.stop()
            assert broker.subscriptions == []

    asyncio.run(play())
