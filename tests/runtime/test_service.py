"""Services start and stop alike: in a block, twice, before the start; closable objects close in a block."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker import auth
from chronoline.broker.context import BrokerContext
from chronoline.broker.grpc.server import GrpcEdge
from chronoline.broker.http.poller import Pollers
from chronoline.broker.http.server import HttpEdge
from chronoline.broker.overseer import Overseer
from chronoline.broker.store_watch import StoreWatch
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.targets import Targets
from chronoline.callbacks.address_guard import AddressGuard
from chronoline.callbacks.caller import Caller
from chronoline.coordination.contract import Coordination
from chronoline.coordination.factory import open_coordination
from chronoline.coordination.membership import Registration
from chronoline.core.errors import InvalidInput
from chronoline.delivery.firing_lane import FiringLane
from chronoline.node.broker_service import BrokerService
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.pipe.counters import Counters
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.spark.queries import SupervisedQuery
from chronoline.pipe.upkeep import PipeUpkeep
from chronoline.runtime.child_process import LineProcess
from chronoline.runtime.control import Control
from chronoline.runtime.service import AsyncService, Closable, Service
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.deadline import run_scene, until
from tests.pipe.test_upkeep import Shown
from tests.spark.test_queries import Query

AT: dict[str, Any] = {"host": "127.0.0.1", "port": 0}


class Lamp(Service):
    def __init__(self) -> None:
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False


class AsyncLamp(AsyncService):
    def __init__(self, *, fails: bool = False) -> None:
        self.is_on = False
        self.fails = fails

    async def _start(self) -> None:
        self.is_on = True
        if self.fails:
            raise KeyError

    async def _stop(self) -> None:
        self.is_on = False


def test_block_starts_and_stops() -> None:
    with Lamp() as lamp:
        assert lamp.is_on
    assert not lamp.is_on


def test_failing_block_stops_too() -> None:
    lamp = Lamp()
    with pytest.raises(KeyError), lamp:
        raise KeyError
    assert not lamp.is_on


def test_async_block_starts_and_stops() -> None:
    async def play() -> None:
        lamp = AsyncLamp()
        async with lamp:
            assert lamp.is_on
        assert not lamp.is_on

    asyncio.run(play())


def test_failed_start_stops_the_service() -> None:
    async def play() -> None:
        lamp = AsyncLamp(fails=True)
        with pytest.raises(KeyError):
            await lamp.start()
        assert not lamp.is_on

    asyncio.run(play())


class Door(Closable):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_block_closes_at_its_end() -> None:
    with Door() as door:
        assert door.closed == 0
    assert door.closed == 1


def test_failing_block_closes_too() -> None:
    door = Door()
    with pytest.raises(KeyError), door:
        raise KeyError
    assert door.closed == 1


def test_close_must_be_implemented() -> None:
    with pytest.raises(TypeError, match="close"):
        Closable()  # type: ignore[abstract]  # on purpose


# All services


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


# Services with threads or processes


def lane(store: Store, folder: Path) -> FiringLane:
    topic = store.create_topic("t", now_ms=0)
    return FiringLane(store, topic, lambda _: None, consumer="c")


def upkeep(store: Store, folder: Path) -> PipeUpkeep:
    places = {each: {"topic": each, "log": str(folder)} for each in ("input", "output")}
    settings = PipeSettings.load(None, {}, {"name": "p", **places})
    topic = store.create_topic("p", now_ms=0)
    counters = Counters(source="s")
    return PipeUpkeep(settings, store, topic, Shown(), counters, node="a")


def query(store: Store, folder: Path) -> SupervisedQuery:
    start: Any = Query
    return SupervisedQuery("the lane", start)


def process(store: Store, folder: Path) -> LineProcess:
    return LineProcess([sys.executable, "-c", "import signal; signal.pause()"])


def local_broker(store: Store, folder: Path) -> LocalBroker:
    return LocalBroker(store)


def control(store: Store, folder: Path) -> Control:
    return Control()


@pytest.mark.parametrize("make", [lane, upkeep, query, process, local_broker, control])
def test_service_ends_once_whatever_is_called_twice(
    store: Store, tmp_path: Path, make: Callable[[Store, Path], Service]
) -> None:
    with LocalBroker(store):  # whose thread stays
        before = set(threading.enumerate())
        service = make(store, tmp_path)
        service.stop()
        service.start()
        with suppress(InvalidInput):
            service.start()
        service.stop()
        service.stop()
        assert {
            each for each in threading.enumerate() if each.name.startswith("chronoline")
        } <= before
    assert not getattr(service, "active", False)
    assert not getattr(service, "is_running", False)


# Services of an event loop


def watch(parts: BrokerContext, store: Store, folder: Path) -> StoreWatch:
    return StoreWatch(store, parts.access, lambda _: None, list)


def targets(parts: BrokerContext, store: Store, folder: Path) -> Targets:
    return Targets(parts, TargetPolicy(caller=Caller(AddressGuard(()))))


def pollers(parts: BrokerContext, store: Store, folder: Path) -> Pollers:
    return Pollers(parts)


def grpc(parts: BrokerContext, store: Store, folder: Path) -> GrpcEdge:
    return GrpcEdge(parts, auth.Door(), **AT)


def http(parts: BrokerContext, store: Store, folder: Path) -> HttpEdge:
    return HttpEdge(parts, auth.Door(), **AT)


def broker(parts: BrokerContext, store: Store, folder: Path) -> BrokerService:
    at = ("127.0.0.1", 0)
    return BrokerService(store, grpc_address=at, http_address=at)


def timers(parts: BrokerContext, store: Store, folder: Path) -> TimerService:
    return TimerService(ServiceOptions(**AT, data=folder))


def caller(parts: BrokerContext, store: Store, folder: Path) -> Caller:
    return Caller(AddressGuard(()))


def embedded(parts: BrokerContext, store: Store, folder: Path) -> Coordination:
    return open_coordination("embedded:")


def etcd(parts: BrokerContext, store: Store, folder: Path) -> Coordination:
    return open_coordination("etcd://127.0.0.1:1")


def registration(parts: BrokerContext, store: Store, folder: Path) -> Registration:
    return Registration(open_coordination("embedded:"))


def overseer(parts: BrokerContext, store: Store, folder: Path) -> Overseer:
    coordination = parts.member.coordination
    return Overseer(coordination, lambda: parts.member.record, parts.metrics.failed)


ASYNC_SERVICES = [watch, targets, pollers, grpc, http, broker, overseer, timers, caller]
ASYNC_SERVICES_OF_CLUSTERS = [embedded, etcd, registration]


@pytest.mark.parametrize("make", [*ASYNC_SERVICES, *ASYNC_SERVICES_OF_CLUSTERS])
def test_async_service_ends_once_whatever_is_called_twice(
    store: Store, tmp_path: Path, make: Callable[[BrokerContext, Store, Path], AsyncService]
) -> None:
    async def scene() -> None:
        async with BrokerService(store, grpc_address=("127.0.0.1", 0)) as node:
            assert node.parts is not None
            before = _workers()
            service = make(node.parts, store, tmp_path)
            await service.stop()
            await service.start()
            await service.start()
            await service.stop()
            await service.stop()
            await until(lambda: _workers() <= before)  # cancelled tasks end in the next turn

    run_scene(scene)


def _workers() -> set[object]:
    """The tasks of this loop, and our threads."""
    threads = {each for each in threading.enumerate() if each.name.startswith("chronoline")}
    return {*asyncio.all_tasks(), *threads}
