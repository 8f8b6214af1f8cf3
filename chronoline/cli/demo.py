"""`chronoline demo`: the whole path on embedded defaults, with a table of lateness at the end."""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from chronoline.bench.control import Control
from chronoline.bench.lateness import Lateness
from chronoline.clock import SystemClock
from chronoline.core.ids import ID_ENTROPY_BYTES, make_id
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.outcome import raise_for_refused
from chronoline.core.topic import Topic
from chronoline.lanes.firing import FiringLane
from chronoline.stores.contract import Store
from chronoline.stores.opening import open_store

_BATCH = 1_000
_LEAD_MS = 1_500
"""Time to store the messages before the first is due."""
_PATIENCE_S = 10.0
"""How long after the last due time a message counts as lost."""


class _Receiver:
    """Notes what was delivered, and how late."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.deliveries: Counter[str] = Counter()
        self.lateness_ms: list[float] = []
        self.complete = threading.Event()

    def __call__(self, leased: LeasedMessage) -> None:
        self.lateness_ms.append(time.time_ns() / 1_000_000 - leased.message.due)
        self.deliveries[leased.message.id] += 1
        if len(self.deliveries) >= self._expected:
            self.complete.set()


def demo(
    messages: Annotated[
        int, typer.Option(min=1, max=50_000, help="How many messages to put on the timeline.")
    ] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="Over how many seconds they fall due.")
    ] = 8.0,
) -> None:
    """Put messages on a timeline in SQLite and serve each at its millisecond.

    Everything runs in this process, on a file in a temporary folder. Beside it a control process does
    nothing but sleep and wake, to show how punctual this machine can be at all.
    """
    console = Console()
    sys.setswitchinterval(0.0005)  # the firing thread must not wait for the other one's time slice
    with tempfile.TemporaryDirectory(prefix="chronoline-demo-") as folder:
        url = f"sqlite:///{Path(folder) / 'timeline.db'}"
        with open_store(url) as store:
            topic = store.create_topic("demo", now_ms=SystemClock().now_ms())
            receiver = _Receiver(messages)
            lane = FiringLane(store, topic, receiver, consumer="demo")
            with Control() as control:
                stored = _schedule(store, topic, messages, seconds)
                console.print(
                    f"Stored {len(stored):,} messages durably in SQLite; they fall due over "
                    f"the next {seconds:g} seconds."
                )
                with lane:
                    _watch_progress(console, receiver, messages, max(stored.values()))
            left = store.count(
                topic.uid,
                topic.all_buckets,
                start=0,
                end=MAX_TIME_MS,
                now_ms=SystemClock().now_ms(),
            )
    lost = len(stored) - len(receiver.deliveries) - left.total
    duplicated = receiver.deliveries.total() - len(receiver.deliveries)
    served = Lateness.of(receiver.lateness_ms)
    early = sum(late_ms < 0 for late_ms in receiver.lateness_ms)
    console.print(_table(served, control.lateness, early=early, lost=lost, duplicated=duplicated))
    if left.total:
        console.print(
            f"[bold red]{left.total:,} messages were not served in time; ask for fewer.[/]"
        )
    if lost or duplicated or early:
        console.print("[bold red]Something is wrong: see the last columns.[/]")
    if lost or duplicated or early or left.total:
        raise typer.Exit(1)
    console.print(
        "Every message came once, none before its due time, and none is left behind.\n"
        "Next: README.md shows how to put your own on a timeline."
    )


def _schedule(store: Store, topic: Topic, messages: int, seconds: float) -> dict[str, int]:
    clock, chance = SystemClock(), random.Random()
    first_ms = clock.now_ms() + _LEAD_MS
    stored: dict[str, int] = {}
    while len(stored) < messages:
        now_ms = clock.now_ms()
        batch = [
            NewMessage(
                id=make_id(now_ms, chance.randbytes(ID_ENTROPY_BYTES)),
                due=first_ms + int(chance.uniform(0, seconds * 1000)),
                body=b"hello from the past",
            )
            for _ in range(min(_BATCH, messages - len(stored)))
        ]
        raise_for_refused(store.create(topic.uid, batch, now_ms=now_ms))
        stored |= {message.id: message.due for message in batch}
    return stored


def _watch_progress(console: Console, receiver: _Receiver, messages: int, last_due_ms: int) -> None:
    give_up_s = SystemClock().seconds_until(last_due_ms) + _PATIENCE_S
    columns = (TextColumn("served"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("served", total=messages)
        waited_s, step_s = 0.0, 0.25
        while waited_s < give_up_s and not receiver.complete.wait(step_s):
            waited_s += step_s
            progress.update(task, completed=len(receiver.deliveries))


def _table(served: Lateness, slept: Lateness, *, early: int, lost: int, duplicated: int) -> Table:
    table = Table(
        title="Lateness in milliseconds", caption="control: a process that only sleeps and wakes"
    )
    table.add_column("")
    for name in ("count", "p50", "p99", "p99.9", "max", "early", "lost", "duplicated"):
        table.add_column(name, justify="right")
    for name, late, counts in (
        ("timeline", served, (early, lost, duplicated)),
        ("control", slept, ()),
    ):
        figures = (
            f"{value:.2f}" for value in (late.p50_ms, late.p99_ms, late.p999_ms, late.max_ms)
        )
        table.add_row(name, f"{late.count:,}", *figures, *map(str, counts))
    return table
