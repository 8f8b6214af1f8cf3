"""What librdkafka tells besides its answers: errors to whoever listens, and lines for the log.

While a server is away it says the same many times a second; here it is said now and then. What is new is
said at once: the clients of a process may be those of several clusters, each with a trouble of its own.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chronoline.runtime.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

SAY_EVERY_S = 10.0
_MOST_SPEAKERS = 500
_MOST_KINDS = 100
_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class _Speaker:
    """One client at one level and facility, and what was said of its lines."""

    said_s: float = float("-inf")
    unsaid: int = 0
    kinds: set[str] = field(default_factory=set)
    """Texts without the numbers in them, which are ports, times and counts."""

    def is_new(self, text: str) -> bool:
        """Whether such a line never came. One that comes in ever new words is not listened to for ever."""
        kind = _NUMBER.sub("", text)
        if kind in self.kinds or len(self.kinds) >= _MOST_KINDS:
            return False
        self.kinds.add(kind)
        return True


class Seldom(logging.Filter):
    """Lets a line through if it is new, or if its speaker said none for a while; says how many were not.

    Clients come and go: of many the first is forgotten, and is new again.
    """

    def __init__(self, every_s: float = SAY_EVERY_S) -> None:
        super().__init__()
        self._every_s = every_s
        self._lock = threading.Lock()
        self._speakers = BoundedCache[tuple[object, ...], _Speaker](_MOST_SPEAKERS)

    def filter(self, record: logging.LogRecord) -> bool:
        text, now_s = record.getMessage(), time.monotonic()
        with self._lock:
            speaker = self._speaker(record)
            if not speaker.is_new(text) and now_s < speaker.said_s + self._every_s:
                speaker.unsaid += 1
                return False
            speaker.said_s = now_s
            unsaid, speaker.unsaid = speaker.unsaid, 0
        if unsaid:
            record.msg, record.args = f"{text} (and {unsaid} more such lines)", ()
        return True

    def _speaker(self, record: logging.LogRecord) -> _Speaker:
        key = (record.levelno, *_client(record))
        speaker = self._speakers.get(key)
        if speaker is None:
            speaker = _Speaker()
            self._speakers.put(key, speaker)
        return speaker


def _client(record: logging.LogRecord) -> tuple[object, ...]:
    """The facility and the name of the client: librdkafka's binding gives them, and then the text."""
    match record.args:
        case (facility, name, _):
            return (facility, name)
    return ()


logger = logging.getLogger(__name__)
logger.addFilter(Seldom())


def error_callback(hear: Callable[[KafkaError], None]) -> Callable[[KafkaError], None]:
    """Calls a method as long as its object lives: a client in a cycle with its owner would outlive it."""
    method = weakref.WeakMethod(hear)

    def call(error: KafkaError) -> None:
        if alive := method():
            alive(error)

    return call
