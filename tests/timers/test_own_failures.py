"""A timer that raises an error fails alone: it is counted and set aside, and the others pop."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from chronoline.timers.node import TimerNode
from chronoline.timers.plan import TimerPlan
from chronoline.timers.replica import Callback, Replica
from chronoline.timers.timer import Timer, Version
from tests.deadline import run_scene, until
from tests.timers.scene import Cluster, Receiver, cluster, receiving, timer

_OTHERS = 5


def _uncallable(node: TimerNode, timer_id: int, *, interval_ms: int = 1) -> Timer:
    """A record that has passed no check."""
    plan = TimerPlan(
        interval_ms=interval_ms, repeat_for_ms=interval_ms, uri="http://[::1", opaque="", factor=1
    )
    return Timer(
        id=timer_id,
        version=Version(node.wall_ms() << 10, "x"),
        plan=plan,
        start_ms=node.now_ms(),
        replicas=(node.me,),
        view=node.replica.membership.view,
    )


async def _others_pop(nodes: Cluster, receiver: Receiver) -> None:
    already = len(receiver.popped)
    for _ in range(_OTHERS):
        assert (await nodes.ask("POST", "/timers", timer(receiver.uri))).status == 200
    await receiver.count(already + _OTHERS)


async def _set_aside(nodes: Cluster) -> float:
    text = (await nodes.ask("GET", "/metrics")).body.decode()
    name = "chronoline_timers_set_aside_total "
    return float(next(line for line in text.splitlines() if line.startswith(name)).split()[-1])


def test_name_that_cannot_be_decoded_stops_no_timer(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            made = await nodes.ask("POST", "/timers", timer("http://xn--a/", interval_ms=1))
            assert made.status == 200
            await _others_pop(nodes, receiver)
            await nodes.services[nodes.names[0]].stop()
            await nodes.start(nodes.names[0])  # its journal has it
            shown = await nodes.ask("GET", f"/v1{made.location}")
            assert shown.json["failed_attempts"] > 0
            await _others_pop(nodes, receiver)

    run_scene(scene)


def test_timer_that_raises_is_set_aside_until_it_is_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            node = nodes.node(0)
            node.receive(_uncallable(node, 7))
            await until(lambda: node.replica.wake_at() is None)
            await _others_pop(nodes, receiver)
            assert await _set_aside(nodes) == 1
            (line,) = [record for record in caplog.records if "0000000000000007" in record.message]
            assert vars(line)["action"] == "timer_set_aside"
            assert "must be http://host" in line.message
            changed = await nodes.ask("PUT", f"/timers/{7:016x}-1", timer(receiver.uri))
            assert changed.status == 200
            await receiver.count(_OTHERS + 1)

    with caplog.at_level(logging.ERROR):
        run_scene(scene)


def test_error_in_the_decisions_on_one_timer_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, called = Replica.begin, Replica.called

    def begin(self: Replica, timer_id: int, now_ms: int) -> Callback | None:
        if timer_id == 1:
            raise LookupError("of its begin")
        return wanted(self, timer_id, now_ms)

    def end(self: Replica, call: Callback, now_ms: int, *, succeeded: bool) -> Timer | None:
        if call.timer.id == 2:
            raise LookupError("of its end")
        return called(self, call, now_ms, succeeded=succeeded)

    monkeypatch.setattr(Replica, "begin", begin)
    monkeypatch.setattr(Replica, "called", end)

    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            for timer_id in (1, 2):
                await nodes.ask("PUT", f"/timers/{timer_id:016x}-1", timer(receiver.uri))
            await receiver.count(1)
            await _others_pop(nodes, receiver)
            assert await _set_aside(nodes) == 2

    run_scene(scene)


def test_ceded_timer_that_raises_keeps_the_others(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path, 2) as nodes:
            node, other = nodes.node(0), nodes.node(1)
            asked = timer(receiver.uri, interval_ms=60_000)
            await nodes.ask("PUT", f"/timers/{nodes.kept_by(0, 1):016x}-2", asked)
            await until(lambda: node.replica.tally.waiting == 1)
            (good,) = node.replica.some(1, 1)
            bad = replace(_uncallable(node, good.id + 1), replicas=(node.me, other.me))
            node.receive(bad)
            taken = node.take_ceded(("127.0.0.1", receiver.port), 1_000, [bad, good])
            assert taken == [good.id]
            await receiver.count(1)
            await asyncio.sleep(0)
            assert await _set_aside(nodes) == 1

    run_scene(scene)


def test_record_that_cannot_be_loaded_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back = Replica.put_back

    def fails(self: Replica, held: Timer, now_ms: int, *, was_kept: bool = True) -> None:
        if held.id == 1:
            raise LookupError("of one record")
        put_back(self, held, now_ms, was_kept=was_kept)

    async def scene() -> None:
        async with receiving() as receiver, cluster(tmp_path) as nodes:
            for timer_id in (1, 2):
                asked = timer(receiver.uri, interval_ms=60_000)
                await nodes.ask("PUT", f"/timers/{timer_id:016x}-1", asked)
            await nodes.services[nodes.names[0]].stop()
            monkeypatch.setattr(Replica, "put_back", fails)
            await nodes.start(nodes.names[0])
            assert nodes.node(0).replica.ids() == [2]
            assert list(nodes.node(0).journal.unreadable) == [1]
            await _others_pop(nodes, receiver)

    run_scene(scene)
