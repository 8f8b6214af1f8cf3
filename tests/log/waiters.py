"""Readers that wait.

Readers look every `max_latency_ms`. It is so long here that only a word can wake them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chronoline.log import Event, Log
from chronoline.log import group_reader as group_reading_module

NEVER_MS = 60_000
PATIENCE_S = 20


class Waiter:
    """A thread that reads one event, and says when it waits."""

    def __init__(self, log: Log, group: str | None) -> None:
        self.log = log
        self.found: list[Event] = []
        self.waits = threading.Event()
        """It has looked, and found nothing."""
        self.hears = threading.Event()
        """It waits, and the index tells it of other processes."""
        self._wait = log._arrivals.wait
        self._thread = threading.Thread(target=self._read, args=(group,))

    def _read(self, group: str | None) -> None:
        self.found += self.log.read("t", group=group, limit=1)

    def _signal_and_wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        self.waits.set()
        if self.log._index.hearing:
            self.hears.set()
        return self._wait(topic_uid, seen, timeout_s)

    def values(self) -> list[bytes | None]:
        self._thread.join(PATIENCE_S)
        return [event.value for event in self.found]

    @contextmanager
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        # A reader of a group looks with each beat: here it has none.
        monkeypatch.setattr(group_reading_module, "_LONGEST_BEAT_MS", NEVER_MS)
        monkeypatch.setattr(self.log._arrivals, "wait", self._signal_and_wait)
        self._thread.start()
        try:
            assert self.waits.wait(PATIENCE_S)
            yield
        finally:
            self.log.stop()
            self._thread.join()


@contextmanager
def opened(url: str, max_latency_ms: int = NEVER_MS) -> Iterator[Log]:
    with Log(url, max_latency_ms=max_latency_ms, hold_ms=10 * NEVER_MS) as log:
        log.create_topic("t", partitions=2)
        yield log
