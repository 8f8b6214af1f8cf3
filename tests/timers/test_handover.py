"""A node that stops in order: the others do not wait for it."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

from chronoline.timers.membership import replicas_of
from chronoline.timers.node import TimerNode
from chronoline.timers.timer import Timer
from tests.deadline import run_scene, until
from tests.timers.scene import Cluster, Popped, cluster, receiving, timer

_HOUR_MS = 3_600_000


def _led_by(nodes: Cluster, number: int) -> int:
    """A timer of which that node is the first replica."""
    first = nodes.names[number]
    return next(each for each in count(1) if replicas_of(each, 2, sorted(nodes.names))[0] == first)


def _node(nodes: Cluster, number: int) -> TimerNode:
    node = nodes.services[nodes.names[number]].node
    assert node is not None
    return node


def _held(node: TimerNode, timer_id: int) -> Timer:
    held = node.replica.get(timer_id)
    assert held is not None
    return held


def test_backups_do_not_wait_for_a_stopped_node(tmp_path: Path) -> None:
    async def scene() -> None:
        async with cluster(tmp_path, 2) as nodes:
            stops, stays = nodes.names
            timer_id = _led_by(nodes, 0)
            asked = timer("http://127.0.0.1:9/", interval_ms=_HOUR_MS)
            made = await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", asked, at=1)
            assert (made.status, made.headers["X-Copies"]) == (200, "2/2")
            node = _node(nodes, 1)
            held = _held(node, timer_id)
            assert held.replicas == (stops, stays)
            assert node.replica.wake_at() == held.due_ms + 2_000

            await nodes.services[stops].stop()
            await until(lambda: node.replica.wake_at() == held.due_ms)
            assert node.replica.is_absent(stops)

            await nodes.start(stops)
            assert not node.replica.is_absent(stops)
            assert held.turn_ms(stays) == held.due_ms + 2_000

    run_scene(scene)


def test_call_of_a_stopping_node_is_not_repeated(tmp_path: Path) -> None:
    async def scene() -> None:
        called, go_on = asyncio.Event(), asyncio.Event()

        async def answer(_: Popped) -> int:
            called.set()
            await go_on.wait()
            return 200

        async with receiving() as receiver, cluster(tmp_path, 2) as nodes:
            receiver.answer = answer
            timer_id = _led_by(nodes, 0)
            asked = timer(receiver.uri, interval_ms=4_000)
            await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", asked, at=1)
            await called.wait()
            stopping = asyncio.create_task(nodes.services[nodes.names[0]].stop())
            other = _node(nodes, 1)
            await until(lambda: other.replica.is_absent(nodes.names[0]))
            assert _held(other, timer_id).step % 2 == 1  # it knows that a call is under way
            go_on.set()
            await stopping
            assert _held(other, timer_id).is_over
            assert [(pop.path, pop.sequence) for pop in receiver.popped] == [("/pop", 1)]

    run_scene(scene)
