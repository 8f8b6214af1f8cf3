"""A frozen node, as on a machine that swaps or migrates, which then continues."""

from __future__ import annotations

import asyncio
import signal
from itertools import islice

from tests.deadline import run_scene
from tests.timers.acceptance.processes import (
    Clients,
    ProcessCluster,
    clients_of,
    doubles,
    ids_kept_by,
    until_popped,
)
from tests.timers.scene import Popped, Receiver, receiving, timer

_ROUNDS = 3


def test_frozen_node_does_not_repeat_pops(
    cluster: ProcessCluster,
) -> None:
    """The node waits a second for the others; on a slower machine it may pop again."""

    async def scene() -> None:
        for number in range(_ROUNDS):
            async with receiving() as receiver, clients_of(receiver) as clients:
                await _stand_still(cluster, receiver, clients, f"{number}-")
                if not doubles(receiver.popped):
                    return
        raise AssertionError("it popped again each time")

    run_scene(scene)


async def _stand_still(
    cluster: ProcessCluster, receiver: Receiver, clients: Clients, prefix: str
) -> None:
    frozen, other, _ = cluster.names
    opaques = [f"{prefix}{number}" for number in range(40)]
    ids = ids_kept_by((frozen, other), cluster.names)
    made = await clients.make(cluster.names, opaques[:20], interval_ms=1_000, ids=ids)
    repeated = await clients.make(cluster.names, opaques[20:], interval_ms=1_000, pops=4)
    cluster.processes.signal(signal.SIGSTOP, frozen)
    await until_popped(receiver, made)
    await receiver.until(lambda popped: any(pop.sequence == 2 for pop in popped))
    cluster.processes.signal(signal.SIGCONT, frozen)
    await until_popped(receiver, repeated)


def test_node_frozen_in_a_callback_is_replaced(
    cluster: ProcessCluster,
) -> None:
    frozen, other, third = cluster.names

    async def scene() -> None:
        came = asyncio.Event()
        go_on = asyncio.Event()

        async def hold(pop: Popped) -> int:
            if not came.is_set():
                came.set()
                await go_on.wait()
            return 200

        async with receiving() as receiver, clients_of(receiver) as clients:
            receiver.answer = hold
            ids = ids_kept_by((frozen, other), cluster.names)
            made = await clients.make([third], ["x"], interval_ms=1_000, pops=3, ids=ids)
            await came.wait()
            cluster.processes.signal(signal.SIGSTOP, frozen)
            await receiver.count(2)
            assert [pop.sequence for pop in receiver.popped[:2]] == [1, 1]
            cluster.processes.signal(signal.SIGCONT, frozen)
            go_on.set()
            await until_popped(receiver, made)

    run_scene(scene)


def test_change_sent_to_a_frozen_node_may_pop(
    cluster: ProcessCluster,
) -> None:
    """Refused means that nothing changed."""
    asked, *frozen = cluster.names

    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            (timer_id,) = islice(ids_kept_by(frozen, cluster.names), 1)
            path = f"/timers/{timer_id:016x}-2"
            for node in frozen:
                cluster.processes.signal(signal.SIGSTOP, node)
            answer = await clients.ask(asked, "PUT", path, timer(receiver.uri))
            for node in frozen:
                cluster.processes.signal(signal.SIGCONT, node)
            assert answer.status == 503
            await receiver.count(1)
            assert "may pop" in answer.headers["Reason"]

    run_scene(scene)
