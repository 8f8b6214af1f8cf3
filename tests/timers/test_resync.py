"""Resyncs that meet nodes which start, fail or are dead, and lists that change meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from chronoline.timers import resync as resync_module
from chronoline.timers.ids import TimerName
from chronoline.timers.peers import Peer
from chronoline.timers.requests import read_plan
from chronoline.timers.resync import Progress, Resync
from tests.deadline import run_scene, until
from tests.timers.scene import HOUR_MS, NOWHERE, Cluster, cluster, refuse_once, timer

_TIMERS = 30
_ASKED = json.dumps(timer(NOWHERE, interval_ms=HOUR_MS)).encode()


async def _fill(nodes: Cluster, *, factor: int) -> None:
    for number in range(_TIMERS):
        asked = timer(NOWHERE, interval_ms=HOUR_MS, reliability={"replication-factor": factor})
        made = await nodes.ask("POST", "/timers", asked, at=number % len(nodes.names))
        assert made.status == 200


async def _shrink(nodes: Cluster, *, at: tuple[int, ...]) -> None:
    """The last one leaves; these hear of it."""
    nodes.write(staying=nodes.names[:-1], leaving=nodes.names[-1:])
    for number in at:
        await nodes.services[nodes.names[number]].reload()


async def _resync(nodes: Cluster, at: int) -> Progress:
    resync = nodes.services[nodes.names[at]].resync
    assert resync is not None
    return await resync.run()


def _waiting(nodes: Cluster) -> list[int]:
    return [nodes.node(at).replica.tally.waiting for at in range(len(nodes.names))]


def test_starting_node_refuses_a_resync(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            await _fill(nodes, factor=1)
            await _shrink(nodes, at=(0, 1))
            nodes.node(1).is_loaded = False  # as while it reads its journal
            (problem,) = (await _resync(nodes, 0)).problems
            assert "the node is starting" in problem
            assert (await nodes.ask("POST", "/v1/resync", at=1)).status == 503
            told = {"IDs": [{"ID": 1, "ReplicaIndex": 0}]}
            assert (await nodes.ask("DELETE", "/timers/references", told, at=1)).status == 503
            nodes.node(1).is_loaded = True
            assert (await _resync(nodes, 0)).problems == ()
            await until(lambda: _waiting(nodes) == [_TIMERS, 0])

    run_scene(scene)


def test_resync_reports_a_failed_journal_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            await _fill(nodes, factor=1)
            await _shrink(nodes, at=(0, 1, 2))
            refuse_once(nodes.node(0).journal, monkeypatch)
            progress = await _resync(nodes, 0)
            assert "somebody else writes" in " ".join(progress.problems)
            assert (progress.asked, progress.of, progress.is_running) == (2, 2, False)

    run_scene(scene)


def test_keeper_stays_until_the_timer_is_saved_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            await _fill(nodes, factor=1)
            await _shrink(nodes, at=(0, 1))
            before = _waiting(nodes)
            node = nodes.node(0)
            node.replica.take_own(node.replica.ids(), node.now_ms())
            node.act()
            await node.told()
            refuse_once(node.journal, monkeypatch)
            (problem,) = (await _resync(nodes, 0)).problems
            assert "somebody else writes" in problem
            await node.told()
            assert _waiting(nodes) == [_TIMERS, before[1]]
            assert (await _resync(nodes, 0)).problems == ()
            await until(lambda: _waiting(nodes) == [_TIMERS, 0])

    run_scene(scene)


def test_resync_follows_a_changed_node_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            await _fill(nodes, factor=1)
            # A change between two questions of a resync.
            ask, asked = Resync._ask, []

            async def ask_and_change(self: Resync, peer: Peer) -> None:
                await ask(self, peer)
                asked.append(peer.address)
                if len(asked) == 1:
                    await _shrink(nodes, at=(0, 1, 2))

            monkeypatch.setattr(Resync, "_ask", ask_and_change)
            for at in (0, 1):
                assert (await _resync(nodes, at)).problems == ()
            assert len(asked) == 2 + 2 + 2
            await until(lambda: _waiting(nodes)[2] == 0)
            assert sum(_waiting(nodes)) == _TIMERS

    run_scene(scene)


def test_dead_leaving_node_does_not_stop_a_resync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resync_module, "BATCH", 3)

    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            await _fill(nodes, factor=2)
            await nodes.services[nodes.names[2]].stop()
            await _shrink(nodes, at=(0, 1))
            for at in (0, 1):
                assert len((await _resync(nodes, at)).problems) == 1
            await until(lambda: _waiting(nodes)[:2] == [_TIMERS, _TIMERS])

    run_scene(scene)


def test_change_survives_a_changed_node_list(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            kept = nodes.kept_by(1, 2)
            stays, leave = nodes.names[0], nodes.names[1:]
            changing = asyncio.create_task(
                nodes.node(0).change(
                    TimerName(kept, factor=2), read_plan(_ASKED, factor=2), factor=2
                )
            )
            await asyncio.sleep(0)  # it is on its way to the two that leave
            nodes.write(staying=[stays], leaving=leave)
            await asyncio.gather(*(each.reload() for each in nodes.services.values()))
            assert (await changing).wanted == 1
            held = nodes.node(0).replica.get(kept)
            assert held is not None
            assert held.replicas == (stays,)
            await until(lambda: _waiting(nodes) == [1, 0, 0])

    run_scene(scene)
