"""The state of the cluster, as one broker shows it."""

from __future__ import annotations

import pytest

from chronoline.broker.cluster_info import cluster_info
from chronoline.broker.context import BrokerContext
from chronoline.broker.degradation import NOTICES, Degradation, DegradationType
from chronoline.core.selector import BrokerHealth, ClientKind
from chronoline.core.version import VERSION
from tests.broker.cluster.scene import cluster
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_SOON_S = 0.02
Shown = tuple[BrokerHealth, tuple[str, ...], tuple[str, ...]]
"""Health, problems and notices of a broker."""


@pytest.mark.parametrize("kind", sorted(NOTICES))
def test_notice_shows_whose_state_it_is_and_keeps_no_client_away(kind: DegradationType) -> None:
    """One that is about others leaves the broker healthy: all may notice one that vanished."""
    words = ["broker z at 10.0.0.1 is gone"]

    def notices() -> list[Degradation]:
        return [Degradation(kind, word, "it is gone") for word in words]

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", upkeep_every_s=_SOON_S) as brokers:
            asked, parts = (brokers.brokers[each].node.parts for each in ("one", "two"))
            assert asked is not None
            assert parts is not None
            parts.degradation.watch(notices)

            async def shown(by: BrokerContext) -> Shown | None:
                found = {broker.record.name: broker for broker in (await cluster_info(by)).brokers}
                two = found.get("two")
                return None if two is None else (two.health, two.problems, two.notices)

            def expected(reason: str) -> Shown:
                if kind in (DegradationType.DRIFT, DegradationType.PEERS):
                    return BrokerHealth.HEALTHY, (), (reason,)
                return BrokerHealth.DEGRADED, (reason,), ()

            async def is_shown() -> bool:
                return await shown(asked) == expected("it is gone")

            async def is_well() -> bool:
                return await shown(asked) == (BrokerHealth.HEALTHY, (), ())

            await until(is_shown)
            assert await shown(parts) == expected("broker z at 10.0.0.1 is gone")
            preferred = asked.overseer.prefer(1, ClientKind.CONSUMER, "", only_look=True)
            assert {each.health for each in preferred} == {BrokerHealth.HEALTHY}
            words.clear()
            await until(is_well)

    run_scene(scene)


def test_client_sees_versions_and_notices() -> None:
    def notices() -> list[Degradation]:
        return [Degradation(DegradationType.PEERS, "z is gone", "a peer is gone")]

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", upkeep_every_s=_SOON_S) as brokers:
            parts = brokers.brokers["one"].node.parts
            assert parts is not None
            parts.degradation.watch(notices)
            (one,) = (await (await brokers.client("one")).cluster()).brokers
            assert (one.version, one.health) == (VERSION, "healthy")
            assert (one.problems, one.notices) == ((), ("z is gone",))

    run_scene(scene)


def test_topics_have_their_names_without_the_store() -> None:
    """Each question would wait for the store's time-out, which is longer than the client's."""

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", upkeep_every_s=_SOON_S) as brokers:
            topic = await brokers.create_topic("one")
            await brokers.join("one", topic, "a")
            client = await brokers.client("two")

            async def shown() -> list[str]:
                return [each.topic for each in (await client.cluster()).subscribers]

            store, parts = brokers.stores["two"], brokers.brokers["two"].node.parts
            assert parts is not None
            store.is_cut = True
            await until(lambda: bool(parts.gate.store_problem) and bool(parts.overseer.consumers))
            assert await shown() == ["jobs"]
            assert "get_topic" not in store.missed

    run_scene(scene)
