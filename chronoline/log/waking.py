"""Waking readers that wait.

Inside a process an append wakes them at once. What other processes append is noticed by one look at
the heads every `max_latency_ms`, and only while somebody waits.
"""

from __future__ import annotations

import threading


class Arrivals:
    """A counter of appends for each topic, to wait on.

    `seen = arrivals.count(uid)`, then look; if there was nothing, `wait(uid, seen, timeout)`: whatever
    was appended after the count was taken ends the wait, so nothing falls between looking and waiting.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: dict[int, int] = {}
        self._closed = False

    def count(self, topic_uid: int) -> int:
        with self._changed:
            return self._counts.get(topic_uid, 0)

    def tell(self, topic_uids: set[int]) -> None:
        with self._changed:
            for uid in topic_uids:
                self._counts[uid] = self._counts.get(uid, 0) + 1
            self._changed.notify_all()

    def wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        """True if something was appended, or the log was closed; false if the time was over."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closed or self._counts.get(topic_uid, 0) != seen, timeout_s
            )

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
