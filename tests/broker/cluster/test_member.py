"""A broker as a member of its cluster: its entry, and a name that two brokers have."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from chronoline.broker.cluster.member import ClusterMember, MemberOptions
from chronoline.broker.context import BrokerContext
from chronoline.broker.gate import Work
from chronoline.coordination.cluster_store import STORE
from chronoline.coordination.contract import Delete, Put
from chronoline.coordination.membership import (
    BROKERS,
    MEMBERS,
    BrokerLoad,
    BrokerRecord,
    NameRecord,
)
from chronoline.core.errors import (
    CoordinationRefused,
    CoordinationUnavailable,
    NameTaken,
    StoreUnavailable,
)
from chronoline.core.topic import DEFAULT_SETTINGS
from chronoline.stores.memory import MemoryStore
from tests.broker.cluster.scene import Cluster, cluster
from tests.coordination.engines import EmbeddedEngine, Engine, keys
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


def test_second_broker_of_a_name_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with cluster(engine, "one") as first:
            member = ClusterMember(engine.connect(), MemberOptions(name="one"))
            address = first.brokers["one"].address
            with pytest.raises(NameTaken, match=rf"'one', at {address}: give each .* 2 s after"):
                await member.start()
            assert parts_of(first, "one").member.problem == ""
        assert [message for message in caplog.messages if "give each broker a name" in message][
            1:
        ] == []

    run_scene(scene)


def test_broker_that_starts_without_the_service_says_so() -> None:
    async def identity() -> str:
        return "s"

    async def scene() -> None:
        coordination = EmbeddedEngine().connect()
        coordination.cut()
        member = ClusterMember(coordination, MemberOptions(name="one"), identity)
        async with member:
            assert "has no session" in member.problem
            assert member.problem_details
            coordination.heal()
            await until(lambda: not member.problem)

    run_scene(scene)


def test_broker_waits_for_the_end_of_its_earlier_run(engine: Engine) -> None:
    async def scene() -> None:
        async with engine.connect() as one:
            killed, shown = await one.open_session(), BrokerRecord("one", "host:7400")
            name = Put("names/one", NameRecord("earlier", killed.ttl_ms).encode(), killed)
            await one.commit([name, Put(shown.key, shown.encode(), killed)])
            killed.abandon()
            member = ClusterMember(engine.connect(), MemberOptions(name="one"))
            starting = asyncio.create_task(member.start())
            await until(lambda: "has the name of this one" in member.problem)
            assert "host:7400" in member.problem_details
            engine.let_ttl_pass(killed)
            await starting
            assert member.problem == ""
            await member.stop()

    run_scene(scene)


def test_second_broker_of_an_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[str]:
        return [each for each in caplog.messages if "show the same address" in each]

    async def scene() -> None:
        engine = EmbeddedEngine()
        options = MemberOptions(name="b", advertise="127.0.0.1:7400")
        async with engine.connect() as hub:
            members = [
                ClusterMember(engine.connect(), replace(options, name=name)) for name in "abc"
            ]
            async with AsyncExitStack() as exits:
                for member in members:
                    await exits.enter_async_context(member)
                    member.appear("127.0.0.1:7400")
                    await member.registration.wait_written()
                assert len(keys(await hub.read(BROKERS))) == 3
                for _ in range(10):
                    members[0].describe(BrokerLoad(), {})
            assert len(logged()) == 1
            assert "b, c" in logged()[0]
            assert "127.0.0.1:7400" in logged()[0]

    run_scene(scene)


def test_broker_whose_entries_are_refused_is_not_ready() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", upkeep_every_s=_SOON_S) as brokers:
            gate = parts_of(brokers, "one").gate
            brokers.connections["one"].refusal = CoordinationRefused("no rights")
            await brokers.join("one", await brokers.create_topic_in_store(), "c")
            await until(lambda: gate.closure(Work.RESERVE) is not None)
            (closure,) = gate.closures
            assert closure.public.startswith("the coordination service takes no entries")
            assert closure.reason.endswith("(no rights)")
            brokers.connections["one"].refusal = None
            await until(lambda: gate.closure(Work.RESERVE) is None)

    run_scene(scene)


# One store


def parts_of(brokers: Cluster, name: str) -> BrokerContext:
    parts = brokers.brokers[name].node.parts
    assert parts is not None
    return parts


def reasons(brokers: Cluster, name: str) -> list[str]:
    """Why a broker is not ready, as `status`, `/readyz` and the log show it."""
    return [each.public for each in parts_of(brokers, name).degradation.current]


def test_broker_with_another_store_takes_no_part(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        with MemoryStore() as foreign:
            async with cluster(engine, "one", "two", upkeep_every_s=_SOON_S) as brokers:
                topic = await brokers.create_topic("one")
                other = foreign.create_topic("jobs", now_ms=1)
                await brokers.add_broker("stray", store=foreign, upkeep_every_s=_SOON_S)
                stray = parts_of(brokers, "stray")
                assert (
                    "the brokers of this cluster use another store" in reasons(brokers, "stray")[0]
                )
                assert stray.gate.closure(Work.RESERVE) is not None
                assert "use another store" in caplog.text
                with pytest.raises(CoordinationUnavailable):
                    await stray.topics.create("more", DEFAULT_SETTINGS, if_missing=True)
                with pytest.raises(CoordinationUnavailable):
                    await stray.topics.delete(other.uid)
                await stray.topics.list()
                await brokers.join("stray", other, "lost")
                consumer = await brokers.join("one", topic, "c")
                await brokers.shares_are("one", "two", c=(0, 8))
                assert stray.overseer.others == []
                for name in ("one", "two"):
                    assert reasons(brokers, name) == []
                    assert parts_of(brokers, name).member.brokers.keys() == {"one", "two"}
                    assert [each.uid for each in await parts_of(brokers, name).topics.list()] == [
                        topic.uid
                    ]
                assert not any(
                    "lost" in each for each in keys(await stray.member.coordination.read(MEMBERS))
                )
                assert foreign.list_topics() == [other]
                assert consumer is not None

    run_scene(scene)


def test_replaced_store_is_accepted_when_the_entry_is_deleted(engine: Engine) -> None:
    async def scene() -> None:
        with MemoryStore() as replaced:
            async with cluster(engine, "one"):
                pass
            async with cluster(engine) as brokers:
                await brokers.add_broker("two", store=replaced, upkeep_every_s=_SOON_S)
                assert reasons(brokers, "two")
                member = parts_of(brokers, "two").member
                (key,) = keys(await member.coordination.read(STORE))
                await member.coordination.commit([Delete(key)])
                await until(lambda: not reasons(brokers, "two"))
                await until(lambda: member.brokers.keys() == {"two"})

    run_scene(scene)


def test_broker_appears_when_its_store_has_answered() -> None:
    answers = asyncio.Event()

    async def identity() -> str:
        if not answers.is_set():
            raise StoreUnavailable
        return "s"

    async def scene() -> None:
        engine = EmbeddedEngine()
        member = ClusterMember(engine.connect(), MemberOptions(name="one"), identity)
        async with engine.connect() as other, member:
            member.appear("host:7400")
            assert "has not compared its store" in member.problem
            assert keys(await other.read("")) == []
            answers.set()
            await until(lambda: not member.problem)
            await member.registration.wait_written()
            assert "brokers/one" in keys(await other.read(""))

    run_scene(scene)
