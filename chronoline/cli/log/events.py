"""`chronoline log append`, `read` and `tail`: events, in and out.

As JSON an event is a line, the same way out and in. Bytes that are UTF-8 are text, and no bytes are null. Any
other bytes are `{"base64": "…"}` in the place of the text, so that an event can be appended byte for byte.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from io import BufferedReader
from typing import Annotated, Any, cast

import typer

from chronoline.cli.lines import LineBatch, LineSource, LineWriter, batches, read_lines
from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, parse_start
from chronoline.cli.options import MessageHeaders, TopicName, parse_header
from chronoline.cli.output import (
    count_of,
    for_stdout,
    json_line,
    print_to_stderr,
    quiet_when_nobody_reads,
)
from chronoline.cli.progress import Advance, showing
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.message import Header
from chronoline.log import Event, Log, NewEvent, Position
from chronoline.log.contract import Head
from chronoline.log.events import check_event
from chronoline.log.place import open_log
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.json_bytes import json_bytes, json_headers, parse_json_bytes
from chronoline.runtime.signals import exit_on_sigterm
from chronoline.runtime.timestamps import parse_moment_ms, show_moment

MAX_LINE_BYTES = 128 << 20
"""The longest line: the largest value, with all of it escaped in JSON."""
_BATCH_BYTES = 1 << 20
_EVENT_BYTES = 200
"""The approximate size of an event besides its line."""
_TAKEN = ("key", "value", "headers", "partition", "ts")
_IGNORED = ("topic", "sequence")
"""Fields of a read event that are ignored when it is appended."""


class InputFormat(StrEnum):
    """The format of a line of the input."""

    json = "json"
    lines = "lines"


class OutputFormat(StrEnum):
    """The format of a line of the output."""

    json = "json"
    values = "values"


Format = Annotated[
    OutputFormat,
    typer.Option("--format", help="A line for each event: all of it as JSON, or its plain value."),
]
OnePartition = Annotated[
    int | None, typer.Option(metavar="N", help="One partition; by default all.")
]


# Appending


def append(
    topic: TopicName,
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE|-", help="The value, or - for lines from stdin."),
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Events with the same key share a partition.")
    ] = None,
    header: MessageHeaders = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="The partition; else the key decides.")
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option("--format", help="Lines from stdin: events as JSON, or plain values."),
    ] = InputFormat.json,
    repartition: Annotated[
        bool,
        typer.Option("--repartition", help="Ignore the partitions that JSON lines name."),
    ] = False,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Append an event, or one for each line from stdin.

    chronoline log append orders hello --key user-1 --header trace=7f3a
    seq 1000 | chronoline log append numbers - --format lines
    chronoline log read orders | chronoline log append copies -

    A line of JSON has a value, and may have key, headers, partition and ts
    (RFC 3339 with a zone, or milliseconds since 1970):

    {"key": "user-1", "value": "one", "headers": \\[["trace", "7f3a"]]}

    Bytes that are not UTF-8 are {"base64": "…"} in the place of the text.
    The options apply to fields that a line lacks. The command returns when
    the events are durable; a bad line ends it after the lines before it.
    """
    model = NewEvent(
        value=None,
        key=None if key is None else os.fsencode(key),
        headers=tuple(map(parse_header, header or [])),
        partition=partition,
    )
    if value is None and sys.stdin.isatty():
        raise InvalidInput("give a value, or - to append the lines of stdin")
    with open_log(place) as log:
        if value is None or value == "-":
            take = _taker(log, topic, model, input_format, repartition)
            source = cast(BufferedReader, sys.stdin.buffer)
            with exit_on_sigterm(), showing("appended") as advance:
                appended = append_lines(log, topic, source, take, advance)
            print(f"appended {appended}")
        else:
            event = replace(model, value=os.fsencode(value))
            (position,) = log.append_many(topic, [event])
            print(f"partition {position.partition}, sequence {position.sequence}")


def _taker(
    log: Log, topic: str, model: NewEvent, input_format: InputFormat, repartition: bool
) -> Take:
    """A function that makes an event of a line; the model has the fields that a line lacks."""
    partitions = log.topic(topic).partitions
    check_event(model, partitions)

    def take_value(line: bytes) -> NewEvent | None:
        event = replace(model, value=line)
        check_event(event, partitions)
        return event

    def take_json(line: bytes) -> NewEvent | None:
        if not line.strip():
            return None
        event = from_line(line)
        named = None if repartition else event.partition
        event = replace(
            event,
            key=model.key if event.key is None else event.key,
            headers=event.headers or model.headers,
            partition=model.partition if named is None else named,
        )
        check_event(event, partitions)
        return event

    return take_json if input_format is InputFormat.json else take_value


Take = Callable[[bytes], NewEvent | None]
"""Makes an event of a line, or nothing; raises `InvalidInput`."""


def append_lines(log: Log, topic: str, source: LineSource, take: Take, advance: Advance) -> str:
    """Append an event for each line as it comes; returns their number, as text.

    At a bad line it stops, when all lines before it are appended.
    """
    appends = Appends(log, topic, advance)
    appends.write(event_batches(source, take))
    return appends.done


def event_batches(source: LineSource, take: Take) -> Iterator[LineBatch[NewEvent]]:
    found = read_lines(source, MAX_LINE_BYTES, f"it has more than {MAX_LINE_BYTES} bytes")
    return batches(
        found, take, most_lines=sys.maxsize, most_bytes=_BATCH_BYTES, item_bytes=_EVENT_BYTES
    )


class Appends(LineWriter[NewEvent, list[Position]]):
    """Batches of events under way into a log."""

    most_bytes = 8 << 20
    verb, noun, place = "appended", "event", "into the log"

    def __init__(self, log: Log, topic: str, advance: Advance) -> None:
        super().__init__(advance)
        self._log = log
        self._topic = topic
        self._failure: str | None = None

    def begin(self, items: list[NewEvent]) -> Future[list[Position]]:
        return self._log.append_later(self._topic, items)

    def settled(self, batch: LineBatch[NewEvent], answer: list[Position]) -> int:
        return len(answer)

    def failed(self, batch: LineBatch[NewEvent], error: ChronolineError) -> None:
        self._failure = self._failure or f"lines {batch.first_line} to {batch.last_line}: {error}"

    def failure(self) -> str | None:
        if self._failure is None:
            return None
        return f"{self._failure}; of other lines {self.done} went into the log"


def from_line(line: bytes) -> NewEvent:
    """The event of a line. Raises `InvalidInput` with the problem."""
    fields = _fields(line)
    if "value" not in fields:
        raise InvalidInput("value is missing; it may be null")
    return NewEvent(
        value=parse_json_bytes(fields["value"], "value"),
        key=parse_json_bytes(fields.get("key"), "key"),
        headers=_headers(fields.get("headers") or []),
        partition=fields.get("partition"),
        ts=_ts(fields.get("ts")),
    )


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.decode())
    except json.JSONDecodeError as error:
        place = f"{error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1}"
        raise InvalidInput(f"not JSON: {place}; --format lines takes plain values") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}; --format lines takes plain values") from error
    if not isinstance(fields, dict):
        raise InvalidInput(
            'not a JSON object such as {"key": "k", "value": "v"}; --format lines takes plain values'
        )
    unknown = [name for name in fields if name not in _TAKEN + _IGNORED]
    if unknown:
        raise InvalidInput(f"field {unknown[0]!r} is none of {', '.join(_TAKEN)}")
    return fields


def _headers(found: object) -> tuple[Header, ...]:
    if not isinstance(found, list):
        raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    headers: list[Header] = []
    for pair in found:
        match pair:
            case [str(name), value]:
                headers.append((name, parse_json_bytes(value, f"header {name!r}")))
            case _:
                raise InvalidInput('headers must be pairs such as [["name", "value"]]')
    return tuple(headers)


def _ts(found: Any) -> Any:
    """Parses a time as text; anything else is checked with the event."""
    return parse_moment_ms(found, "ts") if isinstance(found, str) else found


# Reading


def read(
    topic: TopicName,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="G", help="Read for a group, from its progress, and store its progress."
        ),
    ] = None,
    partition: OnePartition = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="earliest, latest, a sequence, a time such as 2026-01-31T12:00:00Z, or -10m.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="End after this number of events.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")
    ] = False,
    output: Format = OutputFormat.json,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Print the events of a topic, those of a partition in their sequence.

    chronoline log read orders --from -10m
    chronoline log read orders --partition 3 --from 1200 --limit 10
    chronoline log read orders --group billing --follow

    A line of JSON has topic, partition, sequence, ts, key, value and
    headers, and can be appended as it is. Bytes that are not UTF-8 are
    {"base64": "…"} in the place of the text.

    With --group and --partition it reads only that partition, when no other
    reader of the group holds it. With --follow it waits for a sequence that
    does not exist yet.

    A group's progress is stored after its events were printed, so each comes
    at least once. To read a few events use --limit: events in a shell pipe
    count as printed, even if `head` reads only some of them.
    """
    if group is not None and start is not None:
        raise InvalidInput(
            "a group reads from its progress, without --from; `chronoline log seek` sets the progress"
        )
    begin = None if start is None else parse_start(start, "--from", SystemClock().now_ms())
    with open_log(place) as log, exit_on_sigterm(), quiet_when_nobody_reads():
        events = log.read(
            topic, group=group, partition=partition, start=begin, follow=follow, limit=limit
        )
        printed = _show(events, output, at_once=follow or group is not None)
        if group is not None and printed != limit:
            _print_left_events(log, topic, group, partition)
        elif isinstance(begin, int) and not printed and limit != 0:
            _print_missing_sequence(log, topic, partition, begin)


def tail(
    topic: TopicName,
    *,
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", min=0, metavar="N", help="First the last N of each partition."
        ),
    ] = 0,
    partition: OnePartition = None,
    output: Format = OutputFormat.json,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Print events as they are appended, until Ctrl-C.

    chronoline log tail orders --last 5
    """
    with open_log(place) as log, exit_on_sigterm(), quiet_when_nobody_reads():
        _show(tailed(log, topic, partition, last), output, at_once=True)


def tailed(log: Log, topic: str, partition: int | None, last: int) -> Generator[Event]:
    """The last events of each partition, then all new ones; each once."""
    heads = [head for head in log.heads(topic) if partition in (None, head.partition)]
    following = log.read(topic, partition=partition, start="latest")
    return _last_and_following(log, topic, heads, last, following)


def _last_and_following(
    log: Log, topic: str, heads: Sequence[Head], last: int, following: Iterator[Event]
) -> Generator[Event]:
    """`following` begins after the heads; events before them are read first."""
    shown = {head.partition: head.next_sequence for head in heads}
    for head in heads:
        first = max(head.first_sequence, head.next_sequence - last)
        for event in log.read(topic, partition=head.partition, start=first, follow=False):
            yield event
            shown[event.partition] = event.sequence + 1
    yield from (event for event in following if event.sequence >= shown[event.partition])


def _show(events: Generator[Event], output: OutputFormat, *, at_once: bool) -> int:
    """Print events; returns their number. Progress is stored after the flush, with the next event."""
    render: Callable[[Event], bytes] = to_line if output is OutputFormat.json else _value_line
    out, printed = sys.stdout.buffer, 0
    with closing(events):
        for event in events:
            out.write(render(event))
            if at_once:
                out.flush()
            printed += 1
    return printed


def _value_line(event: Event) -> bytes:
    return for_stdout(event.value or b"") + b"\n"


def _print_left_events(log: Log, topic: str, group: str, partition: int | None) -> None:
    states = [each for each in log.groups(topic) if partition in (None, each.partition)]
    left = sum(each.lag for each in states if each.group == group)
    if left:
        print_to_stderr(
            f"chronoline: {count_of(left, 'event')} left to other readers of the group, or until their holds "
            f"end: see `chronoline log groups {topic}`"
        )


def _print_missing_sequence(log: Log, topic: str, partition: int | None, begin: int) -> None:
    """Explain that nothing was printed because the sequence does not exist yet."""
    ends = [head.next_sequence for head in log.heads(topic) if partition in (None, head.partition)]
    if begin > max(ends):
        print_to_stderr(
            f"chronoline: there is no sequence {begin} yet: the next event gets {max(ends)} at most"
        )


def to_line(event: Event) -> bytes:
    """One event, with its line break."""
    fields = {
        "topic": event.topic,
        "partition": event.partition,
        "sequence": event.sequence,
        "ts": show_moment(event.ts),
        "key": json_bytes(event.key),
        "value": json_bytes(event.value),
        "headers": json_headers(event.headers),
    }
    return json_line(fields)
