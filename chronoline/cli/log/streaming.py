"""Appending what comes line by line: in batches, several on their way, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console

from chronoline.cli.progress import Advance
from chronoline.cli.quantities import count_of
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.log import Log, NewEvent, Position

MAX_LINE_BYTES = 128 << 20
"""Room for the largest value, also if JSON escapes all of it."""
_READ_BYTES = 256 << 10
_BATCH_BYTES = 1 << 20
_BYTES_ON_THEIR_WAY = 8 << 20
_EVENT_BYTES = 200
"""What an event takes besides its line, roughly."""

Take = Callable[[bytes], NewEvent | None]
"""Makes an event of a line, or nothing; raises `InvalidInput`."""


class Source(Protocol):
    """A binary stream that answers what has come, and waits only if that is nothing."""

    def read1(self, size: int, /) -> bytes: ...


@dataclass(slots=True)
class Batch:
    """Events of neighbouring lines."""

    first_line: int
    lines: int = 0
    size_bytes: int = 0
    events: list[NewEvent] = field(default_factory=list)

    @property
    def next_line(self) -> int:
        return self.first_line + self.lines


def append_lines(log: Log, topic: str, source: Source, take: Take, advance: Advance) -> int:
    """Appends an event for each line; answers how many. What comes slowly is appended as it comes.

    At a bad line it stops, when everything before it is appended.
    """
    appends = _Appends(log, topic, advance)
    try:
        for batch in batches(source, take):
            appends.put(batch)
    except InvalidInput as error:
        appends.finish()
        before = count_of(appends.done, "event")
        raise InvalidInput(f"{error}; before it {before} went into the log") from error
    except (KeyboardInterrupt, SystemExit):
        appends.finish()
        Console(stderr=True).print(f"chronoline: ended; appended {count_of(appends.done, 'event')}")
        raise
    appends.finish()
    return appends.done


def batches(source: Source, take: Take) -> Iterator[Batch]:
    """What the lines hold. Raises `InvalidInput` with the line's number, after all that is before it."""
    for number, lines in _numbered(source):
        batch = Batch(number)
        for line in lines:
            try:
                event = take(line)
            except InvalidInput as error:
                yield batch
                raise InvalidInput(f"line {batch.next_line}: {error}") from error
            batch.lines += 1
            if event is not None:
                batch.events.append(event)
                batch.size_bytes += len(line) + _EVENT_BYTES
            if batch.size_bytes >= _BATCH_BYTES:
                yield batch
                batch = Batch(batch.next_line)
        yield batch


def _numbered(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """Whole lines as they come, with the number of the first."""
    number, begun, begun_bytes = 1, list[bytes](), 0
    while data := source.read1(_READ_BYTES):
        ended, line_break, rest = data.rpartition(b"\n")
        if line_break:
            lines = b"".join([*begun, ended]).split(b"\n")
            yield number, lines
            number, begun, begun_bytes = number + len(lines), [], 0
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > MAX_LINE_BYTES:
            raise InvalidInput(f"line {number}: it has more than {MAX_LINE_BYTES} bytes")
    if begun_bytes:
        yield number, [b"".join(begun)]


class _Appends:
    """Batches on their way. The oldest is waited for when they are too many bytes."""

    def __init__(self, log: Log, topic: str, advance: Advance) -> None:
        self._log = log
        self._topic = topic
        self._advance = advance
        self._on_their_way: deque[tuple[Batch, Future[list[Position]]]] = deque()
        self._bytes = 0
        self._failure: str | None = None
        self.done = 0

    def put(self, batch: Batch) -> None:
        if batch.events:
            self._begin(batch)
        while self._on_their_way and (
            self._bytes > _BYTES_ON_THEIR_WAY or self._on_their_way[0][1].done()
        ):
            self._settle()
        if self._failure:
            self.finish()

    def finish(self) -> None:
        """Waits for all. If some failed, says which, and how many did not."""
        while self._on_their_way:
            self._settle()
        if self._failure:
            others = count_of(self.done, "event")
            raise ChronolineError(f"{self._failure}; of other lines {others} went into the log")

    def _begin(self, batch: Batch) -> None:
        try:
            future = self._log.append_later(self._topic, batch.events)
        except ChronolineError as error:
            self._failed(batch, error)
        else:
            self._on_their_way.append((batch, future))
            self._bytes += batch.size_bytes

    def _settle(self) -> None:
        batch, future = self._on_their_way[0]
        try:
            count = len(future.result())
        except ChronolineError as error:
            self._failed(batch, error)
        else:
            self.done += count
            self._advance(count)
        self._on_their_way.popleft()
        self._bytes -= batch.size_bytes

    def _failed(self, batch: Batch, error: ChronolineError) -> None:
        failure = f"lines {batch.first_line} to {batch.next_line - 1}: {error}"
        self._failure = self._failure or failure
