"""The queue of calls: the order of the calls to a host, and changes of queued timers.

The tests of a node read its private tasks: no public member shows the calls under way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.callbacks.caller import CallLimits, Endpoint, endpoint_of
from chronoline.timers.call_queue import CallQueue
from tests.deadline import run_scene, until
from tests.timers.scene import HOUR_MS, all_calling, timer

_ONE: Endpoint = ("one", 80)
_OTHER: Endpoint = ("other", 80)


def _queue(*, for_each_host: int = 2, in_all: int = 10) -> CallQueue:
    return CallQueue(CallLimits(for_each_host=for_each_host, in_all=in_all))


def _take_all(queue: CallQueue) -> list[tuple[Endpoint, int]]:
    taken = []
    while (turn := queue.take()) is not None:
        taken.append(turn)
    return taken


def test_calls_of_a_host_are_bounded() -> None:
    queue = _queue()
    for timer_id in range(5):
        queue.put(_ONE, timer_id)
    assert _take_all(queue) == [(_ONE, 0), (_ONE, 1)]
    queue.end(_ONE)
    assert _take_all(queue) == [(_ONE, 2)]
    assert len(queue) == queue.waiting(_ONE) == 2


def test_hosts_take_turns() -> None:
    queue = _queue(for_each_host=10, in_all=4)
    for timer_id in range(5):
        queue.put(_ONE, timer_id)
    queue.put(_OTHER, 9)
    assert _take_all(queue) == [(_ONE, 0), (_OTHER, 9), (_ONE, 1), (_ONE, 2)]


def test_timer_is_queued_once() -> None:
    queue = _queue()
    queue.put(_ONE, 1)
    queue.put(_ONE, 2)
    queue.put(_ONE, 1)  # it keeps its place
    queue.put(_OTHER, 2)  # it was replaced, and calls another host
    assert len(queue) == 2
    assert _take_all(queue) == [(_ONE, 1), (_OTHER, 2)]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "take", "end", "remove"]), st.integers(0, 3)), max_size=60
    )
)
def test_limits_hold_and_nothing_is_left_behind(steps: list[tuple[str, int]]) -> None:
    queue = _queue(for_each_host=2, in_all=3)
    places = [("a", 1), ("b", 1), ("c", 1)]
    under_way: list[Endpoint] = []
    for what, number in steps:
        if what == "put":
            queue.put(places[number % 3], number)
        elif what == "remove":
            queue.remove(number)
        elif what == "end" and under_way:
            queue.end(under_way.pop(0))
        elif what == "take" and (turn := queue.take()) is not None:
            under_way.append(turn[0])
        assert len(under_way) <= 3
        assert all(under_way.count(place) <= 2 for place in places)
    queue.clear()
    for place in under_way:
        queue.end(place)
    assert _take_all(queue) == []
    for number in range(4):
        queue.put(places[number % 3], number)
    assert len(_take_all(queue)) == 3


@pytest.mark.parametrize("replaced", [False, True])
def test_changed_timer_is_neither_popped_nor_failed(tmp_path: Path, replaced: bool) -> None:
    """Once a deletion is answered, the old timer is not called; with a real node."""

    async def scene() -> None:
        async with all_calling(tmp_path, 3) as (receiver, nodes, answers):
            node = nodes.node(0)
            called = receiver.popped[0].headers["X-Timer-Id"]
            for each in (await nodes.ask("GET", "/v1/timers")).json["timers"]:
                if each["id"][:16] == called[:16]:
                    continue
                method, body = "DELETE", None
                if replaced:
                    method, body = "PUT", timer(receiver.uri, interval_ms=HOUR_MS)
                assert (await nodes.ask(method, f"/timers/{each['id']}", body)).status == 200
            answers.set()
            # That queued calls have no task is the rule.
            await until(lambda: not node.waiting_at(endpoint_of(receiver.uri)) and not node._tasks)
            assert len(receiver.popped) == 1
            text = node.metrics.text().decode()
            assert "chronoline_timers_pops_total 1.0" in text
            assert text.count("chronoline_timers_callbacks_total{") == 1
            assert "chronoline_timers_missed_total 0.0" in text

    run_scene(scene)


def test_queued_timers_have_no_tasks(tmp_path: Path) -> None:
    async def scene() -> None:
        async with all_calling(tmp_path, 20) as (receiver, nodes, answers):
            node = nodes.node(0)
            assert (len(node._tasks), node.waiting_at(endpoint_of(receiver.uri))) == (1, 19)
            answers.set()
            await receiver.count(20)

    run_scene(scene)


def test_pops_during_a_queued_call_count_as_missed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with all_calling(tmp_path, 1) as (receiver, nodes, answers):
            node = nodes.node(0)
            body = timer(receiver.uri, interval_ms=20, repeat_for_ms=HOUR_MS, opaque="beat")
            made = await nodes.ask("POST", "/timers", body)
            timer_id = int(made.location.rpartition("/")[2][:16], 16)
            await until(lambda: node.waiting_at(endpoint_of(receiver.uri)) == 1)
            queued = node.replica.get(timer_id)
            assert queued is not None
            await until(lambda: node.now_ms() > queued.start_ms + 100)
            answers.set()
            popped = (await receiver.count(2))[1]
            assert popped.body == "beat"
            assert popped.sequence >= 5
            await until(lambda: b"chronoline_timers_missed_total 0.0" not in node.metrics.text())

    run_scene(scene)
