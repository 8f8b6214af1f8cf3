"""The gate: which closure stops which work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chronoline.broker.gate import OF_A_TOPIC, STOPS, ClosureType, Gate, TopicGate, Work
from chronoline.broker.metrics import BrokerMetrics
from chronoline.broker.store_access import StoreAccess
from chronoline.client import TopicSettings
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Reach
from chronoline.stores.memory import MemoryStore
from tests.broker.nodes import running
from tests.deadline import run_scene


class _TimedStore(MemoryStore):
    """Has a clock of its own."""

    behind_ms = 0
    reach = Reach.CHANGES

    def probe(self, *, patience_s: float) -> Reach:
        return self.reach

    def clock_ms(self) -> int | None:
        return SystemClock().now_ms() - self.behind_ms


class Scene:
    def __init__(self, store: _TimedStore, access: StoreAccess) -> None:
        self._store = store
        self._access = access
        self.gate = Gate(access, lambda: self._problem)
        self._problem = ""
        self.topic_gate = self.gate.for_topic()
        self.other_gate = self.gate.for_topic()

    async def close(self, by: ClosureType) -> None:
        match by:
            case ClosureType.STOPPING:
                self.gate.stopping = True
            case ClosureType.STORAGE:
                self._store.reach = Reach.NOTHING
                await self._access.probe(1)
            case ClosureType.COORDINATION:
                self._problem = "no session"
            case ClosureType.CLOCK:
                self._store.behind_ms = 60_000
                await self._access.compare_clocks()
            case ClosureType.PIPE:
                self.topic_gate.close(by, "a pipe fires it")
            case ClosureType.PAUSED:
                self.topic_gate.close(by, "somebody paused it")


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    with _TimedStore() as store:
        access = StoreAccess(store, SystemClock(), BrokerMetrics())
        try:
            yield Scene(store, access)
        finally:
            await access.stop()


def stopped(gate: Gate | TopicGate) -> dict[Work, ClosureType]:
    """The kinds of work that a gate stops, and by which closure."""
    closures = {work: gate.closure(work) for work in Work}
    return {work: each.type for work, each in closures.items() if each is not None}


def test_open_gate_stops_nothing() -> None:
    async def play() -> None:
        async with scene() as open_scene:
            assert open_scene.gate.closures == ()
            assert stopped(open_scene.topic_gate) == {}

    asyncio.run(play())


@pytest.mark.parametrize("by", list(ClosureType))
def test_closure_stops_its_row_of_the_table(by: ClosureType) -> None:
    async def play() -> None:
        async with scene() as closed:
            await closed.close(by)
            row = {work: by for work, types in STOPS.items() if by in types}
            of_the_node = {} if by in OF_A_TOPIC else row
            assert stopped(closed.topic_gate) == row
            assert stopped(closed.other_gate) == stopped(closed.gate) == of_the_node
            named = [each.type for each in closed.gate.closures]
            assert named == ([] if by in OF_A_TOPIC else [by])

    asyncio.run(play())


def test_every_kind_of_work_has_its_row() -> None:
    assert STOPS.keys() == set(Work)


def test_first_closure_is_the_reason() -> None:
    async def play() -> None:
        async with scene() as closed:
            for by in reversed(ClosureType):
                await closed.close(by)
            assert stopped(closed.topic_gate)[Work.RESERVE] is ClosureType.STOPPING
            assert [each.type for each in closed.gate.closures] == [
                ClosureType.STOPPING,
                ClosureType.STORAGE,
                ClosureType.COORDINATION,
                ClosureType.CLOCK,
            ]
            assert [each.reason for each in closed.gate.closures][:2] == [
                "the broker is stopping",
                "the store did not answer within 1 s",
            ]

    asyncio.run(play())


def test_stopping_broker_leaves_messages_to_others(tmp_path: Path) -> None:
    """A second broker on the same store serves them."""

    async def play() -> None:
        async with (
            running(tmp_path) as stopping,
            running(tmp_path) as other,
            stopping.client() as client,
            other.client() as elsewhere,
        ):
            await client.create_topic("jobs", TopicSettings(window=0.1))
            await client.subscribe(["jobs"])
            assert stopping.node.parts is not None
            stopping.node.parts.gate.stopping = True
            await elsewhere.send("jobs", b"x", id="m")
            leases = elsewhere.consume("jobs")
            lease = await anext(leases)
            assert (lease.id, lease.redelivered) == ("m", False)
            await lease.ack()
            await leases.aclose()

    run_scene(play)
