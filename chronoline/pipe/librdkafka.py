"""The words of librdkafka: while a server is away it says the same many times a second; here now and then."""

from __future__ import annotations

import logging
import threading
import time

SAY_EVERY_S = 10.0


class Seldom(logging.Filter):
    """Lets a line through if none of its level was said for a while, and says how many were not."""

    def __init__(self, every_s: float = SAY_EVERY_S) -> None:
        super().__init__()
        self._every_s = every_s
        self._lock = threading.Lock()
        self._said_s: dict[int, float] = {}
        self._unsaid: dict[int, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        level, now_s = record.levelno, time.monotonic()
        with self._lock:
            if now_s < self._said_s.get(level, float("-inf")) + self._every_s:
                self._unsaid[level] = self._unsaid.get(level, 0) + 1
                return False
            self._said_s[level] = now_s
            unsaid = self._unsaid.pop(level, 0)
        if unsaid:
            record.msg, record.args = f"{record.getMessage()} (and {unsaid} more such lines)", ()
        return True


logger = logging.getLogger(__name__)
logger.addFilter(Seldom())
