"""Arrivals: wakes readers that wait for events.

An append in this process wakes them at once, and so does a notification of the index about another process.
Without notifications, one look at the heads every `max_latency_ms` finds the appends of others, and only
while a reader waits.
"""

from __future__ import annotations

import threading
from collections.abc import Set as AbstractSet

_COUNTERS = 1_024


class Arrivals:
    """Counters of appends, to wait on. Topics share them, so an append may wake another topic's readers too.

    `seen = arrivals.count(uid)`, then look; if there was nothing, `wait(uid, seen, timeout)`: every append
    after the count ends the wait, so none is missed between looking and waiting.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts = [0] * _COUNTERS
        self._of_all = 0
        self._closed = False

    def count(self, topic_uid: int) -> int:
        with self._changed:
            return self._count(topic_uid)

    def notify(self, topic_uids: AbstractSet[int] | None) -> None:
        """Notes appends to these topics; None if it may be any."""
        with self._changed:
            if topic_uids is None:
                self._of_all += 1
            else:
                for uid in topic_uids:
                    self._counts[uid % _COUNTERS] += 1
            self._changed.notify_all()

    def wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        """True after an append or the closing of the log; false after the time-out."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closed or self._count(topic_uid) != seen, timeout_s
            )

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _count(self, topic_uid: int) -> int:
        return self._counts[topic_uid % _COUNTERS] + self._of_all
