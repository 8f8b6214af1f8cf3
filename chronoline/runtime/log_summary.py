"""One log line for an event that many messages, requests or peers share.

The first event of a kind is logged at once. Further ones are counted, and get one line a second: the text of
the first of them as an example, and the number of the others. So a flood of an event costs neither the disk
nor the reader more than a line a second, and a single event is not delayed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EVERY_S = 1.0


@dataclass(slots=True)
class _Line:
    level: int
    text: str
    arguments: tuple[object, ...]
    fields: dict[str, object]
    count: int


@dataclass(slots=True)
class _Kind:
    """The lines of one action."""

    free_s: float
    """The moment from which the next line can be written."""
    held: _Line | None = None
    """The events since the last line. A timer writes them."""


def _later(wait_s: float, function: Callable[[], None]) -> None:
    timer = threading.Timer(wait_s, function)
    timer.daemon = True
    timer.start()


class LogSummary:
    """The lines of a logger, at most one a second for each action. For any thread; make one for a module."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        every_s: float = EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] = _later,
    ) -> None:
        """`later` calls a function after a time in seconds."""
        self._logger = logger
        self._every_s = every_s
        self._monotonic = monotonic
        self._later = later
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}
        atexit.register(self.flush)

    def warning(
        self, action: str, text: str, *arguments: object, count: int = 1, **fields: object
    ) -> None:
        """As `logger.warning`. `count` is the number of events that this call reports.

        `action` is the kind of the event, a constant; `fields` are further fields, such as the topic.
        """
        self.log(logging.WARNING, action, text, *arguments, count=count, **fields)

    def info(
        self, action: str, text: str, *arguments: object, count: int = 1, **fields: object
    ) -> None:
        """As `warning`."""
        self.log(logging.INFO, action, text, *arguments, count=count, **fields)

    def log(
        self,
        level: int,
        action: str,
        text: str,
        *arguments: object,
        count: int = 1,
        **fields: object,
    ) -> None:
        """As `warning`, with a level of `logging`."""
        line = _Line(level, text, arguments, {**fields, "action": action}, count)
        with self._lock:
            now_s = self._monotonic()
            kind = self._kinds.setdefault(action, _Kind(free_s=now_s))
            if kind.held is not None:
                kind.held.count += count
                return
            if now_s < kind.free_s:
                kind.held = line
                self._later(kind.free_s - now_s, lambda: self._end_of_window(action))
                return
            kind.free_s = now_s + self._every_s
        self._write(line)

    def flush(self) -> None:
        """Writes what is counted and not yet written."""
        for action in tuple(self._kinds):
            self._end_of_window(action)

    def _end_of_window(self, action: str) -> None:
        with self._lock:
            kind = self._kinds[action]
            line, kind.held = kind.held, None
            if line is None:
                return
            kind.free_s = self._monotonic() + self._every_s
        self._write(line)

    def _write(self, line: _Line) -> None:
        text, arguments = line.text, line.arguments
        if line.count > 1:
            text, arguments = f"{text} (and %d more like this)", (*arguments, line.count - 1)
        extra: dict[str, Any] = {**line.fields, "count": line.count}
        self._logger.log(line.level, text, *arguments, extra=extra)
