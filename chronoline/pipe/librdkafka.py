"""The log lines and error callbacks of librdkafka.

While a server is unreachable, librdkafka repeats its lines many times a second. A filter logs a repeated line
only every ten seconds. A new line is logged at once: the clients of a process may use several clusters, each
with its own problems.
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
    """The lines of one client at one level and facility."""

    said_s: float = float("-inf")
    unsaid: int = 0
    kinds: set[str] = field(default_factory=set)
    """The texts without their numbers, which are ports, times and counts."""

    def is_new(self, text: str) -> bool:
        """Whether no such line came before. After `_MOST_KINDS` different texts no line counts as new."""
        kind = _NUMBER.sub("", text)
        if kind in self.kinds or len(self.kinds) >= _MOST_KINDS:
            return False
        self.kinds.add(kind)
        return True


class RepeatFilter(logging.Filter):
    """Passes a line that is new, or whose speaker logged none for a while, with the number of lines dropped.

    It keeps a bounded number of speakers: the oldest is removed, and its lines count as new again.
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
    """The facility and the name of the client, which librdkafka's binding passes before the text."""
    match record.args:
        case (facility, name, _):
            return (facility, name)
    return ()


logger = logging.getLogger(__name__)
logger.addFilter(RepeatFilter())


def error_callback(hear: Callable[[KafkaError], None]) -> Callable[[KafkaError], None]:
    """Calls a method while its object lives: a strong reference would keep the owner of a client alive."""
    method = weakref.WeakMethod(hear)

    def call(error: KafkaError) -> None:
        if alive := method():
            alive(error)

    return call
