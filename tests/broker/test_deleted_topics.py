"""Deleting a topic that is consumed, here and at another broker."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from chronoline.broker.targets import targets
from chronoline.client import TopicSettings
from chronoline.coordination.embedded import EmbeddedCoordination, EmbeddedHub
from chronoline.core.errors import TopicNotFound
from chronoline.runtime import audit
from tests.broker.nodes import Running, running
from tests.deadline import until

_MESSAGES = 5


async def _drop_under_consumers(*nodes: Running) -> None:
    """One consumer holds all that it may and asks for no more, another has nothing to do.

    Each topic is dropped at a broker that does not serve it, if there is one. Which one serves it, brokers of
    a cluster decide.
    """
    async with nodes[0].client() as client, nodes[-1].client() as consumers:
        uids = {}
        for topic in ("full", "idle"):
            uids[topic] = (await client.create_topic(topic, TopicSettings(window=0.1))).uid
        full = consumers.consume("full", consumer="f", prefetch=2)
        idle = consumers.consume("idle", consumer="i", prefetch=2)
        waiting = asyncio.ensure_future(anext(idle))
        for number in range(_MESSAGES):
            await client.send("full", b"x", id=str(number))
        held = [await anext(full), await anext(full)]
        await until(lambda: sum(len(each.subscriptions) for each in nodes) == 2)
        for topic in ("full", "idle"):
            dropper = min(nodes, key=lambda node, name=topic: _serves(node, name))  # type: ignore[misc]  # of this turn
            assert dropper.node.parts is not None
            await dropper.node.parts.topics.delete(uids[topic])
        for ended, topic in ((waiting, "idle"), (asyncio.ensure_future(anext(full)), "full")):
            with pytest.raises(TopicNotFound, match=f"^topic '{topic}' was deleted$"):
                await asyncio.wait_for(ended, 60)
        assert len(held) == 2
        assert [each.subscriptions for each in nodes] == [[]] * len(nodes)


def _serves(node: Running, topic: str) -> bool:
    return topic in {each.topic.name for each in node.subscriptions}


def _check_log(caplog: pytest.LogCaptureFixture) -> None:
    assert [each.getMessage() for each in caplog.records if each.levelno > logging.INFO] == []
    told = {
        each.getMessage()
        for each in caplog.records
        if hasattr(each, "topic") and each.name != audit.logger.name
    }
    assert told == {"topic 'full' was deleted", "topic 'idle' was deleted"}


def test_drop_ends_consumers_of_this_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with running(tmp_path) as node:
            await _drop_under_consumers(node)

    with caplog.at_level(logging.INFO, logger="chronoline"):
        asyncio.run(play())
    _check_log(caplog)


def test_drop_ends_consumers_of_another_broker_without_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_LOOK_EVERY_S", 0.2)  # seconds between two listings of the topics

    async def play() -> None:
        async with running(tmp_path) as one, running(tmp_path) as other:
            await _drop_under_consumers(one, other)

    with caplog.at_level(logging.INFO, logger="chronoline"):
        asyncio.run(play())
    _check_log(caplog)


def test_drop_ends_consumers_of_the_whole_cluster_without_a_listing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_LOOK_EVERY_S", 3_600.0)

    async def play() -> None:
        hub = EmbeddedHub()
        async with (
            running(tmp_path, coordination=EmbeddedCoordination(hub)) as one,
            running(tmp_path, coordination=EmbeddedCoordination(hub)) as other,
        ):
            await _drop_under_consumers(one, other)

    with caplog.at_level(logging.INFO, logger="chronoline"):
        asyncio.run(play())
    _check_log(caplog)


def test_empty_batch_for_a_missing_topic_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as node, node.client() as client:
            topic = await client.create_topic("t")
            assert node.node.parts is not None
            carrier = node.node.parts.carrier
            assert await carrier.change(topic.uid, []) == []
            await client.delete_topic("t")
            with pytest.raises(TopicNotFound):
                await carrier.change(topic.uid, [])

    asyncio.run(play())
