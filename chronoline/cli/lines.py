"""Lines of stdin, sent as they come: in batches, several under way, in bounded memory."""

from __future__ import annotations

import select
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Generic, Protocol, TypeVar

from chronoline.cli.output import count_of, print_to_stderr
from chronoline.cli.progress import Advance
from chronoline.core.errors import ChronolineError, InvalidInput

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_READ_BYTES = 256 * 1024


class LineSource(Protocol):
    """A binary stream that returns the available bytes, and waits only if there are none."""

    def read1(self, size: int, /) -> bytes: ...


class EagerSource:
    """A stream that calls a function before it waits for more."""

    def __init__(self, source: BufferedReader, before_wait: Callable[[], None]) -> None:
        self._source = source
        self._before_wait = before_wait

    def read1(self, size: int, /) -> bytes:
        if not self._has_come:
            self._before_wait()
        return self._source.read1(size)

    @property
    def _has_come(self) -> bool:
        try:
            ready, _, _ = select.select([self._source], [], [], 0)
        except (OSError, ValueError):
            return True  # it has no descriptor to poll
        return bool(ready)


def read_lines(
    source: LineSource, most_bytes: int, too_long: str
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Whole lines as they come, with the number of the first.

    Raises `InvalidInput` with `too_long` for a line of more than `most_bytes`, after those before it.
    """
    number, begun, begun_bytes = 1, list[bytes](), 0
    while data := source.read1(_READ_BYTES):
        ended, line_break, rest = data.rpartition(b"\n")
        if line_break:
            lines = b"".join([*begun, ended]).split(b"\n")
            yield from _up_to_long(number, lines, most_bytes, too_long)
            number, begun, begun_bytes = number + len(lines), [], 0
        begun.append(rest)
        begun_bytes += len(rest)
        if begun_bytes > most_bytes:
            break
    if begun_bytes:
        yield from _up_to_long(number, [b"".join(begun)], most_bytes, too_long)


def _up_to_long(
    number: int, lines: Sequence[bytes], most_bytes: int, too_long: str
) -> Iterator[tuple[int, Sequence[bytes]]]:
    long = next((index for index, line in enumerate(lines) if len(line) > most_bytes), None)
    if long is None:
        yield number, lines
        return
    if long:
        yield number, lines[:long]
    raise InvalidInput(f"line {number + long}: {too_long}")


@dataclass(slots=True)
class LineBatch(Generic[Item]):
    """Items of neighbouring lines."""

    first_line: int
    lines: int = 0
    size_bytes: int = 0
    items: list[Item] = field(default_factory=list)

    @property
    def last_line(self) -> int:
        return self.first_line + self.lines - 1


def batches(
    found: Iterator[tuple[int, Sequence[bytes]]],
    take: Callable[[bytes], Item | None],
    *,
    most_lines: int,
    most_bytes: int,
    item_bytes: int = 0,
) -> Iterator[LineBatch[Item]]:
    """Items that `take` makes of lines; None means no item. An item counts `item_bytes` besides its line.

    If `take` raises `InvalidInput`, so does this, with the line's number, after the batch before it.
    """
    for number, lines in found:
        batch = LineBatch[Item](number)
        for line in lines:
            size_bytes = len(line) + item_bytes
            if batch.lines >= most_lines or (
                batch.lines and batch.size_bytes + size_bytes > most_bytes
            ):
                yield batch
                batch = LineBatch(batch.last_line + 1)
            try:
                item = take(line)
            except InvalidInput as error:
                yield batch
                raise InvalidInput(f"line {batch.last_line + 1}: {error}") from error
            batch.lines += 1
            if item is not None:
                batch.items.append(item)
                batch.size_bytes += size_bytes
        yield batch


class LineWriter(ABC, Generic[Item, Answer]):
    """Batches under way, settled in order. Beyond the limit it waits for the oldest."""

    most_batches = sys.maxsize
    most_bytes = sys.maxsize
    verb: str
    """Such as `sent`."""
    noun: str
    """Such as `message`."""
    place: str
    """Such as `onto the timeline`."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._on_their_way: deque[tuple[LineBatch[Item], Future[Answer]]] = deque()
        self._bytes = 0
        self._is_broken = False
        self._done = 0

    @abstractmethod
    def begin(self, items: list[Item]) -> Future[Answer]:
        """Send items. Raises `ChronolineError` if they are refused at once."""

    @abstractmethod
    def settled(self, batch: LineBatch[Item], answer: Answer) -> int:
        """Processes the answer to a batch; returns the number of items that succeeded."""

    @abstractmethod
    def failed(self, batch: LineBatch[Item], error: ChronolineError) -> None:
        """Processes the failure of a whole batch; no more are sent."""

    @abstractmethod
    def failure(self) -> str | None:
        """The reason why not all lines were sent, if so, after the last answer."""

    @property
    def done(self) -> str:
        """The number of items that succeeded, with their noun."""
        return count_of(self._done, self.noun)

    def write(self, found: Iterator[LineBatch[Item]]) -> None:
        """Send batches. A bad line ends it when all before it are sent; so does a signal, which is raised.

        Raises `ChronolineError` if a line failed.
        """
        try:
            for batch in found:
                self._put(batch)
        except InvalidInput as error:
            self._finish()
            raise InvalidInput(f"{error}; before it {self.done} went {self.place}") from error
        except (KeyboardInterrupt, SystemExit):
            self._finish()
            print_to_stderr(f"chronoline: ended; {self.verb} {self.done}")
            raise
        self._finish()

    def settle_all(self) -> None:
        """Wait for all batches under way."""
        while self._on_their_way:
            self._settle()

    def _put(self, batch: LineBatch[Item]) -> None:
        if batch.items:
            self._begin(batch)
        while self._on_their_way and (
            len(self._on_their_way) > self.most_batches
            or self._bytes > self.most_bytes
            or self._on_their_way[0][1].done()
        ):
            self._settle()
        if self._is_broken:
            self._finish()

    def _finish(self) -> None:
        self.settle_all()
        if (failure := self.failure()) is not None:
            raise ChronolineError(failure)

    def _begin(self, batch: LineBatch[Item]) -> None:
        try:
            future = self.begin(batch.items)
        except ChronolineError as error:
            self._fail(batch, error)
        else:
            self._on_their_way.append((batch, future))
            self._bytes += batch.size_bytes

    def _settle(self) -> None:
        batch, future = self._on_their_way[0]
        try:
            answer = future.result()
        except ChronolineError as error:
            self._fail(batch, error)
        else:
            done = self.settled(batch, answer)
            self._done += done
            self._advance(done)
        self._on_their_way.popleft()
        self._bytes -= batch.size_bytes

    def _fail(self, batch: LineBatch[Item], error: ChronolineError) -> None:
        self._is_broken = True
        self.failed(batch, error)
