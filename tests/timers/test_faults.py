"""Past faults: late records, repeated versions, changed addresses, a busy journal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.timer import Version
from tests.deadline import run_scene, until
from tests.timers.scene import HOUR_MS, NOWHERE, Cluster, cluster, receiving, refuse_once, timer


def test_peer_gets_the_later_of_two_records(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            one, other = nodes.node(0), nodes.node(1)
            timer_id = nodes.kept_by(0, 1)
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", asked)
            old = one.replica.get(timer_id)
            assert old is not None
            new = replace(old, version=Version(old.version.number + 1, old.version.giver))
            peer = one.peers[nodes.names[1]]
            told = [peer.send(new), peer.send(replace(old, popped=1))]
            for each in told:
                assert await each is not None
            held = other.replica.get(timer_id)
            assert held is not None
            assert (held.version, held.popped) == (new.version, 0)

    run_scene(scene)


def test_restarted_node_gives_no_version_twice(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 3) as nodes:
            path = f"/timers/{nodes.kept_by(1, 2):016x}-2"
            await nodes.ask("PUT", path, timer(NOWHERE, interval_ms=HOUR_MS))
            await nodes.services[nodes.names[0]].stop()
            await nodes.start(nodes.names[0])
            deleted = await nodes.ask("DELETE", path)
            assert (deleted.status, deleted.headers["X-Copies"]) == (200, "2/2")
            for number in (1, 2):
                assert nodes.node(number).replica.tally.waiting == 0

    run_scene(scene)


def test_a_node_that_is_alone_may_change_its_address(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver:
            for number, address in enumerate(free_addresses(2)):
                options = ServiceOptions(port=int(address.rpartition(":")[2]), data=tmp_path)
                service = TimerService(options)
                await service.start()
                nodes = Cluster(tmp_path, [address])
                if number == 0:
                    await nodes.ask("POST", "/timers", timer(receiver.uri, interval_ms=3_000))
                else:
                    await receiver.count(1)
                await service.stop()

    run_scene(scene)


def test_failed_journal_write_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 1) as nodes:
            node = nodes.node(0)
            refuse_once(node.journal, monkeypatch)
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            made = await nodes.ask("POST", "/timers", asked)
            assert made.status == 503
            assert b"may pop" in made.body
            assert node.replica.tally.waiting == 1

            def on_disk() -> int:
                return len(list(node.journal.load(now_ms=node.now_ms(), wall_ms=node.wall_ms())))

            await until(lambda: on_disk() == 1)

    run_scene(scene)


def test_deleted_timer_takes_no_room(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 1, most_timers=2) as nodes:
            asked = timer(NOWHERE, interval_ms=HOUR_MS)
            for _ in range(4):
                made = await nodes.ask("POST", "/timers", asked)
                assert made.status == 200
                await nodes.ask("DELETE", made.location)
            for status in (200, 200, 503):
                assert (await nodes.ask("POST", "/timers", asked)).status == status

    run_scene(scene)


def test_peer_stops_while_it_wakes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            node = nodes.node(0)
            await nodes.services[nodes.names[1]].stop()
            await nodes.ask("POST", "/timers", timer(NOWHERE, interval_ms=HOUR_MS))
            peer = node.peers[nodes.names[1]]
            assert peer.is_away
            peer.seen()  # it is awake in the same turn in which it is cancelled
            await peer.stop()
            assert peer.is_away

    run_scene(scene)
