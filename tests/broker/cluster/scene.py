"""Clusters of brokers in one process: one store, and one coordination service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from chronoline.broker.cluster.member import MemberOptions
from chronoline.broker.limits import Limits
from chronoline.client import Topic, TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.coordination.contract import BrokerSession, Coordination
from chronoline.coordination.generations import NOTHING_AGREED
from chronoline.core.errors import CoordinationUnavailable, StoreUnavailable
from chronoline.core.ids import bucket_of
from chronoline.core.topic import Topic as StoredTopic
from chronoline.node.broker_service import BrokerService
from chronoline.node.settings import BROKER_ROLES
from chronoline.stores.contract import Store
from chronoline.stores.memory import MemoryStore
from tests.broker.nodes import Running
from tests.broker.raw_streams import RawConsumer, raw_consumer
from tests.coordination.engines import Engine, LossyCoordination
from tests.deadline import until

BUCKETS = 8
_PATIENT = Limits(ping_timeout_ms=120_000)
"""Raw streams send no pings."""

IDS = [
    found
    for bucket in range(BUCKETS)
    for found in [f"m{n}" for n in range(1_000) if bucket_of(f"m{n}", BUCKETS) == bucket][:5]
]
"""Forty messages, five in each bucket."""


class MortalConnection(LossyCoordination):
    """A connection that can end as that of a killed broker."""

    def __init__(self, inner: Coordination) -> None:
        super().__init__(inner)
        self.inner = inner
        self.is_dead = False

    async def open_session(self, ttl_ms: int = 2_000, margin_ms: int = 300) -> BrokerSession:
        if self.is_dead:
            raise CoordinationUnavailable
        return await super().open_session(ttl_ms, margin_ms)


class CutStore:
    """A store that one broker can be cut off from."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_cut = False
        self.missed: list[str] = []
        """The calls while it was cut off."""

    def __getattr__(self, name: str) -> Any:
        if self.is_cut and name not in ("watch", "capabilities", "traffic"):
            self.missed.append(name)
            raise StoreUnavailable("no route to the store")
        return getattr(self._store, name)


class Cluster:
    """Brokers by name, and consumers at them."""

    def __init__(self, engine: Engine, exits: AsyncExitStack) -> None:
        self._engine = engine
        self._exits = exits
        self._store = exits.enter_context(MemoryStore())
        self.brokers: dict[str, Running] = {}
        self.connections: dict[str, MortalConnection] = {}
        self.stores: dict[str, CutStore] = {}
        """The store, as each broker reaches it."""

    async def add_broker(
        self,
        name: str,
        *,
        roles: tuple[str, ...] = BROKER_ROLES,
        store: Store | None = None,
        **given: Any,
    ) -> Running:
        connection = MortalConnection(self._engine.connect())
        reached: Any = CutStore(store or self._store)
        self.stores[name] = reached
        node = BrokerService(
            reached,
            grpc_address=("127.0.0.1", 0),
            coordination=connection,
            member=MemberOptions(name=name, roles=roles),
            limits=_PATIENT,
            **given,
        )
        await self._exits.enter_async_context(node)
        assert node.grpc is not None
        self.connections[name] = connection
        self.brokers[name] = Running(node, f"127.0.0.1:{node.grpc.port}")
        return self.brokers[name]

    async def client(self, broker: str) -> AsyncClient:
        return await self._exits.enter_async_context(self.brokers[broker].client())

    async def create_topic(self, broker: str, window: float = 0.4, **settings: Any) -> Topic:
        client = await self.client(broker)
        chosen = TopicSettings(window=window, buckets=BUCKETS, **settings)
        return await client.create_topic("jobs", chosen)

    async def create_topic_in_store(self) -> StoredTopic:
        """A topic that no broker made."""
        return self._store.create_topic("jobs", now_ms=1)

    async def join(
        self,
        broker: str,
        topic: Topic | StoredTopic,
        name: str,
        instance: str = "1",
        credit: int = 100,
    ) -> RawConsumer:
        """A consumer that is subscribed at a broker."""
        address = self.brokers[broker].address
        stream = await self._exits.enter_async_context(raw_consumer(address, name, instance))
        await stream.subscribe(topic.uid, credit)
        await stream.hears("subscribed")
        return stream

    def http(self, broker: str) -> str:
        """The URL of a broker."""
        edge = self.brokers[broker].node.http
        assert edge is not None
        return f"http://127.0.0.1:{edge.port}"

    def sees(self, broker: str, other: str) -> bool:
        """Whether a broker knows the address of another one."""
        parts = self.brokers[broker].node.parts
        assert parts is not None
        found = parts.member.brokers.get(other)
        return found is not None and bool(found.address)

    def session(self, broker: str) -> BrokerSession:
        parts = self.brokers[broker].node.parts
        assert parts is not None
        assert parts.member.session is not None
        return parts.member.session

    def kill(self, broker: str) -> None:
        """The broker sends no more keep-alives, and does not come back."""
        self.connections[broker].is_dead = True
        session = self.session(broker)
        session.abandon()
        self._engine.let_ttl_pass(session)

    def planned(self, broker: str, topic: Topic) -> set[str]:
        """The members of a topic as last agreed, in force or planned."""
        agreement = self.brokers[broker].node.agreement
        assert agreement is not None
        found = agreement.members.generations.get(topic.uid, NOTHING_AGREED)
        return {each.consumer for each in found.generation.members}

    def shares(self, *brokers: str) -> dict[str, tuple[int, int]]:
        """The shares of the consumers at these brokers, or at all of them."""
        return {
            each.name: each.share
            for name in brokers or self.brokers
            for each in self.brokers[name].subscriptions
        }

    async def shares_are(self, *brokers: str, **expected: tuple[int, int]) -> None:
        await until(lambda: self.shares(*brokers) == expected)


async def send_all(client: AsyncClient, ids: list[str]) -> None:
    outcomes = await client.send_many("jobs", [ToSend(id=each) for each in ids])
    outcomes.raise_for_refused()


async def receive(stream: RawConsumer, count: int) -> list[str]:
    """The ids of the next messages that a consumer is pushed."""
    found: list[str] = []
    while len(found) < count:
        found += [each.id for each in (await stream.hears("push")).deliveries]
    return found


def in_buckets(start: int, stop: int) -> list[str]:
    """The messages of a bucket range."""
    return sorted(each for each in IDS if start <= bucket_of(each, BUCKETS) < stop)


@asynccontextmanager
async def cluster(engine: Engine, *names: str, **given: Any) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as exits:
        found = Cluster(engine, exits)
        for name in names:
            await found.add_broker(name, **given)
        yield found
