"""A reader that follows some partitions and gives up waiting after a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chronoline.core.message import content_bytes
from chronoline.log.events import Event
from chronoline.log.partition_reader import LoneReader

_BATCH_EVENTS = 500
MOST_BYTES = 16 * 1024 * 1024
"""Of values, keys and headers in one poll; the last event may exceed it."""

Wait = Callable[[int, float], None]
"""Waits for an append after a count of appends, at most some seconds."""


class Follower:
    """Reads partitions in turn, each in sequence; for one thread. It stores no progress.

    Events that retention deletes before they are read are skipped: the sequences show it.
    """

    def __init__(self, reader: LoneReader, count: Callable[[], int], wait: Wait) -> None:
        self._reader = reader
        self._count = count
        self._wait = wait
        self._events: Iterator[Event] = iter(())

    def poll(self, limit: int, timeout_s: float, most_bytes: int = MOST_BYTES) -> list[Event]:
        """The next events, at most `limit`; waits for the first. There may be none before the time is over.

        The event with which values, keys and headers reach `most_bytes` is the last. After an error events
        may be missing: make a new follower then.
        """
        seen = self._count()
        events = self._take(limit, most_bytes)
        if not events and timeout_s > 0:
            self._wait(seen, min(timeout_s, self._reader.idle_s()))
            events = self._take(limit, most_bytes)
        return events

    def _take(self, limit: int, most_bytes: int) -> list[Event]:
        events = self._next(limit, most_bytes)
        if not events:
            self._events = self._reader.read_on(_BATCH_EVENTS)
            events = self._next(limit, most_bytes)
        return events

    def _next(self, limit: int, most_bytes: int) -> list[Event]:
        events: list[Event] = []
        left_bytes = most_bytes
        while len(events) < limit and left_bytes > 0:
            event = next(self._events, None)
            if event is None:
                break
            events.append(event)
            left_bytes -= content_bytes(event.value, event.key, event.headers)
        return events
