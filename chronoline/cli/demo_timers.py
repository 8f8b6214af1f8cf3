"""`chronoline demo --timers`: a cluster that grows and shrinks under load, and the fate of its timers."""

from __future__ import annotations

import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chronoline.core.lateness import Lateness
from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.callback_receiver import receiver

_EVERY_S = 0.01
_INTERVALS_MS = (500, 4_000)
_BETWEEN_S = 3.0
"""The time between the steps."""
_PATIENCE_S = 15.0
"""The wait after the last due time; a timer that has not popped then is lost."""


def show_timers() -> None:
    """Three nodes, then four, then two, while timers are made and pop all the time."""
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="chronoline-demo-") as folder,
        _CallbackReceiver() as received,
        TimerNodes(Path(folder)) as nodes,
    ):
        first, second, third, fourth = free_addresses(4)
        nodes.write([first, second, third])
        console.print("Starting three nodes …")
        nodes.start(first, second, third)
        with _Load(received.uri, [second, third]) as load:
            time.sleep(_BETWEEN_S)  # some timers live through each step
            console.print("A fourth joins …")
            nodes.write([first, second, third], joining=[fourth])
            nodes.start(fourth)
            nodes.reload([first, second, third])
            moved = nodes.resync([first, second, third, fourth])
            nodes.write([first, second, third, fourth])
            nodes.reload([first, second, third, fourth])
            console.print(
                f"  {moved:,} timers were offered to the nodes that are to keep them now."
            )
            time.sleep(_BETWEEN_S)  # some timers live through each step
            console.print("Two leave …")
            nodes.write([second, third], leaving=[first, fourth])
            nodes.reload([first, second, third, fourth])
            moved = nodes.resync([second, third])
            nodes.write([second, third])
            nodes.reload([second, third])
            nodes.kill(first, fourth)
            console.print(f"  {moved:,} timers were offered; the two nodes are gone.")
            time.sleep(_BETWEEN_S)  # some timers live through each step
        console.print(f"Set {len(load.due_s):,} timers; waiting for the last of them …")
        received.wait_for(set(load.due_s), until_s=max(load.due_s.values()) + _PATIENCE_S)
    _report(console, load, received)


class _CallbackReceiver:
    """Receives callbacks: the time of each, by its body."""

    def __init__(self) -> None:
        self.came: list[tuple[str, str, float]] = []
        self._changed = threading.Condition()
        self._server = receiver(0, self._note)
        self.uri = f"http://127.0.0.1:{self._server.server_port}/pop"

    def _note(self, _: str, sequence: str, body: bytes) -> None:
        now_s = time.monotonic()
        with self._changed:
            self.came.append((body.decode(), sequence, now_s))
            self._changed.notify_all()

    def wait_for(self, bodies: set[str], until_s: float) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: {body for body, _, _ in self.came} >= bodies, until_s - time.monotonic()
            )

    def __enter__(self) -> _CallbackReceiver:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Load:
    """Sets timers, a hundred a second, within its block."""

    def __init__(self, uri: str, nodes: list[str]) -> None:
        self._uri = uri
        self._connections = [http.client.HTTPConnection(node, timeout=10) for node in nodes]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.due_s: dict[str, float] = {}
        self.refused = 0

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(_EVERY_S):
            number += 1
            self._ask(f"timer {number}", self._connections[number % len(self._connections)])

    def _ask(self, opaque: str, connection: http.client.HTTPConnection) -> None:
        interval_ms = random.randint(*_INTERVALS_MS)
        callback = {"http": {"uri": self._uri, "opaque": opaque}}
        body = json.dumps({"timing": {"interval-ms": interval_ms}, "callback": callback})
        asked_s = time.monotonic()
        try:
            connection.request("POST", "/timers", body)
            response = connection.getresponse()
            response.read()
            taken = response.status == 200  # noqa: PLR2004 - OK
        except (OSError, http.client.HTTPException):
            connection.close()
            taken = False
        if taken:
            self.due_s[opaque] = asked_s + interval_ms / 1000
        else:
            self.refused += 1

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for connection in self._connections:
            connection.close()


def _report(console: Console, load: _Load, received: _CallbackReceiver) -> None:
    first: dict[str, float] = {}
    pops: Counter[tuple[str, str]] = Counter()
    for body, sequence, came_s in received.came:
        first.setdefault(body, came_s)
        pops[body, sequence] += 1
    late_ms = [
        (came_s - load.due_s[body]) * 1000 for body, came_s in first.items() if body in load.due_s
    ]
    lost = len(set(load.due_s) - set(first))
    early = sum(each < 0 for each in late_ms)
    double = sum(pops.values()) - len(pops)
    table = Table("timers", "", title="3 nodes → 4 → 2, under load", show_header=False)
    table.add_row("asked for", f"{len(load.due_s):,}")
    table.add_row("popped", f"{len(first):,}")
    if late_ms:
        seen = Lateness.of(late_ms)
        table.add_row(
            "late", f"p50 {seen.p50_ms:.1f} ms, p99 {seen.p99_ms:.1f} ms, max {max(late_ms):.1f} ms"
        )
    table.add_row("early", str(early))
    table.add_row("double, and recognisable by id and sequence", str(double))
    table.add_row("refused", str(load.refused))
    table.add_row("lost", str(lost))
    console.print(table)
    if lost or early:
        raise SystemExit(1)
