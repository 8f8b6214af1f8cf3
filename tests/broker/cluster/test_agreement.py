"""Several brokers share a topic: evenly, while brokers and consumers come, go and move."""

from __future__ import annotations

import asyncio

from chronoline.broker.cluster.agreement import Agreement
from chronoline.broker.cluster.member import ClusterMember, MemberOptions
from chronoline.broker.gate import ClosureType
from chronoline.broker.shares import ConnectedConsumer
from chronoline.coordination.contract import Coordination, KeyValue, KeyWatch, View
from chronoline.coordination.embedded import EmbeddedCoordination
from chronoline.coordination.generations import GENERATIONS, Members
from chronoline.coordination.membership import MEMBERS, ConsumerRecord
from chronoline.coordination.topics import TopicRegistry
from chronoline.core.generation import TopicMember
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import Returned
from tests.broker.clocks import MovableClock
from tests.broker.cluster.scene import IDS, cluster, in_buckets, receive, send_all
from tests.coordination.engines import EmbeddedEngine, Engine, LossyCoordination
from tests.deadline import run_scene, until

_HOUR_S = 3_600


def test_consumers_at_two_brokers_share_a_topic_evenly(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            first = await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            await send_all(await brokers.client("one"), IDS)
            assert sorted(await receive(first, 20)) == in_buckets(0, 4)
            assert sorted(await receive(second, 20)) == in_buckets(4, 8)

    run_scene(scene)


def test_third_broker_takes_its_part(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two", "three") as brokers:
            topic = await brokers.create_topic("one")
            streams = [
                await brokers.join(broker, topic, name)
                for broker, name in (("one", "a"), ("two", "b"), ("three", "c"), ("three", "d"))
            ]
            await brokers.shares_are(a=(0, 2), b=(2, 4), c=(4, 6), d=(6, 8))
            await send_all(await brokers.client("two"), IDS)
            for number, stream in enumerate(streams):
                expected = in_buckets(2 * number, 2 * number + 2)
                assert sorted(await receive(stream, 10)) == expected

    run_scene(scene)


def test_share_of_a_dead_broker_goes_to_the_others(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            first = await brokers.join("one", topic, "a")
            await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            brokers.kill("two")
            await brokers.shares_are("one", a=(0, 8))
            await send_all(await brokers.client("one"), in_buckets(0, 4))
            assert sorted(await receive(first, 20)) == in_buckets(0, 4)

    run_scene(scene)


def test_share_of_a_broker_without_the_store_goes_to_the_others() -> None:
    """Nothing is sent meanwhile: the broker finds out by itself."""

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            first = await brokers.join("one", topic, "a")
            await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            brokers.stores["two"].is_cut = True
            await brokers.shares_are("one", a=(0, 8))
            await send_all(await brokers.client("one"), IDS)
            assert sorted(await receive(first, 40)) == in_buckets(0, 8)
            brokers.stores["two"].is_cut = False
            await brokers.shares_are(a=(0, 4), b=(4, 8))

    run_scene(scene)


def test_shares_return_with_the_store_of_all_brokers() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            first = await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            for store in brokers.stores.values():
                store.is_cut = True
            await brokers.shares_are(a=(0, 0), b=(0, 0))
            for store in brokers.stores.values():
                store.is_cut = False
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            await send_all(await brokers.client("one"), IDS)
            assert sorted(await receive(first, 20)) == in_buckets(0, 4)
            assert sorted(await receive(second, 20)) == in_buckets(4, 8)

    run_scene(scene)


def test_consumer_that_leaves_hands_its_share_on(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            second.call.cancel()
            await brokers.shares_are(a=(0, 8))

    run_scene(scene)


def test_busy_consumer_has_no_share(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            await brokers.join("one", topic, "a")
            await brokers.join("two", topic, "b", credit=0)
            await until(lambda: brokers.shares() == {"a": (0, 8), "b": (0, 0)})

    run_scene(scene)


def test_consumer_that_returns_at_another_broker_keeps_its_share() -> None:
    """No window ends by itself during the test."""
    clock = MovableClock()

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two", "three", clock=clock) as brokers:
            topic = await brokers.create_topic("one", window=_HOUR_S)
            await brokers.join("one", topic, "a")
            moving = await brokers.join("two", topic, "b")
            await until(lambda: brokers.planned("one", topic) == {"a", "b"})
            await brokers.shares_are(a=(0, 8), b=(0, 0))
            clock.ahead_ms += 2 * _HOUR_S * 1_000
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            moving.call.cancel()
            await until(lambda: not brokers.shares("two"))
            returned = await brokers.join("three", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            await send_all(await brokers.client("two"), IDS)
            assert sorted(await receive(returned, 20)) == in_buckets(4, 8)

    run_scene(scene)


def test_name_at_two_brokers_belongs_to_the_later_one(engine: Engine) -> None:
    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            earlier = await brokers.join("one", topic, "a", "1")
            await brokers.shares_are(a=(0, 8))
            later = await brokers.join("two", topic, "a", "2")
            assert (await earlier.hears("go_away")).code == "replaced"
            await until(lambda: not brokers.shares("one"))
            await brokers.shares_are("two", a=(0, 8))
            await send_all(await brokers.client("one"), IDS)
            assert sorted(await receive(later, 40)) == sorted(IDS)

    run_scene(scene)


class _Loader:
    """Records what a source of shares tells it."""

    def __init__(self) -> None:
        self.told: list[Returned] = []

    def changed(self) -> None:
        pass

    def returned(self, other: Returned) -> None:
        self.told.append(other)


def test_name_is_told_without_a_notice_of_the_store() -> None:
    member = ClusterMember(EmbeddedCoordination(), MemberOptions(name="one"))
    agreement = Agreement(member, MovableClock(), may_decide=lambda: True, failed=lambda *_: None)
    topic, loader = Topic(uid=7, name="t", settings=TopicSettings()), _Loader()
    source = agreement.shares(topic, loader)
    source.observe([ConnectedConsumer(TopicMember("a"), Returned(5, "i/p.1", "a"))])
    here = ConsumerRecord(7, "a", "one", "i/p.1", since_ms=5)
    source.saw(Members({7: {"a": here}}, {}))
    assert loader.told == []
    there = ConsumerRecord(7, "a", "two", "j/p.1", since_ms=6)
    source.saw(Members({7: {"a": there}}, {}))
    assert loader.told == [Returned(6, "j/p.1", "a")]


class _LateWatch(KeyWatch):
    """Its reader can be held up behind the view of now."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.may_read = asyncio.Event()
        self.may_read.set()

    async def __anext__(self) -> View:
        view = await super().__anext__()
        await self.may_read.wait()
        return view


class _LateCoordination(LossyCoordination):
    def __init__(self, inner: Coordination) -> None:
        super().__init__(inner)
        self.late = _LateWatch(MEMBERS)

    def watch(self, prefix: str) -> KeyWatch:
        return self.late if prefix == MEMBERS else super().watch(prefix)


class _CountedClock(MovableClock):
    reads = 0

    def now_ms(self) -> int:
        self.reads += 1
        return super().now_ms()


def view_of(*names: str, revision: int) -> View:
    records = [ConsumerRecord(7, name, "one", "i/p.1") for name in names]
    entries = {each.key: KeyValue(each.key, each.encode(), revision) for each in records}
    return View.of(entries, revision)


def test_broker_decides_by_the_view_of_now_alone() -> None:
    async def scene() -> None:
        coordination, clock = _LateCoordination(EmbeddedCoordination()), _CountedClock()
        late = coordination.late
        topic = Topic(uid=7, name="t", settings=TopicSettings())
        member = ClusterMember(coordination, MemberOptions(name="one"))
        agreement = Agreement(member, clock, may_decide=lambda: True, failed=lambda *_: None)
        async with member, agreement:
            await TopicRegistry(coordination).adopt("t", uid=7)
            late.show(view_of("a", revision=5))
            await until(lambda: 7 in agreement.members.consumers)
            late.may_read.clear()
            late.show(view_of("a", "b", revision=6))
            agreement.shares(topic, _Loader())
            reads = clock.reads
            await until(lambda: clock.reads >= reads + 2)
            assert not (await coordination.read(GENERATIONS)).entries
            late.may_read.set()
            await until(lambda: _has_generation(coordination))
            found = Members.of(await coordination.read(MEMBERS)).generations[7].generation
            assert [each.consumer for each in found.members] == ["a", "b"]

    run_scene(scene)


async def _has_generation(coordination: Coordination) -> bool:
    return bool((await coordination.read(GENERATIONS)).entries)


def test_consumers_of_a_broker_that_may_not_serve_count_as_busy() -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            await brokers.join("one", topic, "a")
            await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            parts = brokers.brokers["two"].node.parts
            assert parts is not None
            parts.gate.stopping = True
            parts.loaders.moved()
            await brokers.shares_are("one", a=(0, 8))
            parts.gate.stopping = False
            await brokers.shares_are(a=(0, 4), b=(4, 8))

    run_scene(scene)


def test_broker_that_is_cut_off_grants_nothing_and_recovers() -> None:
    engine = EmbeddedEngine()

    async def scene() -> None:
        async with cluster(engine, "one", "two") as brokers:
            topic = await brokers.create_topic("one")
            first = await brokers.join("one", topic, "a")
            second = await brokers.join("two", topic, "b")
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            parts = brokers.brokers["two"].node.parts
            connection = brokers.connections["two"].inner
            assert parts is not None
            assert isinstance(connection, EmbeddedCoordination)
            session = brokers.session("two")
            connection.cut()
            engine.let_ttl_pass(session)
            assert [each.type for each in parts.gate.closures] == [ClosureType.COORDINATION]
            await brokers.shares_are("one", a=(0, 8))
            await send_all(await brokers.client("two"), in_buckets(4, 8))
            assert sorted(await receive(first, 20)) == in_buckets(4, 8)
            connection.heal()
            await until(lambda: not parts.gate.closures)
            await brokers.shares_are(a=(0, 4), b=(4, 8))
            late = [f"late-{each}" for each in range(40)]
            await send_all(await brokers.client("one"), late)
            assert await receive(second, 1)

    run_scene(scene)
