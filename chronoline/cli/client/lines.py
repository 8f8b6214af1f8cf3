"""Sending what comes line by line: in batches, several on their way, in bounded memory."""

from __future__ import annotations

import json
import select
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import BufferedReader
from typing import NamedTuple, Protocol, cast

from chronoline.cli.client.broker import Broker
from chronoline.cli.client.options import When
from chronoline.cli.ending import cleaning_up_when_told_to_end, quiet_when_nobody_reads
from chronoline.cli.progress import Advance, showing
from chronoline.cli.quantities import count_of
from chronoline.cli.rendering import tell
from chronoline.client.aio import Outcomes, ToSend
from chronoline.client.sync import Client
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.message import Header
from chronoline.core.outcome import Refusal
from chronoline.wire.codes import failure_of

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
    as_json: bool,
) -> None:
    """A message for each line of stdin; what comes slowly is sent as it comes. Prints the id of each.

    Raises `ChronolineError` if some were not sent; each of them was told before.
    """
    model = ToSend(key=key, headers=headers, due=at.get("due"), delay=at.get("delay"))
    source = cast(BufferedReader, sys.stdin.buffer)
    with (
        quiet_when_nobody_reads(),
        broker.client(group=group) as client,
        ThreadPoolExecutor(_BATCHES_ON_THEIR_WAY) as threads,
        cleaning_up_when_told_to_end(),
        showing("sent") as advance,
    ):
        most_bytes = client.topic(topic).settings.largest_body_bytes
        sends = _Sends(client, threads, topic, model, advance, as_json=as_json)
        _send(sends, batches(_Patient(source, sends.settle_all), most_bytes))
        tell(f"sent {count_of(sends.done, 'message')}")


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


class _Patient:
    """A stream that settles what is on its way before it waits for more: who waits for ids gets them."""

    def __init__(self, source: BufferedReader, settle: Callable[[], None]) -> None:
        self._source = source
        self._settle = settle

    def read1(self, size: int, /) -> bytes:
        if not self._has_come:
            self._settle()
        return self._source.read1(size)

    @property
    def _has_come(self) -> bool:
        try:
            ready, _, _ = select.select([self._source], [], [], 0)
        except (OSError, ValueError):
            return True  # it cannot be asked
        return bool(ready)


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
        *,
        as_json: bool,
    ) -> None:
        self._client = client
        self._threads = threads
        self._topic = topic
        self._model = model
        self._advance = advance
        self._as_json = as_json
        self._on_their_way: deque[tuple[Batch, Future[Outcomes]]] = deque()
        self._not_sent = 0
        self._failed = False
        self.done = 0

    def put(self, batch: Batch) -> None:
        messages = [replace(self._model, body=line) for line in batch.lines]
        future = self._threads.submit(self._client.send_many, self._topic, messages)
        self._on_their_way.append((batch, future))
        while self._on_their_way and (
            len(self._on_their_way) > _BATCHES_ON_THEIR_WAY or self._on_their_way[0][1].done()
        ):
            self._settle()
        if self._failed:  # the broker is away, most likely
            self.finish()

    def settle_all(self) -> None:
        """Waits for all that are on their way."""
        while self._on_their_way:
            self._settle()

    def finish(self) -> None:
        """Waits for all. Raises `ChronolineError` once if some were not sent."""
        self.settle_all()
        if self._not_sent:
            not_sent, self._not_sent = count_of(self._not_sent, "line"), 0
            raise ChronolineError(
                f"{not_sent} refused or failed; {count_of(self.done, 'message')} sent"
            )

    def _settle(self) -> None:
        batch, future = self._on_their_way[0]
        try:
            outcomes = future.result()
        except ChronolineError as error:
            self._tell_failure(batch, error)
        else:
            self._tell_outcomes(batch, outcomes)
        self._on_their_way.popleft()

    def _tell_failure(self, batch: Batch, error: ChronolineError) -> None:
        """Of a batch of which nobody can say more."""
        self._failed = True
        self._not_sent += len(batch.lines)
        code, last_line = failure_of(error).code, batch.first_line + len(batch.lines) - 1
        if self._as_json:
            for line in range(batch.first_line, last_line + 1):
                _print_json(line=line, failed=code, reason=str(error))
        else:
            tell(f"lines {batch.first_line} to {last_line}: {error}")
        sys.stdout.flush()

    def _tell_outcomes(self, batch: Batch, outcomes: Outcomes) -> None:
        for line, outcome in enumerate(outcomes, batch.first_line):
            if outcome.refusal is not None:
                self._tell_refusal(line, outcome.refusal, outcome.reason)
            elif self._as_json:
                _print_json(line=line, id=outcome.id)
            else:
                print(outcome.id)
        sys.stdout.flush()
        done = len(outcomes) - len(outcomes.refused)
        self.done += done
        self._not_sent += len(outcomes.refused)
        self._advance(done)

    def _tell_refusal(self, line: int, refusal: Refusal, reason: str) -> None:
        if self._as_json:
            _print_json(line=line, refused=refusal.value, reason=reason)
        else:
            tell(f"line {line}: refused: {reason}")


def _print_json(**fields: object) -> None:
    print(json.dumps(fields, ensure_ascii=False))
