"""Three brokers of one cluster on one PostgreSQL and one etcd, each behind proxies that can be cut."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from chronoline.core.errors import MissingExtra
from chronoline.runtime.child_process import free_ports
from chronoline.testing.cluster import BrokerPlan, in_parallel
from chronoline.testing.etcd import EtcdServer
from chronoline_bench.servers.etcd import surviving_program
from chronoline_bench.servers.faketime import FakeTime
from tests.broker.tcp_proxy import TcpProxy, tcp_proxy
from tests.torture.brokers.stage import SETTINGS, Child, Stage, listens

TTL_MS = 2_000
"""Of the sessions of brokers; the default."""
PARTS = ("etcd", "postgres", "clients")
"""From each of these a broker can be cut off."""


@dataclass(frozen=True, slots=True)
class _Ways:
    """The proxies of one broker: to its servers, and from its clients."""

    etcd: TcpProxy
    postgres: TcpProxy
    clients: TcpProxy

    def to(self, part: str) -> TcpProxy:
        return {"etcd": self.etcd, "postgres": self.postgres, "clients": self.clients}[part]


@dataclass
class ClusterStage(Stage):
    """Clients reach the gRPC of brokers through proxies, and know all of them; HTTP has no proxy."""

    planted: str = ""
    """A defect that all brokers have; see `planted`."""
    etcd: EtcdServer = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.etcd = EtcdServer(self.folder / "etcd", program=surviving_program)
        self._exits = AsyncExitStack()
        self._ways: list[_Ways] = []
        self._grpc: list[str] = []
        self._http: list[str] = []

    async def set_up(self) -> None:
        """Starts the servers, the proxies and the brokers."""
        assert self.postgres is not None
        await asyncio.to_thread(in_parallel, [self.etcd, self.postgres])
        self.store = self.postgres.create_database("torture")
        with suppress(MissingExtra):
            self.wall = FakeTime(self.logs)
        ports = iter(free_ports(2 * self.brokers_wanted))
        for number in range(self.brokers_wanted):
            grpc, http = next(ports), next(ports)
            self._grpc.append(f"127.0.0.1:{grpc}")
            self._http.append(f"127.0.0.1:{http}")
            self._ways.append(
                _Ways(
                    await self._proxy(self.etcd.address),
                    await self._proxy(self._postgres_address),
                    await self._proxy(self._grpc[-1]),
                )
            )
            broker = Child(self.recorder, self.folder, f"{self.name}-broker{number}")
            broker.broker = number
            broker.is_up = partial(listens, grpc)
            if number == 0 and self.wall is not None:
                broker.environment = self.wall.environment
            self.brokers.append(broker)
            self.start_broker(number)

    def start_broker(self, number: int) -> None:
        ways = self._ways[number]
        program: tuple[str, ...] = (sys.executable, "-m", "chronoline")
        if self.planted:
            program = (sys.executable, "-m", "tests.torture.cluster.planted", self.planted)
        plan = BrokerPlan(
            name=f"broker{number}",
            grpc=self._grpc[number],
            http=self._http[number],
            data=self.logs / f"broker{number}",
            store=self.store.replace(self._postgres_address, ways.postgres.address),
            coordination=f"etcd://{ways.etcd.address}/torture",
            settings=[*SETTINGS, f"advertise={ways.clients.address}"],
            program=program,
        )
        self.brokers[number].start(plan.command)

    def addresses(self, number: int) -> tuple[str, str]:
        """All brokers for gRPC, beginning with one of them; its HTTP."""
        first = number % self.brokers_wanted
        ordered = [*self._ways[first:], *self._ways[:first]]
        return ",".join(ways.clients.address for ways in ordered), self._http[first]

    def own_address(self, number: int) -> str:
        return self._grpc[number]

    def cut(self, number: int, part: str) -> None:
        """Cuts a broker off from its etcd, its PostgreSQL or its clients."""
        self._note_cut(part, number, is_cut=True)
        self._ways[number].to(part).cut()

    def heal(self, number: int, part: str) -> None:
        self._ways[number].to(part).heal()
        self._note_cut(part, number, is_cut=False)

    async def stop_etcd(self) -> None:
        await asyncio.to_thread(self.etcd.stop)
        self._note_cut("etcd", None, is_cut=True)

    async def start_etcd(self) -> None:
        self._note_cut("etcd", None, is_cut=False)
        await asyncio.to_thread(self.etcd.start)

    async def mend(self) -> None:
        await asyncio.to_thread(self.etcd.start)
        for ways in self._ways:
            for part in PARTS:
                ways.to(part).heal()
        await super().mend()

    async def close(self) -> None:
        await super().close()
        await self._exits.aclose()

    def abandon(self) -> None:
        super().abandon()
        self.etcd.stop()

    @property
    def _postgres_address(self) -> str:
        return self.store.rpartition("@")[2].partition("/")[0]

    async def _proxy(self, address: str) -> TcpProxy:
        return await self._exits.enter_async_context(tcp_proxy(address))

    def _note_cut(self, part: str, broker: int | None, *, is_cut: bool) -> None:
        """Without a broker it is of all of them."""
        self.recorder.record("cut", part=part, broker=broker, is_cut=is_cut)
