"""What librdkafka tells besides its answers: errors to whoever listens, and lines for the log.

While a server is away it says the same many times a second; here it is said now and then.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

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


def error_callback(hear: Callable[[KafkaError], None]) -> Callable[[KafkaError], None]:
    """Calls a method as long as its object lives: a client in a cycle with its owner would outlive it."""
    method = weakref.WeakMethod(hear)

    def call(error: KafkaError) -> None:
        if alive := method():
            alive(error)

    return call
