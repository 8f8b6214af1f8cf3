"""`chronoline log append`: one event, or as many as there are lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from io import BufferedReader
from typing import Annotated, cast

import typer

from chronoline.cli.ending import cleaning_up_when_told_to_end
from chronoline.cli.log.lines import from_line
from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, open_log
from chronoline.cli.log.streaming import append_lines
from chronoline.cli.progress import showing
from chronoline.cli.quantities import count_of
from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header
from chronoline.log import Log, NewEvent
from chronoline.log.events import check_event


class InputFormat(StrEnum):
    """What a line of the input is."""

    json = "json"
    lines = "lines"


def append(
    topic: TopicName,
    value: Annotated[
        str | None,
        typer.Argument(metavar="VALUE|-", help="The value, or - for lines from stdin."),
    ] = None,
    *,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Events of a key share a partition.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="The partition; else the key decides.")
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option("--format", help="Lines from stdin: events as JSON, or plain values."),
    ] = InputFormat.json,
    repartition: Annotated[
        bool,
        typer.Option("--repartition", help="Pass over the partitions that JSON lines name."),
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
    The options stand for what a line does not say. It answers when the
    events are durable; a bad line ends it after those before.
    """
    model = NewEvent(
        value=None,
        key=None if key is None else os.fsencode(key),
        headers=tuple(map(_header, header or [])),
        partition=partition,
    )
    if value is None and sys.stdin.isatty():
        raise InvalidInput("give a value, or - to append the lines of stdin")
    with open_log(place) as log:
        if value is None or value == "-":
            take = _taker(log, topic, model, input_format, repartition)
            source = cast(BufferedReader, sys.stdin.buffer)
            with cleaning_up_when_told_to_end(), showing("appended") as advance:
                count = append_lines(log, topic, source, take, advance)
            print(f"appended {count_of(count, 'event')}")
        else:
            event = replace(model, value=os.fsencode(value))
            (position,) = log.append_many(topic, [event])
            print(f"partition {position.partition}, sequence {position.sequence}")


def _taker(
    log: Log, topic: str, model: NewEvent, input_format: InputFormat, repartition: bool
) -> Callable[[bytes], NewEvent | None]:
    """What makes an event of a line; where a line says nothing of a field, the model's stands."""
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


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"header {text!r} is not of the form name=value")
    return name, os.fsencode(value)
