"""`chronoline demo`: the main job on embedded defaults, with a table of lateness at the end."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.lateness import Lateness
from chronoline.core.limits import MAX_TIME_MS
from chronoline.log import Event, Log, NewEvent
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.control import Control
from chronoline.runtime.extras import needs
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Counts
from chronoline.stores.factory import open_store

if TYPE_CHECKING:
    from chronoline.pipe.spark.pipe import Pipe

_MESSAGES = 5_000
_SECONDS = 8.0
_BATCH = 1_000
_LEAD_MS = 3_000
"""Time to take the messages in before the first is due."""
_PATIENCE_S = 20.0
"""How long after the last due time a message counts as lost."""
_START_S = 90.0
_WARM_S = 45.0
"""How long the demo waits for warm lanes if messages come."""
_PROBE_EVERY_S = 0.05
_PROBE_LEAD_MS = 2_000
"""The delay of a probe: longer than the intake of a cold pipe takes."""
_WARM_MS = 4_000
"""The lanes are warm when probes came on time for this long."""
_ON_TIME_MS = 50.0
"""A probe that is published later than this shows a lane that is not warm yet."""
_LOOK_MS = 5
"""The polling interval of the reader: short, for precise measurements."""
_LATE_MS = 100.0
"""A median lateness from which the demo says that the machine was too busy."""
_WHOLE_FROM_MS = 100
"""Figures from this one on are shown without decimals."""
_DUE = "demo-due"
_PROBE = b"probe-"


class Warmth:
    """Whether the lanes are warm: probes came on time, one after the other, for some time."""

    def __init__(self, warm_ms: int) -> None:
        self._warm_ms = warm_ms
        self._on_time_since_ms: int | None = None
        self.came = threading.Event()
        """Set when a probe has come."""
        self.reached = threading.Event()

    def note(self, due_ms: int, late_ms: float) -> None:
        self.came.set()
        if late_ms > _ON_TIME_MS:
            self._on_time_since_ms = None
        elif self._on_time_since_ms is None:
            self._on_time_since_ms = due_ms
        elif due_ms - self._on_time_since_ms >= self._warm_ms:
            self.reached.set()


class _OutputReader(threading.Thread):
    """Reads the output: notes each message, and its lateness."""

    def __init__(self, url: str, expected: int, warmth: Warmth) -> None:
        super().__init__(name="demo-receiver", daemon=True)
        self._log = Log(url, max_latency_ms=_LOOK_MS)
        self._expected = expected
        self._warmth = warmth
        self.deliveries: Counter[bytes] = Counter()
        self.published_ms: list[float] = []
        self.read_ms: list[float] = []
        self.complete = threading.Event()

    def run(self) -> None:
        for event in self._log.read("out"):
            self._note(event, time.time_ns() / 1_000_000)
            if len(self.deliveries) >= self._expected:
                self.complete.set()

    def _note(self, event: Event, now_ms: float) -> None:
        due = int(dict(event.headers)[_DUE] or 0)
        if (event.value or b"").startswith(_PROBE):
            self._warmth.note(due, event.ts - due)
            return
        self.published_ms.append(event.ts - due)
        self.read_ms.append(now_ms - due)
        self.deliveries[event.value or b""] += 1

    def end(self) -> None:
        self._log.stop()
        self.join()
        self._log.close()


def demo(
    messages: Annotated[
        int, typer.Option(min=1, max=50_000, help="The number of messages to send.")
    ] = _MESSAGES,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, help="The seconds over which they fall due.")
    ] = _SECONDS,
    timers: Annotated[
        bool,
        typer.Option("--timers", help="Grow and shrink a cluster of timers under load instead."),
    ] = False,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Kill one of three brokers under load instead."),
    ] = False,
) -> None:
    """Send messages into a delay topic and get each back at its millisecond.

    The whole path on one machine, in a temporary folder: a topic of the
    log, Spark, a timeline in SQLite, Spark again, another topic of the log.
    It begins when the lanes are warm, and says how long that took. A
    control process that only sleeps and wakes shows how punctual this
    machine can be.

    With --timers: three nodes keep timers, a fourth joins, two leave, while
    timers are set and pop all the time.

    With --cluster: three brokers, an etcd and a PostgreSQL; messages flow to
    consumers at all brokers, and one broker is killed.
    """
    if timers or cluster:
        _check_alone(timers, cluster, has_others=(messages, seconds) != (_MESSAGES, _SECONDS))
    if cluster:
        with needs("the demo of a cluster", "server,postgres,cluster"):
            import_module(
                "chronoline.node.broker_service"
            )  # its brokers are processes of their own
            import_module("chronoline.coordination.etcd")
            import_module("chronoline.stores.postgres")
        from chronoline.cli.demo_cluster import show_cluster  # noqa: PLC0415 - of this option alone

        show_cluster()
        return
    if timers:
        from chronoline.cli.demo_timers import show_timers  # noqa: PLC0415 - of this option alone

        with needs("the demo of timers", "server"):
            import_module("chronoline.node.timer_service")  # its nodes are processes of their own
        show_timers()
        return
    with needs("the demo", "spark"):
        from chronoline.pipe.spark.pipe import Pipe  # noqa: PLC0415 - Spark is optional, and slow to import
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="chronoline-demo-") as folder:
        settings = _settings(Path(folder))
        url = settings.input.log
        with Log(url) as log:
            log.create_topic("in", partitions=4)
            log.create_topic("out", partitions=4)
            console.print("log → Spark → SQLite → Spark → log, on this machine. Starting Spark …")
            started_s = time.monotonic()
            warmth = Warmth(_WARM_MS)
            with Pipe(settings) as pipe, _receiving(url, messages, warmth) as receiver:
                console.print(f"The pipe runs after {time.monotonic() - started_s:.1f} s.")
                _warm_up(console, log, warmth)
                with Control() as control:
                    sent = _send(log, messages, seconds)
                    console.print(
                        f"Sent {len(sent):,} messages; they fall due over the next {seconds:g} seconds."
                    )
                    _watch(console, receiver, pipe, messages, max(sent.values()))
        left = _left(settings)
    _report(console, sent, receiver, control.lateness, left)


def _check_alone(timers: bool, cluster: bool, *, has_others: bool) -> None:
    """Raises `InvalidInput` for options that do not belong together."""
    if timers and cluster:
        raise InvalidInput("--timers and --cluster are two demos: name one")
    if has_others:
        option = "--timers" if timers else "--cluster"
        raise InvalidInput(f"--messages and --seconds do not apply to {option}: leave them out")


def _settings(folder: Path) -> PipeSettings:
    log = (folder / "log").as_uri()
    return PipeSettings.load(
        None,
        {},
        {
            "name": "demo",
            "store": f"sqlite:///{folder / 'timeline.db'}",
            "input": {"topic": "in", "log": log},
            "output": {"topic": "out", "log": log},
        },
    )


@contextmanager
def _receiving(url: str, expected: int, warmth: Warmth) -> Iterator[_OutputReader]:
    receiver = _OutputReader(url, expected, warmth)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.end()


def _warm_up(console: Console, log: Log, warmth: Warmth) -> None:
    """Sends probes until the lanes are warm, and says how long that took."""
    before_s = time.monotonic()
    number = 0
    while not warmth.reached.wait(_PROBE_EVERY_S):
        took_s = time.monotonic() - before_s
        if took_s > _START_S:
            raise ChronolineError(f"nothing came through the pipe within {_START_S:g} seconds")
        if took_s > _WARM_S and warmth.came.is_set():
            console.print(
                f"[bold yellow]The lanes are not on time after {_WARM_S:g} s: other work keeps this machine "
                "busy. Going on all the same.[/]"
            )
            return
        number += 1
        log.append_many(
            "in", [_event(b"%s%d" % (_PROBE, number), SystemClock().now_ms() + _PROBE_LEAD_MS)]
        )
    console.print(f"The lanes are warm after another {time.monotonic() - before_s:.1f} s.")


def _send(log: Log, messages: int, seconds: float) -> dict[bytes, int]:
    chance = random.Random()
    first_ms = SystemClock().now_ms() + _LEAD_MS
    sent: dict[bytes, int] = {}
    while len(sent) < messages:
        batch = []
        for _ in range(min(_BATCH, messages - len(sent))):
            name = new_id().encode()
            sent[name] = first_ms + int(chance.uniform(0, seconds * 1000))
            batch.append(_event(name, sent[name]))
        log.append_many("in", batch)
    return sent


def _event(name: bytes, due_ms: int) -> NewEvent:
    deadline = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")
    headers = (
        ("chronosMessageId", name),
        ("chronosDeadline", deadline.encode()),
        (_DUE, str(due_ms).encode()),
    )
    return NewEvent(key=name, value=name, headers=headers)


def _watch(
    console: Console, receiver: _OutputReader, pipe: Pipe, messages: int, last_due_ms: int
) -> None:
    give_up_s = time.monotonic() + SystemClock().seconds_until(last_due_ms) + _PATIENCE_S
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("came back", total=messages)
        while time.monotonic() < give_up_s and not receiver.complete.wait(0.25):
            progress.update(task, completed=len(receiver.deliveries))
            if pipe.stopped.is_set():
                return


def _left(settings: PipeSettings) -> Counts:
    with open_store(settings.store) as store:
        topic = store.find_topic(settings.name)
        if topic is None:
            return Counts()
        now_ms = SystemClock().now_ms()
        return store.count(topic.uid, topic.all_buckets, start=0, end=MAX_TIME_MS, now_ms=now_ms)


def _report(
    console: Console,
    sent: dict[bytes, int],
    receiver: _OutputReader,
    slept: Lateness,
    left: Counts,
) -> None:
    lost = len(sent) - len(receiver.deliveries) - left.total
    duplicated = receiver.deliveries.total() - len(receiver.deliveries)
    early = sum(late_ms < 0 for late_ms in receiver.read_ms + receiver.published_ms)
    console.print(_table(receiver, slept, early=early, lost=lost, duplicated=duplicated))
    if left.total:
        console.print(f"[bold red]{left.total:,} messages were not fired in time; use fewer.[/]")
    if lost or duplicated or early:
        console.print("[bold red]Something is wrong: see the last columns.[/]")
    if lost or duplicated or early or left.total:
        raise typer.Exit(1)
    late = Lateness.of(receiver.published_ms)
    if late.p50_ms > max(_LATE_MS, 2 * slept.p99_ms):
        console.print(
            f"[bold yellow]Half of the messages were later than {late.p50_ms:,.0f} ms: other work kept this "
            "machine busy, or the pipe restarted. Try again on a quiet machine.[/]"
        )
    console.print(
        "Every message came once, none before its deadline, and none is left behind.\n"
        "Next: README.md shows how to run a pipe of your own, on Kafka too."
    )


def _table(
    receiver: _OutputReader, slept: Lateness, *, early: int, lost: int, duplicated: int
) -> Table:
    table = Table(
        title="Lateness in milliseconds",
        caption="published: handed to the output topic; read: seen there by a reader, which looks every "
        f"{_LOOK_MS} ms; control: a process that only sleeps and wakes",
    )
    table.add_column("", no_wrap=True)
    for name in ("count", "p50", "p99", "p99.9", "max", "early", "lost", "duplicated"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, late, counts in (
        ("published", Lateness.of(receiver.published_ms), ()),
        ("read", Lateness.of(receiver.read_ms), (early, lost, duplicated)),
        ("control", slept, ()),
    ):
        figures = map(_shown_ms, (late.p50_ms, late.p99_ms, late.p999_ms, late.max_ms))
        table.add_row(name, f"{late.count:,}", *figures, *map(str, counts))
    return table


def _shown_ms(late_ms: float) -> str:
    return f"{late_ms:.2f}" if late_ms < _WHOLE_FROM_MS else f"{late_ms:,.0f}"
