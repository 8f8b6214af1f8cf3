"""The agent of the bench `pipe`: a loader of the input topic, or a watcher of the output topic."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chronoline_bench.harness.agent import Figures
from chronoline_bench.harness.passage import Notes, wall_us, write_pairs
from chronoline_bench.pipe.polling_queue import DEADLINE_HEADER, ID_HEADER
from chronoline_bench.pipe.transport import open_sender, watch

_TICK_S = 0.005
_POLL_EVERY = 1_000
_READY_S = 0.02


class Agent:
    """The agent's commands."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._watching: asyncio.Future[None] | None = None
        self._loader: Loader | None = None

    async def load(self, **load: Any) -> Figures:
        """Publishes a `Load`; writes the due times of the acknowledged messages to its file."""
        self._loader = Loader(Load(**load))
        return await asyncio.to_thread(self._loader.run)

    async def end_load(self) -> Figures:
        """Ends a load with a rate before all of its messages are published."""
        if self._loader is not None:
            self._loader.ending.set()
        return {}

    async def watch(self, place: str, topic: str) -> Figures:
        """Starts to note the arrivals on a topic."""
        ready = threading.Event()
        self._watching = asyncio.ensure_future(
            asyncio.to_thread(watch, place, topic, self._notes, ready)
        )
        while not await asyncio.to_thread(ready.wait, _READY_S):
            await self.count()
        return {}

    async def count(self) -> Figures:
        """Returns the number of messages that came."""
        if self._watching is not None and self._watching.done():
            self._watching.result()  # raises its error
        return {"came": len(self._notes.numbers)}

    async def take(self, path: str) -> Figures:
        """Writes the arrival times since the last call to a file."""
        write_pairs(Path(path), self._notes.take())
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Messages to publish."""

    place: str
    topic: str
    path: str
    first: int
    """The number of the first message."""
    count: int
    rate: float = 0.0
    """Messages per second; 0 is as fast as possible."""
    shortest_ms: int = 3_000
    longest_ms: int = 10_000
    """The range of the delays, which are evenly spread."""
    due_ms: int | None = None
    """One deadline for all messages, instead of delays."""
    seed: int = 5
    scene: str = "load"
    """The prefix of the ids."""


class Loader:
    """Publishes one load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._chance = random.Random(load.seed + load.first)
        self._due_ms = array("q")
        """The due times in the order of the numbers."""
        self.ending = threading.Event()
        self._sender = open_sender(load.place, load.topic)

    def run(self) -> Figures:
        """Publishes all messages and waits for the acknowledgements; returns the start and end times."""
        started = time.monotonic()
        started_us = wall_us()
        for number in self._paced(started):
            self._publish(number)
        ended_us = wall_us()
        failed = set(self._sender.finish())
        write_pairs(
            Path(self._load.path),
            (
                (number, due_ms * 1_000)
                for number, due_ms in enumerate(self._due_ms, self._load.first)
                if number not in failed
            ),
        )
        return {"started_us": started_us, "ended_us": ended_us, "failed": len(failed)}

    def _paced(self, started: float) -> Iterator[int]:
        """Yields the numbers at the load's rate, a few at a time, since a sleep costs time too."""
        load = self._load
        for done in range(load.count):
            if self.ending.is_set():
                return
            if load.rate:
                while (time.monotonic() - started) * load.rate < done:
                    self._sender.poll()
                    time.sleep(_TICK_S)
            elif done % _POLL_EVERY == 0:
                self._sender.poll()
            yield load.first + done

    def _publish(self, number: int) -> None:
        load = self._load
        due_ms = load.due_ms
        if due_ms is None:
            delay_ms = self._chance.randint(load.shortest_ms, load.longest_ms)
            due_ms = time.time_ns() // 1_000_000 + delay_ms
        self._due_ms.append(due_ms)
        self._sender.send(
            number,
            b'{"task":"remind","number":%d,"due":%d,"text":"see you then"}' % (number, due_ms),
            [
                (ID_HEADER, f"{load.scene}-{number}".encode()),
                (DEADLINE_HEADER, as_deadline(due_ms).encode()),
            ],
        )


def as_deadline(due_ms: int) -> str:
    """Returns the value of the deadline header: RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(due_ms // 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{due_ms % 1000:03}Z"
