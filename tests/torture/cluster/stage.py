"""Brokers of one cluster on one PostgreSQL and one etcd, with ways between them that can be cut."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from chronoline.core.errors import MissingExtra
from chronoline.runtime.child_process import free_ports
from chronoline.testing.cluster import BrokerPlan, in_parallel
from chronoline.testing.etcd import EtcdServer
from chronoline_bench.servers.etcd import EtcdCluster, survives_kills, surviving_program
from chronoline_bench.servers.faketime import FakeTime
from tests.broker.tcp_proxy import TcpProxy, tcp_proxy
from tests.coordination.etcd_admin import leader_of
from tests.torture.brokers.stage import SETTINGS, Child, Stage, listens
from tests.torture.cluster.namespaces import PARTS, Namespace, make_namespaces

TTL_MS = 2_000
"""Of the sessions of brokers; the default."""
_LEADER_S = 5.0
RACKS = ("north", "south")


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways between a broker and its servers, and its clients.

    Each part has proxies. A broker in a namespace has none for its clients.
    """

    proxies: dict[str, list[TcpProxy]]
    namespace: Namespace | None

    def cut(self, part: str, *, silently: bool) -> None:
        """Silently, connections stay open and nothing passes; else they end, and new ones are refused."""
        if silently and self.namespace is not None:
            self.namespace.cut(part)
            return
        for proxy in self.proxies[part]:
            proxy.silence() if silently else proxy.cut()

    def heal(self, part: str) -> None:
        for proxy in self.proxies[part]:
            proxy.heal()
        if self.namespace is not None:
            self.namespace.heal(part)


@dataclass
class ClusterStage(Stage):
    """Clients know all brokers. Without namespaces they reach HTTP directly, and gRPC through proxies."""

    planted: str = ""
    """A defect that all brokers have; see `planted`."""
    racks: Sequence[str] = RACKS
    """Of the brokers and consumers, in turn. With one rack nobody backs up others."""
    etcd_members: int = 1
    in_namespaces: bool = False
    """Whether each broker gets a network namespace, if that can be made."""
    etcd: EtcdCluster = field(init=False)
    namespaces: list[Namespace] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.etcd = EtcdCluster(self.folder / "etcd", self.etcd_members)
        self._exits = AsyncExitStack()
        self._ways: list[_Ways] = []
        self._grpc: list[str] = []
        self._http: list[str] = []

    async def set_up(self) -> None:
        """Starts the servers, the proxies and the brokers."""
        assert self.postgres is not None
        self.can_kill_etcd = survives_kills(surviving_program())
        await asyncio.to_thread(in_parallel, [self.etcd, self.postgres])
        self.store = self.postgres.create_database("torture")
        with suppress(MissingExtra):
            self.wall = FakeTime(self.logs)
        if self.in_namespaces:
            self.namespaces = make_namespaces(self.brokers_wanted)
        ports = iter(free_ports(2 * self.brokers_wanted))
        for number in range(self.brokers_wanted):
            namespace = self.namespaces[number] if self.namespaces else None
            host = "127.0.0.1" if namespace is None else namespace.inside("clients")
            self._grpc.append(f"{host}:{next(ports)}")
            self._http.append(f"{host}:{next(ports)}")
            self._ways.append(await self._make_ways(namespace, self._grpc[-1]))
            broker = Child(self.recorder, self.folder, f"{self.name}-broker{number}")
            broker.broker = number
            broker.is_up = partial(listens, self._grpc[-1])
            if number == 0 and self.wall is not None:
                broker.environment = self.wall.environment
            self.brokers.append(broker)
            self.start_broker(number)

    async def _make_ways(self, namespace: Namespace | None, grpc: str) -> _Ways:
        targets = {
            "etcd": [member.address for member in self.etcd.members],
            "postgres": [self._postgres_address],
            "clients": [grpc] if namespace is None else [],
        }
        proxies = {
            part: [
                await self._proxy(each, "127.0.0.1" if namespace is None else namespace.here(part))
                for each in addresses
            ]
            for part, addresses in targets.items()
        }
        return _Ways(proxies, namespace)

    def start_broker(self, number: int) -> None:
        ways = self._ways[number]
        program: tuple[str, ...] = (sys.executable, "-m", "chronoline")
        if self.planted:
            program = (sys.executable, "-m", "tests.torture.cluster.planted", self.planted)
        (postgres,) = ways.proxies["postgres"]
        etcd = ",".join(each.address for each in ways.proxies["etcd"])
        own = [f"advertise={self.advertised[number]}", f"rack={self.rack_of(number)}"]
        if ways.namespace is not None:
            own.append("insecure=true")
        plan = BrokerPlan(
            name=f"broker{number}",
            grpc=self._grpc[number],
            http=self._http[number],
            data=self.logs / f"broker{number}",
            store=self.store.replace(self._postgres_address, postgres.address),
            coordination=f"etcd://{etcd}/torture",
            settings=[*SETTINGS, *own],
            program=program,
        )
        command = plan.command
        if ways.namespace is not None:
            command = ways.namespace.command(command)
        self.brokers[number].start(command)

    def rack_of(self, number: int) -> str:
        """The racks are of unequal size."""
        return self.racks[number % len(self.racks)]

    @property
    def advertised(self) -> list[str]:
        found = zip(self._ways, self._grpc, strict=True)
        return [
            next((each.address for each in ways.proxies["clients"]), grpc) for ways, grpc in found
        ]

    def addresses(self, number: int) -> tuple[str, str]:
        """All brokers for gRPC, beginning with one of them; its HTTP."""
        first = number % self.brokers_wanted
        known = self.advertised
        return ",".join([*known[first:], *known[:first]]), self._http[first]

    def own_address(self, number: int) -> str:
        return self._grpc[number]

    # Cutting: a cut is recorded as shorter than it is

    def cut(self, number: int, part: str, *, silently: bool) -> None:
        """Cuts a broker off from its etcd, its PostgreSQL or its clients."""
        self._ways[number].cut(part, silently=silently)
        self._note_cut(part, number, is_cut=True)

    def heal(self, number: int, part: str) -> None:
        self._note_cut(part, number, is_cut=False)
        self._ways[number].heal(part)

    async def stop_etcd(self) -> None:
        await asyncio.gather(*map(self.stop_member, self.etcd.members))
        self._note_cut("etcd", None, is_cut=True)

    async def start_etcd(self) -> None:
        self._note_cut("etcd", None, is_cut=False)
        await asyncio.to_thread(self.etcd.start)

    async def leader(self) -> EtcdServer:
        """The member that leads the others. All of them must run."""
        async with asyncio.timeout(_LEADER_S):
            return await leader_of(self.etcd.members)

    async def start_members(self) -> None:
        """Starts the members that were stopped."""
        await asyncio.to_thread(self.etcd.start)

    async def stop_member(self, member: EtcdServer) -> None:
        """Kills it, unless its data would suffer."""
        await asyncio.to_thread(member.kill if self.can_kill_etcd else member.stop)

    async def mend(self) -> None:
        await asyncio.to_thread(self.etcd.start)
        for ways in self._ways:
            for part in PARTS:
                ways.heal(part)
        await super().mend()

    async def close(self) -> None:
        await super().close()
        await self._exits.aclose()

    def abandon(self) -> None:
        super().abandon()
        for member in self.etcd.members:
            member.stop()
        for namespace in self.namespaces:
            namespace.remove()

    @property
    def _postgres_address(self) -> str:
        return self.store.rpartition("@")[2].partition("/")[0]

    async def _proxy(self, address: str, host: str) -> TcpProxy:
        return await self._exits.enter_async_context(tcp_proxy(address, host))

    def _note_cut(self, part: str, broker: int | None, *, is_cut: bool) -> None:
        """Without a broker it is of all of them."""
        self.recorder.record("cut", part=part, broker=broker, is_cut=is_cut)
