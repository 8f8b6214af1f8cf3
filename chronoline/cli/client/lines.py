"""Sending what comes line by line: in batches, several on their way, in bounded memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import BufferedReader
from typing import NamedTuple, Protocol, cast

from chronoline.cli.client.broker import Broker
from chronoline.cli.client.options import When
from chronoline.cli.ending import cleaning_up_when_told_to_end
from chronoline.cli.progress import Advance, showing
from chronoline.cli.quantities import count_of
from chronoline.cli.rendering import tell
from chronoline.client.aio import Outcomes, ToSend
from chronoline.client.sync import Client
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.message import Header

_READ_BYTES = 256 * 1024
_BATCH_LINES = 1_000
_BATCH_BYTES = 512 * 1024
_BATCHES_ON_THEIR_WAY = 4


class Source(Protocol):
    """A binary stream that answers what has come, and waits only if that is nothing."""

    def read1(self, size: int, /) -> bytes: ...


class Batch(NamedTuple):
    """Neighbouring lines."""

    first_line: int
    lines: Sequence[bytes]


def send_lines(
    broker: Broker,
    topic: str,
    at: When,
    *,
    key: bytes | None,
    headers: Sequence[Header],
    group: str,
) -> None:
    """A message for each line of stdin; what comes slowly is sent as it comes. Tells how many were sent.

    Raises `ChronolineError` with what was not sent.
    """
    model = ToSend(key=key, headers=headers, due=at.get("due"), delay=at.get("delay"))
    source = cast(BufferedReader, sys.stdin.buffer)
    with (
        broker.client(group=group) as client,
        ThreadPoolExecutor(_BATCHES_ON_THEIR_WAY) as threads,
        cleaning_up_when_told_to_end(),
        showing("sent") as advance,
    ):
        most_bytes = client.topic(topic).settings.largest_body_bytes
        sends = _Sends(client, threads, topic, model, advance)
        _send(sends, batches(source, most_bytes))
    print(f"sent {count_of(sends.done, 'message')}")


def _send(sends: _Sends, found: Iterator[Batch]) -> None:
    try:
        for batch in found:
            sends.put(batch)
    except InvalidInput as error:
        sends.finish()
        before = count_of(sends.done, "message")
        raise InvalidInput(f"{error}; before it {before} went onto the timeline") from None
    except (KeyboardInterrupt, SystemExit):
        sends.finish()
        tell(f"chronoline: ended; sent {count_of(sends.done, 'message')}")
        raise
    sends.finish()


def batches(source: Source, most_bytes: int) -> Iterator[Batch]:
    """Whole lines as they come. Raises `InvalidInput` for one that is too long, after those before it."""
    number, begun = 1, b""
    while data := source.read1(_READ_BYTES):
        *lines, begun = (begun + data).split(b"\n")
        yield from _portions(number, lines, most_bytes)
        number += len(lines)
        if len(begun) > most_bytes:
            break
    if begun:
        yield from _portions(number, [begun], most_bytes)


def _portions(number: int, lines: Sequence[bytes], most_bytes: int) -> Iterator[Batch]:
    portion: list[bytes] = []
    size_bytes = 0
    for line in lines:
        full = len(portion) >= _BATCH_LINES or size_bytes + len(line) > _BATCH_BYTES
        too_long = len(line) > most_bytes
        if portion and (full or too_long):
            yield Batch(number, portion)
            number += len(portion)
            portion, size_bytes = [], 0
        if too_long:
            raise InvalidInput(
                f"line {number}: it has more than {most_bytes:,} bytes, which are the most on this topic"
            )
        portion.append(line)
        size_bytes += len(line)
    if portion:
        yield Batch(number, portion)


class _Sends:
    """Batches on their way. The oldest is waited for when they are too many."""

    def __init__(
        self,
        client: Client,
        threads: ThreadPoolExecutor,
        topic: str,
        model: ToSend,
        advance: Advance,
    ) -> None:
        self._client = client
        self._threads = threads
        self._topic = topic
        self._model = model
        self._advance = advance
        self._on_their_way: deque[tuple[Batch, Future[Outcomes]]] = deque()
        self._failure: str | None = None
        self._refused = 0
        self.done = 0

    def put(self, batch: Batch) -> None:
        messages = [replace(self._model, body=line) for line in batch.lines]
        future = self._threads.submit(self._client.send_many, self._topic, messages)
        self._on_their_way.append((batch, future))
        while self._on_their_way and (
            len(self._on_their_way) > _BATCHES_ON_THEIR_WAY or self._on_their_way[0][1].done()
        ):
            self._settle()
        if self._failure and not self._refused:  # the broker is away, most likely
            self.finish()

    def finish(self) -> None:
        """Waits for all. If some were not sent, says which, and how many were."""
        while self._on_their_way:
            self._settle()
        if self._failure:
            failure, self._failure = self._failure, None
            others = self._refused - 1
            more = f"; and {count_of(others, 'more line')}" if others > 0 else ""
            raise ChronolineError(f"{failure}{more}; {count_of(self.done, 'message')} were sent")

    def _settle(self) -> None:
        batch, future = self._on_their_way[0]
        try:
            outcomes = future.result()
        except ChronolineError as error:
            last = batch.first_line + len(batch.lines) - 1
            self._failure = self._failure or f"lines {batch.first_line} to {last}: {error}"
        else:
            self._count(batch, outcomes)
        self._on_their_way.popleft()

    def _count(self, batch: Batch, outcomes: Outcomes) -> None:
        for place, outcome in enumerate(outcomes):
            if not outcome.done:
                self._refused += 1
                line = batch.first_line + place
                self._failure = self._failure or f"line {line}: refused: {outcome.reason}"
        done = len(outcomes) - len(outcomes.refused)
        self.done += done
        self._advance(done)
