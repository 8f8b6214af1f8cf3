"""A node with a long queue cedes calls to another that keeps the same timers."""

from __future__ import annotations

import asyncio
from itertools import count, islice
from pathlib import Path

import pytest

from chronoline.callbacks.caller import CallLimits, endpoint_of
from chronoline.timers import queue_balancer
from chronoline.timers.membership import replicas_of
from tests.deadline import run_scene, until
from tests.timers.scene import Cluster, Popped, cluster, receiving, timer

_AT_ONCE = 2
_TIMERS = 20


def _ids_led_by_first(nodes: Cluster) -> list[int]:
    first, names = nodes.names[0], sorted(nodes.names)
    found = (each for each in count(1) if replicas_of(each, 2, names)[0] == first)
    return list(islice(found, _TIMERS))


@pytest.mark.parametrize("answers_requests", [True, False])
def test_ceded_calls_of_a_long_queue_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers_requests: bool
) -> None:
    """A node of an older release knows no such request: then each calls its own."""
    if not answers_requests:
        monkeypatch.setattr(queue_balancer, "CEDED_PATH", "/cluster/unheard-of")

    async def scene() -> None:
        answers = asyncio.Event()

        async def wait(_: Popped) -> int:
            await answers.wait()
            return 200

        limits = CallLimits(for_each_host=_AT_ONCE, timeout_ms=60_000)
        async with receiving() as receiver, cluster(tmp_path, 2, calls=limits) as nodes:
            receiver.answer = wait
            first, second = nodes.node(0), nodes.node(1)
            body = timer(receiver.uri, interval_ms=800)
            for timer_id in _ids_led_by_first(nodes):
                made = await nodes.ask("PUT", f"/timers/{timer_id:016x}-2", body)
                assert made.headers["X-Copies"] == "2/2"
            if answers_requests:
                await receiver.count(2 * _AT_ONCE)
                await until(lambda: second.waiting_at(endpoint_of(receiver.uri)) > 0)
                assert first.waiting_at(endpoint_of(receiver.uri)) < _TIMERS - 2 * _AT_ONCE
            else:
                await receiver.count(_AT_ONCE)
                await until(
                    lambda: first.waiting_at(endpoint_of(receiver.uri)) == _TIMERS - _AT_ONCE
                )
            answers.set()
            await receiver.count(_TIMERS)
            await until(lambda: not any(nodes.node(at).replica.tally.waiting for at in (0, 1)))
            assert len(receiver.popped) == _TIMERS
            assert len({pop.headers["X-Timer-Id"] for pop in receiver.popped}) == _TIMERS

    run_scene(scene)
