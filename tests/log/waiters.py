"""Readers that wait.

Readers poll every `max_latency_ms`. Here it is longer than a test: only a notification wakes them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chronoline.log import Event, Log
from chronoline.log import group_reader as group_reader_module
from tests.log.internals import arrivals_of, index_of

NEVER_MS = 60_000
PATIENCE_S = 60


class Waiter:
    """A thread that reads one event, and signals when it waits."""

    def __init__(self, log: Log, group: str | None) -> None:
        self.log = log
        self.found: list[Event] = []
        self.waits = threading.Event()
        """Set when the reader has found nothing and waits."""
        self.hears = threading.Event()
        """Set when it waits and the index has a listener."""
        self._wait = arrivals_of(log).wait
        self._thread = threading.Thread(target=self._read, args=(group,))

    def _read(self, group: str | None) -> None:
        self.found += self.log.read("t", group=group, limit=1)

    def _signal_and_wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        self.waits.set()
        if index_of(self.log).hearing:
            self.hears.set()
        return self._wait(topic_uid, seen, timeout_s)

    def values(self) -> list[bytes | None]:
        self._thread.join(PATIENCE_S)
        return [event.value for event in self.found]

    @contextmanager
    def reading(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        # A group reader polls with each beat: here it has no beats.
        monkeypatch.setattr(group_reader_module, "_LONGEST_BEAT_MS", NEVER_MS)
        monkeypatch.setattr(arrivals_of(self.log), "wait", self._signal_and_wait)
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
