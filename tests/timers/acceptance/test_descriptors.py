"""A node that may open few files, and a flood of connections that ask for nothing."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import aiohttp
import pytest

from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from tests.deadline import run_scene, until
from tests.timers.acceptance.processes import clients_of
from tests.timers.scene import receiving

_DESCRIPTORS = 200
_IDLE = 300
_TIMERS = 5


@pytest.mark.parametrize(
    "connections",
    [(), ("limits.connections=5000",)],
    ids=["capped by descriptors", "a cap that descriptors do not allow"],
)
def test_idle_connections_neither_stop_pops_nor_count_as_failures(
    tmp_path: Path, connections: tuple[str, ...]
) -> None:
    async def scene() -> None:
        (node,) = names = free_addresses(1)
        with TimerNodes(tmp_path) as nodes:
            nodes.write(names)
            settings = ("callbacks.attempts=1", "callbacks.first_wait_ms=50", *connections)
            nodes.launch(node, settings=settings, descriptors=_DESCRIPTORS)
            nodes.await_ready(node)
            async with receiving() as receiver, clients_of(receiver) as clients:
                await clients.make(names, map(str, range(_TIMERS)), interval_ms=1_500)
                host, _, port = node.rpartition(":")
                idle = [socket.create_connection((host, int(port))) for _ in range(_IDLE)]
                await receiver.count(_TIMERS)
                open_files = len(os.listdir(f"/proc/{nodes.pid(node)}/fd"))
                assert open_files < _DESCRIPTORS or connections
                if not connections:  # else a new connection may be dropped
                    assert (await clients.ask(node, "GET", "/ping")).status == 200
                for each in idle:
                    each.close()
                metrics = await _metrics(node)
            assert "chronoline_timers_given_up_total 0.0" in metrics
            outcomes = re.findall(r'callbacks_total{outcome="(\w+)"}', metrics)
            assert outcomes == ["succeeded"]

    run_scene(scene)


async def _metrics(node: str) -> str:
    """Without the label that all of them have."""
    shown = ""

    async def is_shown() -> bool:
        nonlocal shown
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{node}/metrics") as response,
            ):
                shown = await response.text()
        except aiohttp.ClientError:  # the others are not all closed yet
            return False
        return True

    await until(is_shown)
    return shown.replace('cluster="default",', "").replace('{cluster="default"}', "")
