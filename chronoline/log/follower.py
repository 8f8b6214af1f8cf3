"""A reader that follows some partitions and gives up waiting after a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from chronoline.log.events import Event
from chronoline.log.partition_reader import LoneReader

_BATCH_EVENTS = 500

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

    def poll(self, limit: int, timeout_s: float) -> list[Event]:
        """The next events, at most `limit`; waits for the first. There may be none before the time is over.

        After an error events may be missing: make a new follower then.
        """
        seen = self._count()
        events = self._take(limit)
        if not events and timeout_s > 0:
            self._wait(seen, min(timeout_s, self._reader.idle_s()))
            events = self._take(limit)
        return events

    def _take(self, limit: int) -> list[Event]:
        events = list(islice(self._events, limit))
        if not events:
            self._events = self._reader.read_on(_BATCH_EVENTS)
            events = list(islice(self._events, limit))
        return events
