"""Knowledge between nodes and processes: liveness, kept timers, the owner of the journal."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from chronoline.core.errors import StoreFull, StoreUnavailable
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.timers import peers, replica, views
from chronoline.timers.node import TimerNode
from chronoline.timers.peers import Link, Peer
from chronoline.timers.timer import Timer, Version
from tests.deadline import run_scene, until
from tests.timers.scene import (
    HOUR_MS,
    INTAKE,
    NOWHERE,
    Answered,
    Popped,
    all_calling,
    cluster,
    receiving,
    timer,
)


def test_a_journal_is_for_one_process(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            folder = tmp_path / nodes.names[0].rpartition(":")[2]
            second = TimerService(ServiceOptions(port=0, data=folder))
            with pytest.raises(StoreUnavailable, match=r"another process has .*timers\.db"):
                await second.start()
            made = await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))
            assert made.status == 200
        await second.start()  # the first has ended
        assert second.node is not None
        assert second.node.replica.tally.waiting == 1
        await second.stop()

    run_scene(scene)


def test_idle_peer_notices_a_dead_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(peers, "_LOOK_AFTER_S", 0.02)

    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            peer = nodes.node(0).peers[nodes.names[1]]
            monkeypatch.setattr(Peer, "leave", lambda _: None)
            await nodes.services[nodes.names[1]].stop()
            await until(lambda: peer.is_away)
            assert not peer.has_left
            await nodes.start(nodes.names[1])
            await until(lambda: not peer.is_away)

    run_scene(scene)


def test_stopped_node_differs_from_a_dead_one(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            await nodes.services[nodes.names[1]].stop()

            async def seen() -> dict[str, object]:
                (other,) = (
                    each
                    for each in (await nodes.ask("GET", "/v1/nodes")).json["nodes"]
                    if not each["is_here"]
                )
                return dict(other)

            assert (await seen())["has_left"] is True
            await nodes.start(nodes.names[1])
            assert (await seen())["has_left"] is False

    run_scene(scene)


def test_name_with_fewer_copies_deletes_everywhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            timer_id = nodes.kept_by(1, 2)
            path = f"/timers/{timer_id:016x}"
            await nodes.ask("PUT", f"{path}-2", timer(NOWHERE, interval_ms=HOUR_MS))
            assert (await nodes.ask("DELETE", f"{path}-1")).status == 200
            await until(lambda: not any(nodes.node(each).replica.tally.waiting for each in (1, 2)))

    run_scene(scene)


def test_unconfirmed_keeper_is_updated_by_the_others(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            timer_id = nodes.kept_by(1, 2)
            await nodes.services[nodes.names[2]].stop()
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            made = await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", asked)
            assert made.headers["X-Copies"] == "1/2"
            peer = nodes.node(1).peers[nodes.names[2]]
            await until(lambda: peer.behind == 1)

    run_scene(scene)


def test_resync_restores_the_copies_of_a_removed_node(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            for at in range(30):
                asked = timer(NOWHERE, interval_ms=HOUR_MS)
                assert (await nodes.ask("POST", "/timers", asked, at=at % 3)).status == 200
            await nodes.services[nodes.names[2]].stop()
            nodes.write(staying=nodes.names[:2])
            for path in ("/v1/reload", "/v1/resync"):
                for at in (0, 1):
                    assert (await nodes.ask("POST", path, at=at)).status == 200
            await until(lambda: all(nodes.node(at).replica.tally.waiting == 30 for at in (0, 1)))

    run_scene(scene)


def test_refused_record_counts_as_not_taken() -> None:
    async def scene() -> None:
        async def refuse(_: Popped) -> int:
            return 401

        async with receiving() as stranger, aiohttp.ClientSession() as session:
            stranger.answer = refuse
            link = Link(f"127.0.0.1:{stranger.port}", session, scheme="http", timeout_ms=60_000)
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
            assert await peer.send(deleted) is None
            assert peer.is_away
            await peer.stop()

    run_scene(scene)


def test_nearly_full_disk_refuses_timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            made = await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))

            def full() -> None:
                raise StoreFull("only 3 bytes are left")

            monkeypatch.setattr(nodes.node(0).journal, "check_room", full)
            for method, path in (("POST", "/timers"), ("PUT", made.location)):
                refused = await nodes.ask(method, path, timer(NOWHERE, interval_ms=HOUR_MS))
                assert refused.status == 503
                assert b"only 3 bytes are left" in refused.body
            assert (await nodes.ask("DELETE", made.location)).status == 200

    run_scene(scene)


def test_stopping_node_begins_no_queued_calls(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with all_calling(tmp_path, 3) as (receiver, nodes, answers):
            node = nodes.node(0)
            stopping = asyncio.create_task(nodes.services[nodes.names[0]].stop())
            await until(lambda: not node.is_ready)
            answers.set()
            await stopping
            assert len(receiver.popped) == 1
            await nodes.start(nodes.names[0])
            await receiver.count(3)

    run_scene(scene)


def test_timer_pages_are_bounded_and_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(views, "_MOST_LOOKED_AT", 2)

    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            made = [
                (await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))).location
                for _ in range(7)
            ]
            for location in made[3:5]:
                await nodes.ask("DELETE", location)
            pages: list[list[str]] = []
            cursor = 0
            while cursor is not None:
                page = (await nodes.ask("GET", f"/v1/timers?cursor={cursor}")).json
                pages.append([f"/timers/{each['id']}" for each in page["timers"]])
                cursor = page["cursor"]
                if len(pages) == 2:  # the oldest is forgotten between two pages
                    oldest = int(made[0].rpartition("/")[2][:16], 16)
                    nodes.node(0).replica.give_up(oldest, nodes.node(0).now_ms())
            assert pages == [[made[6], made[5]], [], [made[2]], [made[1]]]

    run_scene(scene)


def test_starting_node_does_not_announce_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_LOOK_AFTER_S", 0.01)

    async def scene() -> None:
        looks: list[bool] = []
        heard: list[bool] = []

        def is_up() -> bool:
            looks.append(len(looks) >= 3)
            return looks[-1]

        async def answer(_: Popped) -> web.Response:
            heard.append(looks[-1])
            return web.json_response({"life": "x", "newer": []})

        async with receiving() as other, aiohttp.ClientSession() as session:
            other.answer = answer
            link = Link(f"127.0.0.1:{other.port}", session, scheme="http", timeout_ms=60_000)
            peer = Peer(
                link,
                me="me",
                now_ms=lambda: 0,
                get=lambda _: None,
                heard=lambda _: None,
                intake=INTAKE,
                is_up=is_up,
            )
            await other.count(1)
            await peer.stop()
        assert looks[:4] == [False, False, False, True]
        assert all(heard)

    run_scene(scene)


def test_deletion_is_remembered_until_every_keeper_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not come back, also by those that never knew how long the timer would have lived."""
    monkeypatch.setattr(replica, "UNKNOWN_KEPT_MS", 1)

    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            timer_id = nodes.kept_by(0, 1)
            path = f"/timers/{timer_id:016x}-2"
            first, second = nodes.names[:2]
            await nodes.services[second].stop()
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            assert (await nodes.ask("PUT", path, asked, at=2)).headers["X-Copies"] == "1/2"
            await nodes.services[first].stop()
            await nodes.services[
                nodes.names[2]
            ].stop()  # nor does it remember what the second missed
            for name in nodes.names[1:]:
                await nodes.start(name)
            assert (await nodes.ask("DELETE", path, at=2)).headers["X-Copies"] == "1/2"
            for at in (1, 2):
                node = nodes.node(at)
                await until(lambda node=node: node.peers[first].owes(timer_id))
                later_ms = node.now_ms() + HOUR_MS
                assert node.replica.take_due(later_ms, 10) == []
                assert node.replica.get(timer_id) is not None
            await nodes.start(first)
            await until(lambda: nodes.node(0).replica.tally.waiting == 0)

    run_scene(scene)


def test_change_taken_by_a_first_try_may_pop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused means that nothing changed."""

    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            timer_id = nodes.kept_by(0, 1)
            asked, ahead = nodes.node(2), nodes.node(1)
            wall_ms = (
                ahead.wall_ms() + 10_000
            )  # its clock is ahead of that of the node that is asked
            change = ahead.replica.change(
                timer_id, None, factor=2, at=(), now_ms=0, wall_ms=wall_ms
            )
            ahead.replica.put_back(change.timer, ahead.now_ms())
            # A node that dies between two steps.
            tell, tries = TimerNode._send_record, []

            async def die_after_the_first(self: TimerNode, *told: Any) -> Any:
                if self is asked:
                    tries.append(told)
                    for peer in self.peers.values():
                        peer.is_away |= len(tries) == 2
                return await tell(self, *told)

            monkeypatch.setattr(TimerNode, "_send_record", die_after_the_first)
            answer = await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", timer(NOWHERE), at=2)
            assert (answer.status, len(tries)) == (503, 2)
            assert b"may pop" in answer.body

    run_scene(scene)


def test_node_with_a_full_journal_queue_refuses_timers(tmp_path: Path) -> None:
    """A refused timer does not exist."""

    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            node = nodes.node(0)
            written = threading.Event()
            queue = node.journal._queue  # a journal that writes slowly
            # As above.
            slow = node.journal._committer.submit(
                queue, "slow", lambda *_: [written.wait(60)], [None]
            )
            body = timer(NOWHERE, interval_ms=HOUR_MS, opaque="x" * 900_000)
            asking: list[asyncio.Task[Answered]] = []
            while not any(each.done() for each in asking):
                asking.append(asyncio.create_task(nodes.ask("POST", "/timers", body)))
                await until(lambda: asking[-1].done() or node.replica.tally.waiting == len(asking))
            written.set()
            answers = [await each for each in asking]
            assert slow.result(60)
            refused = [each for each in answers if each.status == 503]
            assert refused
            assert {each.body for each in refused} == {
                b"the journal has too much to write; nothing was changed. Try again\n"
            }
            assert node.replica.tally.waiting == len(answers) - len(refused)

    run_scene(scene)


def test_aborted_request_body_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with cluster(tmp_path) as nodes:
            host, _, port = nodes.names[0].rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"POST /timers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 200\r\n\r\n{"
            )
            await writer.drain()
            assert (await nodes.ask("GET", "/ping")).status == 200
            writer.close()
            await writer.wait_closed()
            asked = 'requests_total{method="POST",status="400"} 1.0'

            async def is_over() -> bool:
                return asked in (await nodes.ask("GET", "/metrics")).body.decode()

            await until(is_over)
        assert caplog.messages == []

    run_scene(scene)


def test_a_receiver_can_delete_the_timer_that_calls_it(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path, 2) as nodes:
            body = timer(receiver.uri, interval_ms=20, repeat_for_ms=HOUR_MS)
            await nodes.ask("POST", "/timers", body)
            (popped, *_) = await receiver.count(1)
            gone = await nodes.ask("DELETE", f"/timers/{popped.headers['X-Timer-Id']}", at=1)
            assert gone.status == 200
            assert [nodes.node(at).replica.tally.waiting for at in (0, 1)] == [0, 0]

    run_scene(scene)


def test_the_wait_for_a_turn_counts_as_lateness(tmp_path: Path) -> None:
    async def scene() -> None:
        async with all_calling(tmp_path, 2) as (receiver, nodes, answers):
            metrics = nodes.node(0).metrics
            assert b"chronoline_timers_pops_total 1.0" in metrics.text()
            answers.set()
            await receiver.count(2)
            await until(lambda: b"chronoline_timers_lateness_seconds_count 2.0" in metrics.text())

    run_scene(scene)
