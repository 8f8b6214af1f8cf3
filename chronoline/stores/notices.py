"""Notices inside one process: a change of a timeline wakes the watches that sleep on it.

A monotonic clock measures the waits. No rule depends on it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from chronoline.stores.contract import Notice, Watch

_MOST_NOTICES = 1_000


class LocalWatch(Watch):
    """A watch that gets the notices of its own process, and looks for changes of others by a function.

    A wait calls `look` every `look_every_s` seconds, however many notices it gets. It answers whether another
    process may have changed something. Without it a wait sleeps until there is a notice. A wait calls `check`
    first, which raises if no notice could arrive.
    """

    def __init__(
        self,
        look: Callable[[], bool] | None = None,
        look_every_s: float = 0.01,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._look = look
        self._look_every_s = look_every_s
        self._look_at = time.monotonic() + look_every_s
        self._check = check
        self._changed = threading.Condition()
        self._notices: list[Notice] = []
        self._woken = False
        self._closed = False

    def wait(self, timeout_s: float) -> list[Notice]:
        self._check()
        end = time.monotonic() + timeout_s
        self._look_if_due()
        while (left_s := end - time.monotonic()) > 0:
            slice_s = left_s if self._look is None else min(left_s, self._look_every_s)
            with self._changed:
                if self._changed.wait_for(self._is_awake, slice_s):
                    break
            self._look_if_due()
        with self._changed:
            notices, self._notices, self._woken = self._notices, [], False
            return notices

    def _look_if_due(self) -> None:
        now = time.monotonic()
        if self._look is not None and now >= self._look_at:
            self._look_at = now + self._look_every_s
            if self._look():
                self.notify(Notice())

    def _is_awake(self) -> bool:
        return bool(self._notices) or self._woken or self._closed

    def notify(self, notice: Notice) -> None:
        """Adds a notice. If too many are unread, one that says "look" replaces them."""
        with self._changed:
            if len(self._notices) >= _MOST_NOTICES:
                self._notices = [Notice()]
            self._notices.append(notice)
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class NoticeBoard:
    """The open watches of one store."""

    def __init__(self) -> None:
        self._watches: weakref.WeakSet[LocalWatch] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, watch: LocalWatch) -> LocalWatch:
        with self._lock:
            self._watches.add(watch)
        return watch

    def notify(self, notice: Notice) -> None:
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.notify(notice)
