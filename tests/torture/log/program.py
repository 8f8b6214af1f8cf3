"""The processes of the scene: `python -m tests.torture.log.program JSON` writes to, reads or maintains a log.

Every value is appended by one call, except that a keyed append is repeated with its key. So a value that is
found twice was duplicated by the log.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from chronoline.core.errors import ChronolineError, OutcomeUnknown, TopicNotFound
from chronoline.log import GroupNotFound, Log, NewEvent, Numbered
from tests.torture.history import DELIVERY, DONE, REFUSED, UNKNOWN, Recorder

PARTITIONS = 3
HOLD_MS = 1_200
KEPT = 5
"""The numbers of a source whose keys the index remembers."""
GROUPS = {"main": ("steady", "passing"), "fleeting": ("brief",)}
"""The topic of each group; `passing` and `fleeting` are deleted from time to time."""
_REST_S = 0.01
_KEYED_SHARE = 0.3
_REPLAYED = 12
_RETENTION_MS = 400


class Work:
    """The work of a process, which it records."""

    def __init__(self, recorder: Recorder, url: str, stage: str, seed: int) -> None:
        self.recorder = recorder
        self.log = Log(url, hold_ms=HOLD_MS)
        self.stage = stage
        self.chance = random.Random(seed)
        self.over = threading.Event()
        self._lock = threading.Lock()

    def topic(self, name: str) -> str:
        return f"{self.stage}-{name}"

    def call(self, op: str, action: Callable[[], Any], **fields: Any) -> Any:
        """Records a call, makes it, and records its outcome; returns its result, or None."""
        with self._lock:
            name = self.recorder.call(op, **fields)
        try:
            given = action()
        except OutcomeUnknown as error:
            self.recorder.outcome(name, UNKNOWN, type(error).__name__)
        except ChronolineError as error:
            self.recorder.outcome(name, REFUSED, type(error).__name__)
        else:
            self.recorder.outcome(name, DONE, **_positions(given))
            return given
        return None


def _positions(given: Any) -> dict[str, Any]:
    if isinstance(given, list):
        return {"at": [[each.partition, each.sequence] for each in given]}
    return {}


# Writing


class Writer:
    """Appends events of several partitions at once, and under repeated keys."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._values = 0
        self._number = 0

    def run(self) -> None:
        while not self._work.over.wait(_REST_S):
            self.step()

    def step(self) -> None:
        chance = self._work.chance
        if chance.random() < _KEYED_SHARE:
            number = max(0, self._number - chance.choice((0, 0, 1, 2, KEPT, _REPLAYED)))
            self.append_once(number)
        else:
            self.append(chance.choice(("main", "main", "fleeting", "short")), chance.randint(1, 5))

    def append(self, name: str, count: int) -> None:
        topic = self._work.topic(name)
        values = [f"{self._work.recorder.process}-{self._values + n}" for n in range(count)]
        self._values += count
        events = [
            NewEvent(value=value.encode(), partition=self._work.chance.randrange(PARTITIONS))
            for value in values
        ]
        log = self._work.log
        self._work.call(
            "append", lambda: log.append_many(topic, events), topic=topic, values=values
        )

    def append_once(self, number: int) -> None:
        """Derives the values from the number, so that the append can be repeated."""
        topic, log = self._work.topic("main"), self._work.log
        source = self._work.recorder.process
        values = [f"{source}+{number}+{partition}" for partition in range(PARTITIONS)]
        events = [
            NewEvent(value=value.encode(), partition=partition)
            for partition, value in enumerate(values)
        ]
        numbered = Numbered(source, number, kept=KEPT)

        def append() -> None:
            log.append_once(
                topic, log.pack(topic, events), key=f"{source}/{number}", numbered=numbered
            )

        self._work.call("append_once", append, topic=topic, values=values)
        self._number = max(self._number, number + 1)


# Reading


class Reader:
    """Reads for one group, and begins anew after the deletion of the topic or the group."""

    def __init__(self, work: Work, name: str, group: str) -> None:
        self._work = work
        self._topic = work.topic(name)
        self._group = group

    def run(self) -> None:
        while not self._work.over.is_set():
            self.read(follow=True)
            self._work.over.wait(_REST_S)

    def read(self, *, follow: bool) -> None:
        where = {"topic": self._topic, "group": self._group}
        self._work.recorder.record("begin", **where)
        try:
            for event in self._work.log.read(self._topic, group=self._group, follow=follow):
                value, at = (event.value or b"").decode(), [event.partition, event.sequence]
                self._work.recorder.record(DELIVERY, value=value, at=at, **where)
        except (TopicNotFound, GroupNotFound) as error:
            self._work.recorder.record("told", error=type(error).__name__, **where)
        except ChronolineError as error:
            if not self._work.over.is_set():
                self._work.recorder.record("failed", error=repr(error), **where)


# Upkeep


class Keeper:
    """Compacts, trims and sweeps without grace, so that it overtakes writers."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self) -> None:
        while not self._work.over.wait(_REST_S):
            self.step()

    def step(self) -> None:
        work, log = self._work, self._work.log
        for name in ("main", "fleeting", "short"):
            topic = work.topic(name)
            work.call("compact", partial(self._compact, topic), topic=topic)
        short = work.topic("short")
        work.call("retain", lambda: bool(log.retain(short, max_age_ms=_RETENTION_MS)), topic=short)
        grace_ms = work.chance.choice((0, 0, 200))
        work.call("sweep", lambda: bool(log.sweep(grace_ms=grace_ms)), grace_ms=grace_ms)

    def _compact(self, topic: str) -> bool:
        target_bytes = self._work.chance.choice((2_000, 20_000))
        return bool(self._work.log.compact(topic, target_bytes=target_bytes))


def main(given: dict[str, Any]) -> None:
    recorder = Recorder(Path(given["folder"]), given["process"])
    work = Work(recorder, given["url"], given["stage"], given["seed"])

    def end(*_: Any) -> None:
        work.over.set()
        work.log.stop()

    signal.signal(signal.SIGTERM, end)
    jobs: list[Callable[[], None]]
    if given["role"] == "reader":
        jobs = [Reader(work, name, group).run for name in GROUPS for group in GROUPS[name]]
    else:
        jobs = [Writer(work).run if given["role"] == "writer" else Keeper(work).run]
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(_REST_S)  # in slices, so that the signal is handled
    work.log.close()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(json.loads(sys.argv[1]))
