"""Topics of a cluster whose brokers die at every operation, twins, and lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TypeVar

import pytest

from chronoline.broker.topic_lifecycle import TopicLifecycle
from chronoline.coordination import claims
from chronoline.coordination.contract import (
    BrokerSession,
    CommitResult,
    Condition,
    Coordination,
    Write,
)
from chronoline.coordination.embedded import EmbeddedCoordination
from chronoline.coordination.generations import GENERATIONS, NOTHING_AGREED, write_generation
from chronoline.coordination.topics import TOPICS, TopicRegistry, TopicState, topics_of
from chronoline.core.errors import (
    CoordinationUnavailable,
    OutcomeUnknown,
    SessionLost,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
    TopicNotReady,
)
from chronoline.core.generation import Generation
from chronoline.core.message import NewMessage
from chronoline.core.topic import DEFAULT_SETTINGS, Topic, TopicSettings
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.etcd import EtcdServer
from chronoline.testing.postgres import PostgresServer
from tests.coordination.engines import EmbeddedEngine, Engine, EtcdEngine, LossyCoordination
from tests.deadline import run_scene, until

Result = TypeVar("Result")
NAME = "t"
ROWS = 3


class Life:
    """The operations that a broker has left before it dies; None for a broker that lives on."""

    def __init__(self, operations: int | None = None) -> None:
        self.left = operations
        self.dead = asyncio.Event()

    async def spend(self) -> None:
        """One more operation. A dead broker hangs."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.dead.set()
        if self.dead.is_set():
            await asyncio.Event().wait()


class MortalCoordination(LossyCoordination):
    """Coordination of a broker that dies before one of its commits."""

    def __init__(self, inner: Coordination, life: Life) -> None:
        super().__init__(inner)
        self._life = life

    async def commit(
        self, writes: Sequence[Write], *, when: Sequence[Condition] = ()
    ) -> CommitResult:
        await self._life.spend()
        return await super().commit(writes, when=when)


class MortalStore:
    """A store of a broker that dies before one of its changes. It stands in for `StoreAccess`."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store = store
        self._life = life
        self.failure: Exception | None = None
        self.read_failure: Exception | None = None
        self.paused = asyncio.Event()
        self.go_on = asyncio.Event()
        self.pause_before = ""
        """The change before which the broker is stopped, until `go_on`."""

    def check_changes(self) -> None:
        """The store takes changes, as far as is known."""

    async def call(
        self, query: str, read: Callable[[Store], Result], *, changes: bool = False
    ) -> Result:
        if query == self.pause_before:
            self.pause_before = ""
            self.paused.set()
            await self.go_on.wait()
        if changes or query == "purge":
            await self._life.spend()
            if self.failure is not None:
                raise self.failure
        elif self.read_failure is not None:
            raise self.read_failure
        return read(self._store)

    async def await_durable(self) -> None:
        """The store of a test loses no change: there is nothing to wait for."""


class Broker:
    """The topics of one broker."""

    def __init__(self, name: str, engine: Engine, store: Store, life: Life) -> None:
        self.life = life
        self.connection = engine.connect()
        self.coordination = MortalCoordination(self.connection, life)
        self.store = MortalStore(store, life)
        self.session: BrokerSession | None = None
        self.told: list[int] = []
        self.lifecycle = TopicLifecycle(
            self.coordination, self.store, SystemClock(), broker=name, session=lambda: self.session
        )
        self.lifecycle.on_deleted = lambda uid, _: self.told.append(uid)

    async def start(self) -> None:
        await self.coordination.start()
        self.session = await self.coordination.open_session()
        await self.lifecycle.start()

    async def stop(self) -> None:
        await self.lifecycle.stop()
        await self.coordination.stop()

    def has_worked_after_a_list(self, store: Store) -> bool:
        """Whether a mortal broker has spent its operations."""
        self.lifecycle.listed(store.list_topics())
        return self.life.left is not None and self.life.left <= 0


class Cluster:
    """Brokers on one store and one coordination service."""

    def __init__(self, engine: Engine, store: Store, exits: AsyncExitStack) -> None:
        self.engine = engine
        self.store = store
        self._exits = exits
        self._count = 0

    async def broker(self, operations: int | None = None) -> Broker:
        self._count += 1
        made = Broker(f"b{self._count}", self.engine, self.store, Life(operations))
        await made.start()
        self._exits.push_async_callback(made.stop)
        return made

    def bury(self, broker: Broker) -> None:
        """The session of a dead broker ends."""
        assert broker.session is not None
        broker.session.abandon()
        self.engine.let_ttl_pass(broker.session)

    async def registered(self, broker: Broker) -> dict[str, TopicState]:
        found = topics_of(await broker.coordination.read(TOPICS))
        return {name: topic.state for name, topic in found.items()}

    async def is_settled(self, broker: Broker) -> bool:
        """Whether registry and store agree, and nobody has work."""
        found = topics_of(await broker.coordination.read(TOPICS))
        live = {topic.name: topic.uid for topic in self.store.list_topics()}
        return (
            {name: topic.uid for name, topic in found.items()} == live
            and all(topic.state is TopicState.OPEN for topic in found.values())
            and not self.store.deleted_topics()
            and not (await broker.coordination.read(claims.CLAIMS)).entries
        )

    async def is_settled_after_a_list(self, broker: Broker) -> bool:
        broker.lifecycle.listed(self.store.list_topics())
        return await self.is_settled(broker)


@asynccontextmanager
async def cluster(engine: Engine, store: Store) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as exits:
        yield Cluster(engine, store, exits)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as opened:
        yield opened


def fill(store: Store, topic: Topic) -> None:
    messages = [NewMessage(id=f"m{n}", due=n, producer_group="g", body=b"x") for n in range(ROWS)]
    assert all(each.done for each in store.create(topic.uid, messages, now_ms=1_000))


async def run_until_death(broker: Broker, work: Awaitable[object]) -> bool:
    """Whether the work ended before the broker died."""
    doing = asyncio.ensure_future(work)
    dying = asyncio.ensure_future(broker.life.dead.wait())
    await asyncio.wait([doing, dying], return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    if doing.done():
        await doing
        return True
    doing.cancel()
    return False


# Creation


def test_created_topic_is_open_at_every_broker(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one, other = await brokers.broker(), await brokers.broker()
            settings = TopicSettings(buckets=8)
            topic = await one.lifecycle.create(NAME, settings, if_missing=False)
            assert topic.settings == settings
            assert store.find_topic(NAME) == topic
            one.lifecycle.check(NAME, topic)
            await until(lambda: brokers.is_settled(one))
            other.lifecycle.check(NAME, topic)
            assert await other.lifecycle.create(NAME, settings, if_missing=True) == topic
            for broker in (one, other):
                with pytest.raises(TopicExists, match="exists"):
                    await broker.lifecycle.create(NAME, settings, if_missing=False)

    run_scene(scene)


async def die_while_creating(engine: Engine, store: Store, operations: int) -> bool:
    """A broker dies after some operations, and another one goes on. False if it died before the answer."""
    async with cluster(engine, store) as brokers:
        mortal = await brokers.broker(operations)
        creation = mortal.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
        is_done = await run_until_death(mortal, creation)
        registered = await brokers.registered(mortal)
        heir = await brokers.broker()
        brokers.bury(mortal)
        await until(lambda: brokers.is_settled(heir))
        assert (await brokers.registered(heir)).keys() == registered.keys()
        topic = await heir.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=True)
        heir.lifecycle.check(NAME, topic)
        await heir.lifecycle.delete(topic)
        await until(lambda: brokers.is_settled(heir))
        assert store.list_topics() == []
        return is_done


def test_creation_is_finished_wherever_its_broker_dies(store: Store) -> None:
    async def scene() -> None:
        deaths = 0
        while not await die_while_creating(EmbeddedEngine(), store, deaths):
            deaths += 1
        assert deaths >= 4  # claim, register, provision, open

    run_scene(scene)


def test_half_provisioned_topic_refuses_clients(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one, other = await brokers.broker(), await brokers.broker()
            one.store.pause_before = "create_topic"
            creation = asyncio.ensure_future(
                one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            )
            await one.store.paused.wait()
            await until(lambda: _refuses(other, NAME))
            for broker in (one, other):
                with pytest.raises(TopicNotReady, match="still being created; try again"):
                    broker.lifecycle.check(NAME, None)
            with pytest.raises(TopicNotReady, match="another broker is at work"):
                await other.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=True)
            one.store.go_on.set()
            topic = await creation
            one.lifecycle.check(NAME, topic)
            await until(lambda: other.lifecycle.is_open(topic))

    run_scene(scene)


def _refuses(broker: Broker, name: str) -> bool:
    return not broker.lifecycle.is_open(Topic(uid=1, name=name))


def test_creation_that_the_store_refuses_is_undone(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            one.store.failure = StoreUnavailable()
            with pytest.raises(StoreUnavailable):
                await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            await until(lambda: brokers.is_settled(one))
            assert await brokers.registered(one) == {}
            one.store.failure = None
            await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)

    run_scene(scene)


def test_creation_of_unknown_outcome_is_finished(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            one.store.failure = OutcomeUnknown()
            with pytest.raises(OutcomeUnknown):
                await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            one.store.failure = None
            await until(lambda: bool(store.list_topics()))
            await until(lambda: brokers.is_settled(one))

    run_scene(scene)


@pytest.mark.parametrize("step", ["create_topic", "topic"])
def test_registered_creation_that_coordination_interrupts_is_unknown(
    store: Store, step: str
) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            assert isinstance(one.connection, EmbeddedCoordination)
            one.store.pause_before = "create_topic"
            creation = asyncio.ensure_future(
                one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            )
            await one.store.paused.wait()
            if step == "create_topic":
                one.connection.cut()
            else:
                one.store.read_failure = StoreUnavailable("no answer")
            one.store.go_on.set()
            with pytest.raises(OutcomeUnknown, match="is registered, and may be created later"):
                await creation
            one.connection.heal()
            one.store.read_failure = None
            await until(lambda: brokers.is_settled(one))
            assert len(store.list_topics()) == 1

    run_scene(scene)


def test_registered_creation_whose_claim_is_lost_is_unknown(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            one.store.pause_before = "create_topic"
            creation = asyncio.ensure_future(
                one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            )
            await one.store.paused.wait()
            brokers.bury(one)
            one.store.go_on.set()
            with pytest.raises(OutcomeUnknown, match="is registered, and may be created later"):
                await creation
            heir = await brokers.broker()
            await until(lambda: brokers.is_settled(heir))
            assert len(store.list_topics()) == 1

    run_scene(scene)


def test_overtaken_creation_is_taken_back(store: Store) -> None:
    """A stopped broker goes on when its topic was created by another, and deleted."""

    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            twin = await brokers.broker()
            twin.store.pause_before = "create_topic"
            creation = asyncio.ensure_future(
                twin.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            )
            await twin.store.paused.wait()
            heir = await brokers.broker()
            brokers.bury(twin)
            await until(lambda: brokers.is_settled(heir))
            topic = store.find_topic(NAME)
            assert topic is not None
            await heir.lifecycle.delete(topic)
            await until(lambda: brokers.is_settled(heir))
            twin.store.go_on.set()
            with pytest.raises(OutcomeUnknown, match="overtaken"):
                await creation
            await until(lambda: brokers.is_settled(heir))
            assert store.list_topics() == []

    run_scene(scene)


# Deletion


async def die_while_deleting(engine: Engine, store: Store, operations: int) -> bool:
    """A broker dies after some operations, and another one goes on. False if it died before the end."""
    topic = store.create_topic(NAME, now_ms=1)
    fill(store, topic)
    async with cluster(engine, store) as brokers:
        first = await brokers.broker()
        first.lifecycle.listed([topic])
        await until(lambda: brokers.is_settled(first))
        await first.lifecycle.stop()
        mortal = await brokers.broker(operations)
        is_done = await run_until_death(mortal, mortal.lifecycle.delete(topic))
        if is_done and operations < 10:  # it dies in the background
            await run_until_death(mortal, until(lambda: brokers.is_settled(mortal)))
        is_registered = await brokers.registered(mortal) != {NAME: TopicState.OPEN}
        heir = await brokers.broker()
        brokers.bury(mortal)
        await until(lambda: brokers.is_settled(heir))
        assert (store.list_topics() == []) is is_registered
        if not is_registered:
            await heir.lifecycle.delete(topic)
            await until(lambda: brokers.is_settled(heir))
        again = await heir.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
        assert again.uid != topic.uid
        assert store.lookup(again.uid, [f"m{n}" for n in range(ROWS)]) == {}
        await heir.lifecycle.delete(again)
        await until(lambda: brokers.is_settled(heir))
        return mortal.life.left is not None and mortal.life.left > 0


def test_deletion_is_finished_wherever_its_broker_dies(store: Store) -> None:
    async def scene() -> None:
        deaths = 0
        while not await die_while_deleting(EmbeddedEngine(), store, deaths):
            deaths += 1
        assert deaths >= 5  # adopt, delete, drop, claim, purge, remove

    run_scene(scene)


def test_deletion_is_told_at_every_broker_before_the_storage_is_removed(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one, other = await brokers.broker(), await brokers.broker()
            topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            fill(store, topic)
            for broker in (one, other):
                broker.store.pause_before = "purge"
            assert await one.lifecycle.delete(topic)
            await until(lambda: topic.uid in other.told)
            assert topic.uid in one.told
            with pytest.raises(TopicNotFound, match="was deleted"):
                other.lifecycle.check(NAME, topic)
            with pytest.raises(TopicNotFound):
                store.lookup(topic.uid, ["m0"])
            with pytest.raises(TopicExists, match="is being deleted"):
                await other.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=True)
            for broker in (one, other):
                broker.store.go_on.set()
            await until(lambda: brokers.is_settled(one))
            again = await other.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            assert again.uid != topic.uid

    run_scene(scene)


def test_failed_notice_does_not_end_the_following(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one, other = await brokers.broker(), await brokers.broker()
            notices = 0

            def fail_once(uid: int, _: str) -> None:
                nonlocal notices
                notices += 1
                if notices == 1:
                    raise RuntimeError
                other.told.append(uid)

            other.lifecycle.on_deleted = fail_once
            first = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            second = await one.lifecycle.create("u", DEFAULT_SETTINGS, if_missing=False)
            await until(lambda: brokers.is_settled(one))
            await until(lambda: other.lifecycle.is_open(second))
            await one.lifecycle.delete(first)
            await until(lambda: notices > 0)
            await one.lifecycle.delete(second)
            await until(lambda: second.uid in other.told)

    run_scene(scene)


def test_deletion_removes_the_generation(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            broker = await brokers.broker()
            topic = await broker.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            await write_generation(broker.connection, topic, NOTHING_AGREED, Generation(number=1))
            assert (await broker.connection.read(GENERATIONS)).entries
            await broker.lifecycle.delete(topic)
            await until(lambda: brokers.is_settled(broker))
            assert not (await broker.connection.read(GENERATIONS)).entries

    run_scene(scene)


def test_repeated_deletion_is_false(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            one.store.pause_before = "purge"
            assert await one.lifecycle.delete(topic)
            assert not await one.lifecycle.delete(topic)
            one.store.go_on.set()

    run_scene(scene)


def test_registered_deletion_is_done_when_the_store_returns(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            one.store.failure = StoreUnavailable()
            with pytest.raises(OutcomeUnknown, match="is registered and will be done"):
                await one.lifecycle.delete(topic)
            await until(lambda: not one.lifecycle.is_open(topic))
            one.store.failure = None
            await until(lambda: brokers.is_settled(one))
            assert store.list_topics() == []

    run_scene(scene)


# Agreement


def test_topics_of_the_store_are_adopted_and_lost_ones_are_closed(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            topic = store.create_topic(NAME, now_ms=1)
            one.lifecycle.listed(store.list_topics())
            await until(lambda: brokers.is_settled(one))
            assert await brokers.registered(one) == {NAME: TopicState.OPEN}
            fill(store, topic)
            store.delete_topic(topic.uid, now_ms=2)  # by a program that uses the library
            one.lifecycle.listed(store.list_topics())
            await until(lambda: brokers.is_settled(one))
            assert await brokers.registered(one) == {}
            assert topic.uid in one.told

    run_scene(scene)


@pytest.mark.parametrize("has_name", [False, True])
def test_broker_of_another_store_deletes_nothing(store: Store, has_name: bool) -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        with open_store("memory:") as foreign:
            async with cluster(engine, store) as brokers, cluster(engine, foreign) as strays:
                one = await brokers.broker()
                topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
                fill(store, topic)
                await until(lambda: brokers.is_settled(one))
                if has_name:
                    foreign.create_topic(NAME, now_ms=1)
                stray = await strays.broker(operations=1)
                await until(lambda: stray.has_worked_after_a_list(foreign))
                await until(lambda: brokers.is_settled_after_a_list(one))
                assert topic.uid not in one.told
                assert store.list_topics() == [topic]
                assert len(store.lookup(topic.uid, ["m0", "m1", "m2"])) == ROWS

    run_scene(scene)


def test_topic_that_the_store_removed_wholly_is_forgotten(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            await until(lambda: brokers.is_settled(one))
            store.delete_topic(topic.uid, now_ms=2)  # by a program that uses the library
            while store.deleted_topics():
                store.purge(now_ms=one_day_later())
            one.lifecycle.listed(store.list_topics())
            await until(lambda: brokers.is_settled(one))
            assert await brokers.registered(one) == {}
            await until(lambda: topic.uid in one.told)

    run_scene(scene)


def one_day_later() -> int:
    return SystemClock().now_ms() + 86_400_000


def test_no_topic_changes_without_coordination(store: Store) -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with cluster(engine, store) as brokers:
            one = await brokers.broker()
            topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            await until(lambda: brokers.is_settled(one))
            assert isinstance(one.connection, EmbeddedCoordination)
            one.connection.cut()
            with pytest.raises(CoordinationUnavailable):
                await one.lifecycle.create("another", DEFAULT_SETTINGS, if_missing=False)
            with pytest.raises(CoordinationUnavailable):
                await one.lifecycle.delete(topic)
            one.lifecycle.check(NAME, topic)
            assert store.list_topics() == [topic]
            one.connection.heal()

    run_scene(scene)


@pytest.mark.parametrize("losses", [[True], [False, True]], ids=str)
def test_lost_answers_of_every_commit(store: Store, losses: list[bool]) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            for commits in range(6):
                one.coordination.skip, one.coordination.losses = commits, list(losses)
                topic = await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
                one.coordination.skip, one.coordination.losses = commits, list(losses)
                assert await one.lifecycle.delete(topic)
                await until(lambda: brokers.is_settled(one))
                assert store.list_topics() == []

    run_scene(scene)


def test_commit_without_any_answer_is_an_unknown_outcome(store: Store) -> None:
    async def scene() -> None:
        async with cluster(EmbeddedEngine(), store) as brokers:
            one = await brokers.broker()
            one.coordination.losses = [True] * 6
            with pytest.raises(OutcomeUnknown):
                await one.lifecycle.create(NAME, DEFAULT_SETTINGS, if_missing=False)
            await until(lambda: brokers.is_settled(one))

    run_scene(scene)


# Real servers


def test_brokers_on_etcd_and_postgresql_finish_each_others_work(
    etcd_server: EtcdServer, postgres_server: PostgresServer
) -> None:
    """The deaths are in clusters of their own, side by side: each takes the TTL of a session."""
    deaths = range(1, 6)

    async def die_twice(store: Store, operations: int) -> None:
        for work in (die_while_creating, die_while_deleting):
            engine = EtcdEngine(etcd_server.url(f"{work.__name__}-{operations}"))
            await work(engine, store, operations)

    with ExitStack() as exits:
        urls = [postgres_server.create_database(f"lifecycle_{each}") for each in deaths]
        stores = [exits.enter_context(open_store(each)) for each in urls]

        async def scene() -> None:
            await asyncio.gather(*map(die_twice, stores, deaths))

        run_scene(scene)


def test_registry_steps_need_the_claim(store: Store) -> None:
    async def scene() -> None:
        engine = EmbeddedEngine()
        async with engine.connect() as one:
            session = await one.open_session()
            claim = await claims.take(one, session, "topic", NAME, broker="a")
            assert claim is not None
            registry = TopicRegistry(one)
            await registry.register(NAME, request="r", guards=[claim.condition])
            await session.close()
            for late in (
                registry.open(NAME, request="r", uid=7, guards=[claim.condition]),
                registry.abort(NAME, request="r", guards=[claim.condition]),
                registry.register("other", request="s", guards=[claim.condition]),
            ):
                with pytest.raises(SessionLost):
                    await late

    run_scene(scene)
