"""The load of the soak's pipe: records on a log, their lateness on its output topic, and the log's upkeep.

The log lies in a folder, so that a fault of PostgreSQL concerns the pipe alone. Two threads do the work.
"""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from chronoline.core.lateness import Lateness
from chronoline.log import Log, NewEvent
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import Service

INPUT, OUTPUT = "soak-in", "soak-out"
_TURN_S = 0.1
_AHEAD_MS = (1_000, 3_000)
_UPKEEP_EVERY_S = 30.0
_KEPT_MS = 180_000
"""The age of the events and of the index entries that upkeep leaves."""


class DelayTopicLoad(Service):
    """Appends and reads from `start` to `stop`. `drain` ends the appending before that."""

    def __init__(self, folder: Path, *, per_s: float) -> None:
        self._folder, self._per_s = folder, per_s
        self._lock = threading.Lock()
        self._due_ms: dict[bytes, int] = {}
        """Records that were appended, and have not come."""
        self._late_ms: list[float] = []
        self._ending = threading.Event()
        self._log: Log | None = None
        self._threads: list[threading.Thread] = []
        self.sent = self.fired = self.again = self.early = 0

    def flags(self) -> dict[str, str]:
        """The settings of the pipe that say where its topics are."""
        return {
            "input.topic": INPUT,
            "input.log": str(self._folder),
            "output.topic": OUTPUT,
            "output.log": str(self._folder),
        }

    def create(self) -> None:
        """Makes the topics, which a pipe needs when it starts."""
        with Log(self._folder) as log:
            for topic in (INPUT, OUTPUT):
                log.create_topic(topic, partitions=2)

    def start(self) -> None:
        self._log = Log(self._folder)
        works = (self._append, self._read, self._keep_up)
        self._threads = [threading.Thread(target=work, args=(self._log,)) for work in works]
        for thread in self._threads:
            thread.start()

    def drain(self, patience_s: float) -> None:
        """Ends appending, and waits until all has come, for this time at most."""
        self._ending.set()
        give_up = time.monotonic() + patience_s
        while self.left and time.monotonic() < give_up:
            time.sleep(_TURN_S)  # they come to another thread

    def stop(self) -> None:
        self._ending.set()
        if self._log is not None:
            self._log.stop()
            for thread in self._threads:
                thread.join()
            self._log.close()
            self._log = None

    @property
    def left(self) -> int:
        """The number of records that were appended and have not come."""
        return len(self._due_ms)

    def lateness(self) -> Lateness | None:
        """The lateness of what came since the last call."""
        with self._lock:
            late_ms, self._late_ms = self._late_ms, []
        return Lateness.of(late_ms) if late_ms else None

    def _append(self, log: Log) -> None:
        begun = time.monotonic()
        while not self._ending.wait(_TURN_S):  # the pace of the load
            now_ms = time.time_ns() // 1_000_000
            wanted = int((time.monotonic() - begun) * self._per_s) - self.sent
            dues = {new_id().encode(): now_ms + random.randint(*_AHEAD_MS) for _ in range(wanted)}
            with self._lock:
                self._due_ms |= dues
            log.append_many(INPUT, [_event(id, due_ms) for id, due_ms in dues.items()])
            self.sent += wanted

    def _read(self, log: Log) -> None:
        for event in log.read(OUTPUT):
            now_ms = time.time() * 1000
            assert event.value is not None
            with self._lock:
                due_ms = self._due_ms.pop(event.value, None)
                if due_ms is None:
                    self.again += 1
                    continue
                self._late_ms.append(now_ms - due_ms)
            self.fired += 1
            self.early += now_ms < due_ms

    def _keep_up(self, log: Log) -> None:
        while not self._ending.wait(_UPKEEP_EVERY_S):  # the pace of the upkeep
            for topic in (INPUT, OUTPUT):
                log.retain(topic, max_age_ms=_KEPT_MS)
            log.sweep(grace_ms=_KEPT_MS)


def _event(id: bytes, due_ms: int) -> NewEvent:
    deadline = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(timespec="milliseconds")
    headers = (("chronosMessageId", id), ("chronosDeadline", deadline.encode()))
    return NewEvent(value=id, key=id, headers=headers)
