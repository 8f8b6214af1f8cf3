"""A network split into two sides, each of which takes the other for dead, until it heals."""

from __future__ import annotations

import time

from tests.deadline import run_scene, until
from tests.timers.acceptance.processes import (
    FAR_MS,
    Clients,
    Made,
    ProcessCluster,
    clients_of,
    ids_kept_by,
    until_popped,
)
from tests.timers.scene import Popped, receiving, timer


def test_split_sides_continue_and_agree_afterwards(cluster: ProcessCluster) -> None:
    alone, *side = cluster.names
    across = [(alone, side[0]), (side[0], alone)]
    skew_s = 0.3

    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            before: list[Made] = []
            for replicas in across:
                ids = ids_kept_by(replicas, cluster.names)
                opaques = [f"before {number} {replicas[0]}" for number in range(10)]
                before += await clients.make(
                    cluster.names, opaques, interval_ms=1_200, pops=4, ids=ids
                )
            far = await clients.make(cluster.names, _named("far", 20), interval_ms=FAR_MS)
            cluster.links.cut([alone], side)
            split_s = time.monotonic()
            # Keepers take the timer; the other nodes refuse it.
            from_side = await clients.make(side, _named("side", 20), interval_ms=1_200)
            ids = ids_kept_by((side[0], alone), cluster.names)
            from_alone = await clients.make(
                [alone], _named("alone", 20), interval_ms=1_200, ids=ids
            )
            assert {each.copies for each in from_alone} == {"1/2"}
            elsewhere = next(ids_kept_by(side, cluster.names))
            refused = await clients.ask(
                alone, "PUT", f"/timers/{elsewhere:016x}-2", timer(receiver.uri)
            )
            assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
            deleted = await clients.delete(side, [each.location for each in far])
            assert "1/2" in deleted
            await until_popped(receiver, [*from_side, *from_alone])
            # Each side pops what it keeps, and the one that is not the first waits for its turn.
            await until(lambda: _have_popped(clients, [alone, side[0]], before))
            for each in before:
                if each.due_s > split_s:
                    at_s = [pop.at_s for pop in receiver.popped if _is_first(pop, each)]
                    assert len(at_s) >= 2
                    assert max(at_s) >= each.due_s + skew_s
            cluster.links.heal()
            await until_popped(receiver, before)
            for replicas in across:
                await until(lambda r=replicas: _agree(clients, r, [*before, *from_alone]))
            for node in cluster.names:
                await until(lambda n=node: _holds_none(clients, n, far))
                assert elsewhere not in await clients.held(node)

    run_scene(scene)


def _named(prefix: str, number: int) -> list[str]:
    return [f"{prefix} {each}" for each in range(number)]


def _is_first(pop: Popped, made: Made) -> bool:
    return (pop.body, pop.sequence) == (made.opaque, 1)


async def _have_popped(clients: Clients, nodes: list[str], made: list[Made]) -> bool:
    shown = [await clients.shown(node, each) for node in nodes for each in made]
    return all(each is not None and each["popped"] >= 1 for each in shown)


async def _agree(clients: Clients, nodes: tuple[str, ...], made: list[Made]) -> bool:
    """Returns whether all have ended, and the nodes agree on each."""
    for each in made:
        first, second = [await clients.shown(node, each) for node in nodes]
        if first is None or second is None or first["state"] != "over":
            return False
        if any(first[name] != second[name] for name in ("state", "version", "popped")):
            return False
    return True


async def _holds_none(clients: Clients, node: str, made: list[Made]) -> bool:
    return {each.id for each in made}.isdisjoint(await clients.held(node))
