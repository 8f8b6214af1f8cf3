"""A cluster that grows and shrinks while timers are made, pop, and are deleted by the ids of before."""

from __future__ import annotations

import asyncio
from itertools import count

from tests.deadline import run_scene, until
from tests.timers.acceptance.processes import (
    FAR_MS,
    Clients,
    Made,
    ProcessCluster,
    clients_of,
    until_popped,
)
from tests.timers.scene import receiving

_EVERY_S = 0.02
_FAR = 160


class _Load:
    """Asks for timers all the while; and takes back, or replaces, those that are due much later."""

    def __init__(self, clients: Clients, at: list[str], far: list[Made]) -> None:
        self._clients = clients
        self._at = at
        self._left = far
        self._stopped = asyncio.Event()
        self.made: list[Made] = []
        self.gone: list[Made] = []

    async def run(self) -> None:
        for number in count():
            if self._stopped.is_set():
                return
            node = self._at[number % len(self._at)]
            interval_ms = 500 + 40 * (number % 50)
            self.made += await self._clients.make(
                [node], [f"load {number}"], interval_ms=interval_ms
            )
            if self._left and number % 2:
                gone = self._left.pop()
                self.gone.append(gone)
                # The names of the first day still work, in both of their forms.
                path = gone.location if number % 4 == 1 else gone.in_later_form
                if number % 8 < 4:
                    await self._clients.delete([node], [path])
                else:
                    new = f"instead of {gone.opaque}"
                    self.made.append(
                        await self._clients.put(node, path, new, interval_ms=interval_ms)
                    )
            await asyncio.sleep(_EVERY_S)  # a steady load

    def stop(self) -> None:
        self._stopped.set()


def test_scaling_under_load_loses_and_revives_nothing(
    cluster: ProcessCluster,
) -> None:
    first, second, third = cluster.names
    (fourth,) = cluster.spare
    everybody = [*cluster.names, fourth]
    left = [second, third]

    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            opaques = [f"far {number}" for number in range(_FAR)]
            far = await clients.make(cluster.names, opaques, interval_ms=FAR_MS)
            kept, to_change = far[: _FAR // 2], far[_FAR // 2 :]
            load = _Load(clients, left, to_change)
            loading = asyncio.create_task(load.run())
            cluster.processes.write(cluster.names, joining=[fourth])
            await cluster.start(fourth)
            await cluster.reload(cluster.names)
            assert await cluster.resync(everybody) > 0
            cluster.processes.write(everybody)
            await cluster.reload(everybody)
            await until(lambda: _all_wait_twice(clients, everybody, kept))
            assert await clients.held(fourth) & {each.id for each in kept}
            cluster.processes.write(left, leaving=[first, fourth])
            await cluster.reload(everybody)
            await cluster.resync(left)
            cluster.processes.write(left)
            await cluster.reload(left)
            cluster.processes.kill(first, fourth)
            await until(lambda: _all_wait_twice(clients, left, kept))
            load.stop()
            await loading
            await until_popped(receiver, load.made)
            assert load.gone
            await until(lambda: _none_waits(clients, left, load.gone))
            assert {pop.body for pop in receiver.popped} == {each.opaque for each in load.made}
            copies = await clients.delete(left, [each.location for each in far])
            assert set(copies) == {"2/2"}

    run_scene(scene)


async def _all_wait_twice(clients: Clients, nodes: list[str], made: list[Made]) -> bool:
    return await _where(clients, nodes, made) == [2] * len(made)


async def _none_waits(clients: Clients, nodes: list[str], made: list[Made]) -> bool:
    return not any(await _where(clients, nodes, made))


async def _where(clients: Clients, nodes: list[str], made: list[Made]) -> list[int]:
    """Returns the number of nodes on which each timer waits."""
    held = [await clients.held(node) for node in nodes]
    return [sum(each.id in ids for ids in held) for each in made]
