"""Nodes that are killed, stopped and restarted: nothing is lost, and deletions are final."""

from __future__ import annotations

import time

from chronoline.timers.membership import replicas_of
from tests.deadline import run_scene
from tests.timers.acceptance.processes import (
    FAR_MS,
    ProcessCluster,
    clients_of,
    ids_kept_by,
    until_popped,
)
from tests.timers.scene import receiving

_MANY = [f"t{number}" for number in range(60)]


def test_timers_of_a_killed_node_pop_elsewhere(cluster: ProcessCluster) -> None:
    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            made = await clients.make(cluster.names, _MANY, interval_ms=2_000)
            firsts = {replicas_of(each.id, 2, cluster.names)[0] for each in made}
            assert firsts == set(cluster.names)
            cluster.processes.kill(cluster.names[0])
            await until_popped(receiver, made)

    run_scene(scene)


def test_deletion_during_an_outage_is_final(
    cluster: ProcessCluster,
) -> None:
    interval_ms, longest_skew_ms = 2_000, 500
    down, *others = cluster.names

    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            made = await clients.make(cluster.names, _MANY, interval_ms=interval_ms)
            cluster.processes.kill(down)
            copies = await clients.delete(others, [each.location for each in made])
            in_time = {each.opaque for each in made if time.monotonic() < each.due_s}
            assert set(copies) == {"1/2", "2/2"}
            await cluster.start(down)
            # A node that pops these would have popped the deleted ones before.
            after_ms = interval_ms + longest_skew_ms
            ids = ids_kept_by((down, others[0]), cluster.names)
            last = await clients.make(others, ["last", "of all"], interval_ms=after_ms, ids=ids)
            await until_popped(receiver, last)
            assert in_time.isdisjoint({pop.body for pop in receiver.popped})

    run_scene(scene)


def test_killed_cluster_with_a_torn_journal_loses_nothing(
    cluster: ProcessCluster,
) -> None:
    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            made = await clients.make(cluster.names, _MANY, interval_ms=1_500)
            cluster.processes.kill(*cluster.names)
            log = cluster.processes.data(cluster.names[0]) / "timers.db-wal"
            size = log.stat().st_size
            with log.open("r+b") as file:
                file.truncate(size // 2 + 7)
            await cluster.start(*cluster.names)
            await until_popped(receiver, made)

    run_scene(scene)


def test_timers_of_a_stopped_node_pop_elsewhere(
    cluster: ProcessCluster,
) -> None:
    """The journal is then overwritten: the node sets it aside and recovers from the others."""
    gone = cluster.names[0]
    folder = cluster.processes.data(gone)

    async def scene() -> None:
        async with receiving() as receiver, clients_of(receiver) as clients:
            made = await clients.make(cluster.names, _MANY, interval_ms=1_000)
            far = await clients.make(
                cluster.names, [f"far{number}" for number in range(20)], interval_ms=FAR_MS
            )
            assert await cluster.stop(gone) == 0
            await until_popped(receiver, made)
            for part in folder.glob("timers.db*"):
                part.write_bytes(b"rubbish" * 1_000)
            await cluster.start(gone)
            assert list(folder.glob("timers.db.unreadable-*"))
            kept = {each.id for each in far if gone in replicas_of(each.id, 2, cluster.names)}
            assert kept <= await clients.held(gone)
            await clients.delete(cluster.names, [each.location for each in far])

    run_scene(scene)
