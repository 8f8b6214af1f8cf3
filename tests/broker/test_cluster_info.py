"""The state of the cluster, as one broker shows it."""

from __future__ import annotations

from chronoline.broker.degradation import Degradation, DegradationType
from chronoline.core.selector import BrokerHealth, ClientKind
from chronoline.core.version import VERSION
from tests.broker.cluster.scene import cluster
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_SOON_S = 0.02


def test_notices_of_other_brokers_are_shown_and_keep_no_client_away() -> None:
    words = ["broker z at 10.0.0.1 is gone"]

    def notices() -> list[Degradation]:
        return [Degradation(DegradationType.PEERS, each, "a peer is gone") for each in words]

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", upkeep_every_s=_SOON_S) as brokers:
            asked, parts = (brokers.brokers[each].node.parts for each in ("one", "two"))
            assert asked is not None
            assert parts is not None
            parts.degradation.watch(notices)
            client = await brokers.client("one")

            async def shown() -> tuple[str, tuple[str, ...]]:
                (two,) = [each for each in (await client.cluster()).brokers if each.name == "two"]
                return two.health, two.problems

            async def is_degraded() -> bool:
                return await shown() == ("degraded", ("a peer is gone",))

            async def is_well() -> bool:
                return await shown() == ("healthy", ())

            await until(is_degraded)
            versions = {each.version for each in (await client.cluster()).brokers}
            assert versions == {VERSION}
            preferred = asked.overseer.prefer(1, ClientKind.CONSUMER, "", only_look=True)
            assert {each.health for each in preferred} == {BrokerHealth.HEALTHY}
            words.clear()
            await until(is_well)

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
