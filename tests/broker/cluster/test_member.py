"""A broker as a member of its cluster: its entry, and a name that two brokers have."""

from __future__ import annotations

import pytest

from tests.broker.cluster.scene import cluster
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_SOON_S = 0.02


def test_broker_shows_its_load_to_the_others() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", upkeep_every_s=_SOON_S) as brokers:
            topic = await brokers.create_topic("one")
            await brokers.join("one", topic, "a")
            parts = brokers.brokers["two"].node.parts
            assert parts is not None
            await until(lambda: parts.member.brokers["one"].load.consumers == 1)
            assert parts.member.brokers["one"].address == brokers.brokers["one"].address
            assert parts.member.brokers["two"].load.topics == 0

    run_scene(scene)


def test_second_broker_of_a_name_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> int:
        return sum("give each broker a name of its own" in each for each in caplog.messages)

    async def scene() -> None:
        engine = EmbeddedEngine()
        async with cluster(engine, "one", upkeep_every_s=_SOON_S) as first:
            assert first.shares() == {}
            async with cluster(engine, "one"):
                await until(lambda: logged() == 1)

    run_scene(scene)
