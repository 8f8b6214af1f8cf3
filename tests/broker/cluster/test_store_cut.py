"""A broker that is cut from its store, in silence: the others get its consumers, whatever it waits for."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from chronoline.client.brokers import Brokers
from chronoline.stores.memory import MemoryStore
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.cluster.scene import cluster
from tests.coordination.engines import EmbeddedEngine
from tests.deadline import run_scene, until

_FOREVER_S = 3_600.0
"""The time-out of the store: a broker that waited for it would never do anything else."""


class SilentStore:
    """A store whose calls are not answered while it is silent."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._answers = threading.Event()
        self._answers.set()
        self.asked = list[str]()
        """The calls that are not answered."""

    def silence(self) -> None:
        self._answers.clear()

    def heal(self) -> None:
        self._answers.set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name in ("watch", "capabilities", "close") or not callable(found):
            return found

        def call(*values: Any, **named: Any) -> Any:
            if not self._answers.is_set():
                self.asked.append(name)
                self._answers.wait()
            return found(*values, **named)

        return call


@pytest.mark.parametrize("under_way", ["probe", "purge", "reserve"])
def test_other_broker_gets_the_consumers_of_one_without_its_store(under_way: str) -> None:
    """Also while that one waits for the answer to a purge, or to a reservation."""

    async def play() -> None:
        with MemoryStore() as store, ExitStack() as exits:
            silent: Any = SilentStore(store)
            exits.callback(silent.heal)
            async with cluster(EmbeddedEngine()) as found:
                cut = await found.add_broker(
                    "a", store=silent, patience_s=_FOREVER_S, upkeep_every_s=0.05
                )
                await found.add_broker("b", store=store)
                await until(lambda: found.sees("a", "b") and found.sees("b", "a"))
                topic = await found.create_topic("b")
                near, far = await found.client("a"), await found.client("b")
                leases = near.consume("jobs", consumer="x")
                first = asyncio.ensure_future(anext(leases))
                await until(
                    lambda: [subscription.name for subscription in cut.subscriptions] == ["x"]
                )
                await far.send("jobs", id="first")
                await (await first).ack()

                silent.silence()
                if under_way == "reserve":
                    assert cut.node.parts is not None
                    cut.node.parts.loaders.of(topic.uid).noticed(None)  # type: ignore[union-attr]  # it has a consumer
                await until(lambda: under_way in silent.asked)
                await far.send("jobs", id="second")
                assert (await anext(leases)).id == "second"
                assert cut.subscriptions == []
                silent.heal()
                assert cut.node.parts is not None
                await until(lambda: not cut.node.parts.degradation.current)
                await leases.aclose()

    run_scene(play)


def test_broker_that_is_being_probed_does_not_call_itself_healthy() -> None:
    """All brokers lose a store at the same moment, and notice it one after the other: no client moves."""

    async def play() -> None:
        with MemoryStore() as store, ExitStack() as exits:
            silent: Any = SilentStore(store)
            exits.callback(silent.heal)
            async with cluster(EmbeddedEngine()) as found:
                other = await found.add_broker("b", store=silent, patience_s=_FOREVER_S)
                await found.add_broker("a", store=store)
                await until(lambda: found.sees("a", "b") and found.sees("b", "a"))
                brokers = Brokers(found.brokers["a"].address, None, False)

                async def healthy_one() -> str:
                    kind = pb.PreferRequest.KIND_CONSUMER
                    here = found.brokers["a"].address
                    return await brokers.healthy_one(other.address, here, kind, 1)

                assert await healthy_one() == other.address
                silent.silence()
                await until(lambda: "probe" in silent.asked)
                assert await healthy_one() == ""
                silent.heal()
                await until(lambda: not other.node.parts.degradation.current)  # type: ignore[union-attr]  # it runs
                await brokers.close()

    run_scene(play)
