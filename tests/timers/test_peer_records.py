"""A wrong record or clock does not harm other nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chronoline.timers import peers
from chronoline.timers.hybrid_clock import COUNTER_BITS
from chronoline.timers.node import TimerNode
from tests.deadline import run_scene, until
from tests.timers.scene import HOUR_MS, NOWHERE, Cluster, cluster, receiving, timer

_DAY_MS = 24 * HOUR_MS


def _tombstone(version: int, **others: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "version": version,
        "by": "x",
        "age": 0,
        "popped": 0,
        "step": 0,
        "wait": 0,
        "replicas": [],
        "view": "v",
        "kept": HOUR_MS,
        "plan": None,
        **others,
    }


async def _tell(nodes: Cluster, *records: Any, at: int = 0) -> Any:
    told = {"from": "x", "pops": True, "records": list(records), "confirmed": []}
    return (await nodes.ask("POST", "/cluster/records", told, at=at)).json


async def _metric(nodes: Cluster, name: str) -> float:
    lines = (await nodes.ask("GET", "/metrics")).body.decode().splitlines()
    return float(next(line for line in lines if line.startswith(name)).split()[-1])


@pytest.mark.parametrize("version", [1 << 62, 1 << 52])
def test_node_survives_a_version_far_ahead(tmp_path: Path, version: int) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path, 2) as nodes:
            answer = await _tell(nodes, _tombstone(version))
            assert [each["id"] for each in answer["refused"]] == [1]
            assert await _metric(nodes, "chronoline_timers_refused_records_total") == 1
            for at in (0, 1):
                asked = timer(receiver.uri, interval_ms=200)
                made = await nodes.ask("POST", "/timers", asked, at=at)
                assert (made.status, made.headers["X-Copies"]) == (200, "2/2")
            await receiver.count(2)
            await nodes.services[nodes.names[0]].stop()
            await nodes.start(nodes.names[0])
            assert nodes.node(0).is_ready

    run_scene(scene)


def test_records_beside_a_wrong_one_are_taken(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            wrong = [{"id": 5}, "x", _tombstone(1 << 62, id=6), _tombstone(3, id=7, replicas=[5])]
            answer = await _tell(nodes, *wrong, _tombstone(3, id=8))
            assert [each["id"] for each in answer["refused"]] == [5, None, 6, 7]
            assert nodes.node(0).replica.ids() == [8]

    run_scene(scene)


def _put_ahead(node: TimerNode, monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    right = TimerNode.wall_ms
    monkeypatch.setattr(node, "wall_ms", lambda: right() + ahead_ms)
    # A clock that is wrong.
    monkeypatch.setattr(node.intake, "_wall_ms", lambda: right() + ahead_ms)


def test_node_with_a_fast_clock_is_refused_until_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(peers, "_REFUSED_AGAIN_S", 0.05)

    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            wrong, right = nodes.node(0), nodes.node(1)
            path = f"/timers/{nodes.kept_by(0, 1):016x}-2"
            await nodes.ask("PUT", path, timer(NOWHERE, interval_ms=HOUR_MS))
            with monkeypatch.context() as patch:
                _put_ahead(wrong, patch, _DAY_MS)
                deleted = await nodes.ask("DELETE", path)
                assert deleted.status == 503
                assert b"ahead of the clock" in deleted.body
                assert b"may pop" in deleted.body
                assert not wrong.peers[right.me].is_away
                # The others are not disturbed.
                made = await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS), at=1)
                assert (made.status, made.headers["X-Copies"]) == (200, "2/2")
            made = await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))
            assert (made.status, made.headers["X-Copies"]) == (200, "2/2")
            # The deletion is sent again: the other node takes it as soon as it is within the bound.
            assert right.replica.tally.waiting == 3
            _put_ahead(right, monkeypatch, _DAY_MS)
            await until(lambda: right.replica.tally.waiting == 2)

    run_scene(scene)


def test_change_below_a_version_far_ahead_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused means that nothing changed."""

    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            wrong = nodes.node(1)
            timer_id = nodes.kept_by(1)
            path = f"/timers/{timer_id:016x}-1"
            with monkeypatch.context() as patch:
                _put_ahead(wrong, patch, _DAY_MS)
                made = await nodes.ask("PUT", path, timer(NOWHERE, interval_ms=HOUR_MS), at=1)
                assert made.status == 200
            deleted = await nodes.ask("DELETE", path, at=0)
            assert deleted.status == 503
            assert b"its record is later, and was refused" in deleted.body
            # The node that has it can delete it.
            assert (await nodes.ask("DELETE", path, at=1)).status == 200
            assert wrong.replica.tally.waiting == 0

    run_scene(scene)


def test_versions_follow_the_clock(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            node = nodes.node(0)
            before_ms = node.wall_ms()
            await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))
            (held,) = node.replica.some(1, 1)
            assert before_ms <= held.version.number >> COUNTER_BITS <= node.wall_ms()

    run_scene(scene)
