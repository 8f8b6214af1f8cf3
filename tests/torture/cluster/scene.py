"""Three brokers of a cluster, with producers and consumers, under faults in turn.

The faults of a cluster come first, then those of the scene `brokers`, in random order: brokers are killed,
frozen past their sessions, and cut off from etcd, from PostgreSQL or from their clients; etcd is stopped, or
its leader killed. At the end everything is repaired, consumers drain the topics, and the rows that are left
are recorded.

A cut ends connections, or loses all that is sent without a word. In a long run etcd has three members, and
each broker a network namespace, if that can be made; else a proxy keeps silent. A broker is cut off from
PostgreSQL while nothing else is broken, and for longer: then the others have to serve all messages.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import grpc

from chronoline import AsyncClient
from chronoline.core.errors import ChronolineError
from chronoline.testing.postgres import PostgresServer
from tests.torture.brokers.scene import Begins, Director, Fault, NotNow, Report
from tests.torture.cluster.judge import STEADY, TAKE_OVER_MS
from tests.torture.cluster.namespaces import PARTS
from tests.torture.cluster.planted import DEFECTS, Defect
from tests.torture.cluster.stage import RACKS, TTL_MS, ClusterStage
from tests.torture.history import Recorder

_PAST_SESSION_S = TTL_MS / 1000 * 2.25
"""Long enough that the session of a broker has ended."""
_PAST_TAKE_OVER_S = TAKE_OVER_MS / 1000 + 6.0
"""Long enough that the others have taken over, and serve what falls due."""
_WITHOUT_RACKS = 2
"""Every second seed has one rack, in which nobody backs up others."""
_QUIET_S = 10.0
"""The longest wait until all processes work."""
_BROKERS = 3
_MEMBERS = 3
_LONG_S = 30.0
"""A run of this length has an etcd of several members, and namespaces."""
_SILENT = 0.5
_WANTED = frozenset(
    {
        "freeze a broker past its session",
        "stop etcd",
        "kill -9 a broker",
        "drop a topic and create it again",
    }
)
"""The faults of the shortest run, besides a cut of each part."""
_WITHOUT_LEADER_S = 3.0
"""Longer than an election."""


def run(folder: Path, *, seconds: float, seed: int, report: Report, planted: str = "") -> None:
    """Records a history of about `seconds`, and of the rows that are left.

    All brokers have the `planted` defect, and the run has the faults in which it shows.
    """
    defect = DEFECTS[planted] if planted else None
    has_racks = seed % _WITHOUT_RACKS != 0 if defect is None else defect.has_racks
    is_long = seconds >= _LONG_S and defect is None
    recorder = Recorder(folder, "director")
    stage = ClusterStage(
        "cluster",
        folder,
        recorder,
        seed,
        brokers_wanted=_BROKERS if defect is None else defect.brokers,
        postgres=PostgresServer(folder / "postgres"),
        planted=planted,
        racks=RACKS if has_racks else RACKS[:1],
        etcd_members=_MEMBERS if is_long else 1,
        in_namespaces=is_long,
    )
    try:
        asyncio.run(ClusterDirector(stage, report, defect).play(seconds))
    finally:
        stage.abandon()
        recorder.close()


def _cut_fault(part: str, *, silently: bool) -> str:
    return f"cut a broker off from {part}{', silently' if silently else ''}"


class ClusterDirector(Director):
    """Breaks the brokers of a cluster, and what lies between them and their servers."""

    together_s = 4.0  # a name that is served twice shows in the deliveries of both

    def __init__(self, stage: ClusterStage, report: Report, defect: Defect | None = None) -> None:
        super().__init__(stage, report)
        self._is_quiet = False
        """No other fault begins."""
        self._cluster = stage
        self._defect = defect
        if defect is None:
            silent = {part: self._chance.random() < _SILENT for part in PARTS}
            cuts = (_cut_fault(part, silently=each) for part, each in silent.items())
            self.wanted_faults = _WANTED | {*cuts}
        else:
            self.drain_s = defect.drain_s

    def _add_consumers(self) -> None:
        if self._cluster.brokers_wanted == 1:
            self._cluster.add_consumer(hand="ada", fleeting="bob", worker="cleo", http="dan")
            return
        self._cluster.add_consumer(hand="ada", fleeting="bob")
        self._cluster.add_consumer(worker="cleo", http="dan")
        self._cluster.add_consumer(hand="eve", http="fay")

    def _own_faults(self) -> dict[str, Fault]:
        cuts = {
            _cut_fault(part, silently=silently): partial(self._cut, part=part, silently=silently)
            for part in PARTS
            for silently in (True, False)
            if silently or part != "clients" or not self._cluster.namespaces
        }
        own: dict[str, Fault] = {
            **cuts,
            "freeze a broker past its session": self._freeze_past_session,
            "stop etcd": self._stop_etcd,
        }
        if self._cluster.etcd_members > 1:
            own["kill etcd's leader"] = self._kill_leader
        return own

    def _faults(self) -> dict[str, Fault]:
        faults = {**super()._faults(), **self._own_faults()}
        return (
            faults if self._defect is None else {each: faults[each] for each in self._defect.faults}
        )

    def _deck(self, faults: dict[str, Fault]) -> list[tuple[str, Fault]]:
        """All faults in a random order, the wanted ones before the others."""
        return sorted(super()._deck(faults), key=lambda each: each[0] in self.wanted_faults)

    async def _bring_about(self, name: str, fault: Fault) -> None:
        if self._is_quiet:
            self._postponed.append((name, fault))
        else:
            await super()._bring_about(name, fault)

    @asynccontextmanager
    async def _nothing_else(self) -> AsyncIterator[None]:
        """Waits until no other fault is under way and all processes work; then none begins."""
        with self._alone("nothing else"):
            self._is_quiet = True
            try:
                others = self._under_way - {asyncio.current_task()}
                if others:
                    await asyncio.wait(others)
                children = (*self._stage.brokers, *self._stage.producers, *self._stage.consumers)
                await self._stage.until(lambda: all(child.ready for child in children), _QUIET_S)
                yield
            finally:
                self._is_quiet = False

    async def _cut_from_store(self, begins: Begins, *, silently: bool) -> None:
        """Cuts off the broker with the most consumers of the topic that the judge looks at."""
        async with self._nothing_else():
            number = await self._busiest()
            begins()
            self._cluster.cut(number, "postgres", silently=silently)
            await asyncio.sleep(_PAST_TAKE_OVER_S)
            self._cluster.heal(number, "postgres")

    async def _busiest(self) -> int:
        try:
            async with AsyncClient(self._cluster.own_address(0), insecure=True) as client:
                subscribers = (await client.cluster()).subscribers
        except ChronolineError:
            raise NotNow from None
        counted = Counter(
            subscriber.broker for subscriber in subscribers if subscriber.topic.endswith(STEADY)
        )
        names = [f"broker{number}" for number in range(len(self._cluster.brokers))]
        return max(range(len(names)), key=lambda number: counted[names[number]])

    async def _cut(self, begins: Begins, *, part: str, silently: bool) -> None:
        if part == "postgres":
            await self._cut_from_store(begins, silently=silently)
            return
        number = self._pick(self._cluster.brokers)
        with self._alone(f"{part} of {number}"):
            begins()
            self._cluster.cut(number, part, silently=silently)
            await asyncio.sleep(_PAST_SESSION_S)
            self._cluster.heal(number, part)

    async def _freeze_past_session(self, begins: Begins) -> None:
        broker = self._cluster.brokers[self._pick(self._cluster.brokers)]
        with self._alone(broker.base):
            begins()
            await broker.freeze()
            await asyncio.sleep(_PAST_SESSION_S)
            broker.thaw()

    async def _kill_leader(self, begins: Begins) -> None:
        with self._alone("etcd"):
            try:
                leader = await self._cluster.leader()
            except (TimeoutError, AssertionError, grpc.RpcError):  # it is being elected
                raise NotNow from None
            begins()
            await self._cluster.stop_member(leader)
            await asyncio.sleep(_WITHOUT_LEADER_S)
            await self._cluster.start_members()

    async def _stop_etcd(self, begins: Begins) -> None:
        with self._alone("etcd"):
            begins()
            await self._cluster.stop_etcd()
            await asyncio.sleep(_PAST_SESSION_S)
            await self._cluster.start_etcd()
