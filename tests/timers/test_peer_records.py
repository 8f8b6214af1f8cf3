"""A wrong record or clock does not harm other nodes."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from chronoline.core.errors import InvalidInput
from chronoline.runtime.child_process import free_addresses
from chronoline.timers import peers
from chronoline.timers import resync as resync_module
from chronoline.timers.http import nodes as nodes_module
from chronoline.timers.hybrid_clock import COUNTER_BITS
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import Link, Peer
from chronoline.timers.records import to_record
from chronoline.timers.timer import Timer, Version
from tests.deadline import run_scene, until
from tests.timers.scene import (
    HOUR_MS,
    INTAKE,
    NOWHERE,
    Answering,
    Cluster,
    Popped,
    cluster,
    receiving,
    timer,
)

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


_PLAN: dict[str, Any] = {
    "interval": 60_000,
    "repeat_for": 60_000,
    "uri": NOWHERE,
    "opaque": "",
    "factor": 1,
    "tags": [],
}


def test_records_of_nodes_pass_the_checks_of_clients(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"uri": "http://[::1"},
        {"uri": "file:///etc/passwd"},
        {"uri": "http://user:password@127.0.0.1/"},
        {"uri": "http://127.0.0.1/\r\nX: y"},
        {"opaque": "x" * 20_000_000},
        {"tags": [["a\x1b[2J", 1]]},
        {"interval": 0},
    ]

    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            me, view = nodes.names[0], nodes.node(0).replica.membership.view
            soon = {**_PLAN, "interval": 20, "repeat_for": 20, "uri": receiver.uri}
            records = [
                _tombstone(number + 1, id=number, plan=plan, replicas=[me], view=view)
                for number, plan in enumerate([*({**_PLAN, **each} for each in wrong), soon])
            ]
            answer = await _tell(nodes, *records)
            assert [each["id"] for each in answer["refused"]] == list(range(len(wrong)))
            assert nodes.node(0).replica.ids() == [len(wrong)]
            await receiver.count(1)

    run_scene(scene)


def test_what_cannot_be_taken_is_left_out_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            node = nodes.node(0)
            receive = node.receive

            def fails(held: Timer) -> Timer:
                if held.id == 1:
                    raise LookupError("of one record")
                return receive(held)

            monkeypatch.setattr(node, "receive", fails)
            answer = await _tell(nodes, _tombstone(3, id=1), _tombstone(3, id=2))
            (refused,) = answer["refused"]
            assert (refused["id"], node.replica.ids()) == (1, [2])
            assert "LookupError" in refused["reason"]
            held = node.replica.get(2)
            assert held is not None
            wrong = [
                5,
                [1, 2],
                [2, -1, "x", []],
                [2, 3, "x\n", []],
                [2, 3, "x", [["a", "b"]] * 101],
            ]
            good = [2, held.version.number, held.version.giver, [["a", "b"]]]
            told = {"from": "x", "records": [], "confirmed": [*wrong, good]}
            assert (await nodes.ask("POST", "/cluster/records", told)).status == 200
            assert node.journal is not None
            await node.saved()
            (saved,) = node.journal.load(now_ms=node.now_ms(), wall_ms=node.wall_ms())
            assert saved.confirmed == (("a", "b"),)
            wrong_references = [5, {"ID": "x"}, {"ID": 1, "ReplicaIndex": -1}]
            told = {"IDs": [*wrong_references, {"ID": 2, "ReplicaIndex": 0}]}
            assert (await nodes.ask("DELETE", "/timers/references", told)).status == 202

    run_scene(scene)


@asynccontextmanager
async def _answering(answer: Answering) -> AsyncIterator[tuple[Link, list[Popped]]]:
    """A link to a node with this answer."""
    async with (
        receiving() as stranger,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        stranger.answer = answer
        address = f"127.0.0.1:{stranger.port}"
        yield Link(address, session, scheme="http", timeout_ms=60_000), stranger.popped


def _plain(body: bytes, **headers: str) -> Answering:
    async def answer(_: Popped) -> web.Response:
        return web.Response(body=body, headers=headers)

    return answer


async def _endless(_: Popped) -> web.Response:
    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1024 * 1024

    return web.Response(body=pieces())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_endless, "larger than"),
        (_plain(zlib.compress(b"{}"), **{"Content-Encoding": "deflate"}), "compressed"),
        (_plain(b"["), "not JSON"),
        (_plain(b"[" * 100_000), "not JSON"),
        (_plain(b"9" * 5_000), "digits"),
        (_plain(b"[" + b"0," * 300_000 + b"0]"), "more than 200,000"),
        (_plain(b"[]"), "not an object"),
    ],
    ids=["endless", "compressed", "half", "deep", "digits", "many", "list"],
)
def test_answers_of_nodes_are_bounded_objects(
    monkeypatch: pytest.MonkeyPatch, answer: Answering, words: str
) -> None:
    monkeypatch.setattr(peers, "MOST_BYTES", 4 * 1024 * 1024)

    async def scene() -> None:
        async with _answering(answer) as (link, _):
            with pytest.raises((OSError, InvalidInput), match=words):
                await link.ask("GET", "/")

    run_scene(scene)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"life": 5, "newer": []},
        {"life": "x", "newer": 5},
        {"life": "x", "refused": [5]},
        {"life": "x", "refused": {}},
    ],
)
def test_node_whose_answer_is_wrong_is_away(told: dict[str, Any]) -> None:
    async def scene() -> None:
        async with _answering(_plain(json.dumps(told).encode())) as (link, _):
            peer = Peer(
                link,
                me="me",
                now_ms=lambda: 0,
                get=lambda _: None,
                heard=lambda _: None,
                intake=INTAKE,
            )
            deleted = Timer(
                id=1, version=Version(1, "me"), plan=None, start_ms=0, replicas=("me",), view=""
            )
            answered = await peer.send(deleted)
            assert answered is not None
            assert (answered.life, peer.is_away) == ("", True)
            await peer.stop()

    run_scene(scene)


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"timers": 5},
        {"timers": [], "cursor": "x"},
        {"timers": [], "cursor": 0},
        {"timers": [5, {"TimerID": []}, {"TimerID": 1, "OldReplicas": 5, "Timer": {}}]},
        {"timers": [{"TimerID": 1, "OldReplicas": [], "Timer": _tombstone(3, id=2)}]},
    ],
)
def test_resync_survives_a_strange_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    async def scene() -> None:
        async with (
            cluster(tmp_path, 2) as nodes,
            _answering(_plain(json.dumps(told).encode())) as (
                link,
                asked,
            ),
        ):
            (peer,) = nodes.node(0).peers.values()
            monkeypatch.setattr(peer, "link", link)
            resync = nodes.services[nodes.names[0]].resync
            assert resync is not None
            progress = await resync.run()
            assert (len(asked), progress.is_running, progress.asked) == (1, False, 1)
            assert len(progress.problems) >= 1

    run_scene(scene)


def test_node_starts_although_another_answers_strangely(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as stranger:
            stranger.answer = _plain(b'{"records": [[]], "cursor": [], "life": []}')
            nodes = Cluster(tmp_path, free_addresses(1))
            nodes.write(staying=[*nodes.names, f"127.0.0.1:{stranger.port}"])
            try:
                service = await nodes.start(nodes.names[0])
                assert service.is_started
            finally:
                await nodes.stop()

    run_scene(scene)


def test_answers_to_nodes_are_bounded_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (nodes_module, resync_module):
        monkeypatch.setattr(module, "MOST_CHARACTERS", 10)

    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            here, other = nodes.names
            for number in range(3):
                opaque = f"{number}" * 20
                asked = timer(NOWHERE, interval_ms=HOUR_MS, opaque=opaque)
                await nodes.ask("PUT", f"/timers/{number:016x}-2", asked)
            await until(lambda: len(nodes.node(0).replica) == 3)
            sizes, cursor = [], 0
            while cursor is not None:
                page = await nodes.ask("GET", f"/cluster/records?for={other}&cursor={cursor}")
                sizes.append(len(page.json["records"]))
                cursor = page.json["cursor"]
            assert sizes == [1, 1, 1]
            stale = []
            for number in range(3):
                held = nodes.node(0).replica.get(number)
                assert held is not None
                record = to_record(held, nodes.node(0).now_ms())
                stale.append({**record, "version": record["version"] - 1})
            answer = await _tell(nodes, *stale)
            assert [each["id"] for each in answer["newer"]] == [0]
            assert [each["id"] for each in answer["refused"]] == [1, 2]
            assert here != other

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
