"""Timers that have moved: their former and current keepers learn of every change."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from chronoline.runtime.child_process import free_addresses
from chronoline.timers.membership import replicas_of
from tests.deadline import run_scene, until
from tests.timers.scene import Cluster, cluster, timer

_FAR = timer("http://127.0.0.1:9/", interval_ms=3_600_000)


def _id_that_moves(
    old: Sequence[str], names: Sequence[str], new: Sequence[str], later: Sequence[str]
) -> int:
    """Of a timer that these nodes keep by the list of before, and those by the list of later."""
    while True:
        timer_id = secrets.randbits(64)
        kept = replicas_of(timer_id, len(old), names), replicas_of(timer_id, len(new), later)
        if kept == (tuple(old), tuple(new)):
            return timer_id


async def _state(nodes: Cluster, timer_id: int, at: int) -> str:
    shown = await nodes.ask("GET", f"/v1/timers/{timer_id:016x}-2", at=at)
    return str(shown.json["state"]) if shown.status == 200 else "unknown"


def test_old_name_reaches_the_current_keepers(
    tmp_path: Path,
) -> None:
    """A deleted timer does not come back, asked of a node that knows nothing of the timer."""

    async def scene() -> None:
        async with cluster(tmp_path, 4) as nodes:
            leaving, *left = nodes.names
            first, second, _ = left
            timer_id = _id_that_moves((first, leaving), nodes.names, (first, second), left)
            made = await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", _FAR, at=1)
            nodes.write(staying=left, leaving=[leaving])
            for name in nodes.names:
                await nodes.services[name].reload()
            for name in left:
                resync = nodes.services[name].resync
                assert resync is not None
                await resync.run()
            nodes.write(staying=left)
            for name in left:
                await nodes.services[name].reload()
            assert [await _state(nodes, timer_id, at) for at in (1, 2)] == ["waiting"] * 2
            deleted = await nodes.ask("DELETE", made.location, at=3)
            assert (deleted.status, deleted.headers["X-Copies"]) == (200, "2/2")
            assert [await _state(nodes, timer_id, at) for at in (1, 2)] == ["deleted"] * 2

    run_scene(scene)


def test_former_keeper_learns_of_a_deletion(tmp_path: Path) -> None:
    """A deleted timer does not come back, after the timer has got another keeper."""

    async def scene() -> None:
        kept, asked, keeps = names = free_addresses(3)
        nodes = Cluster(tmp_path, names)
        nodes.write(staying=[kept, asked])
        try:
            await nodes.start(kept)
            await nodes.start(asked)
            timer_id = _id_that_moves((kept,), [kept, asked], (keeps,), names)
            made = await nodes.ask("PUT", f"/timers/{timer_id:016x}-1", _FAR, at=1)
            assert made.status == 200
            await nodes.services[kept].stop()
            nodes.write(staying=[kept, asked], joining=[keeps])
            await nodes.start(keeps)
            await nodes.services[asked].reload()
            assert (await nodes.ask("DELETE", made.location, at=1)).status == 200
            await nodes.start(kept)
            await until(lambda: _is_deleted(nodes, timer_id))
        finally:
            await nodes.stop()

    run_scene(scene)


async def _is_deleted(nodes: Cluster, timer_id: int) -> bool:
    return await _state(nodes, timer_id, 0) == "deleted"


def test_former_keeper_does_not_revive_a_deleted_timer(tmp_path: Path) -> None:
    """It does not come back: a node that only remembers a timer does not learn of its deletion."""

    async def scene() -> None:
        stays, joins = names = free_addresses(2)
        nodes = Cluster(tmp_path, names)
        nodes.write(staying=[stays], joining=[joins])
        try:
            await nodes.start(stays)
            await nodes.start(joins)
            timer_id = _id_that_moves((stays,), [stays], (joins,), sorted(names))
            path = f"/timers/{timer_id:016x}-1"
            assert (await nodes.ask("PUT", path, _FAR, at=1)).status == 200
            assert await _state(nodes, timer_id, 0) == "waiting"  # it kept it by the list of before
            nodes.write(staying=names)
            for name in names:
                await nodes.services[name].reload()
            assert (await nodes.ask("DELETE", path, at=1)).status == 200
            await nodes.stop()
            nodes.write(staying=[stays])
            await nodes.start(stays)
            assert nodes.node(0).replica.tally.waiting == 0
        finally:
            await nodes.stop()

    run_scene(scene)
