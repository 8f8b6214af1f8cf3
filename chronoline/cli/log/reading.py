"""`chronoline log read` and `chronoline log tail`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from chronoline.cli.ending import cleaning_up_when_told_to_end, quiet_when_nobody_reads
from chronoline.cli.log.lines import to_line
from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, open_log
from chronoline.cli.log.starts import parse_start
from chronoline.cli.quantities import count_of
from chronoline.core.errors import InvalidInput
from chronoline.log import Event, Log
from chronoline.log.contract import Head
from chronoline.runtime.clock import SystemClock


class OutputFormat(StrEnum):
    """What a line of the output is."""

    json = "json"
    values = "values"


Format = Annotated[
    OutputFormat,
    typer.Option("--format", help="A line for each event: all of it as JSON, or its plain value."),
]
OnePartition = Annotated[
    int | None, typer.Option(metavar="N", help="One partition; else all of them.")
]


def read(
    topic: TopicName,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="G", help="Read for a group, from where it is, and note its progress."
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
        int | None, typer.Option(min=0, metavar="N", help="End after so many events.")
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

    With --group and --partition it takes that partition alone, when no other
    reader of the group holds it. A sequence that is yet to come is waited
    for with --follow.

    A group's progress is noted after its events were printed, so each comes
    at least once. To take a few use --limit: what is in a pipe counts as
    printed, also if head takes only some of it.
    """
    if group is not None and start is not None:
        raise InvalidInput(
            "a group reads from where it is: without --from; `chronoline log seek` sets where it goes on"
        )
    begin = None if start is None else parse_start(start, "--from", SystemClock().now_ms())
    with open_log(place) as log, cleaning_up_when_told_to_end(), quiet_when_nobody_reads():
        events = log.read(
            topic, group=group, partition=partition, start=begin, follow=follow, limit=limit
        )
        printed = _show(events, output, at_once=follow or group is not None)
        if group is not None and printed != limit:
            _tell_what_is_left(log, topic, group, partition)
        elif isinstance(begin, int) and not printed and limit != 0:
            _tell_of_the_end(log, topic, partition, begin)


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
    with open_log(place) as log, cleaning_up_when_told_to_end(), quiet_when_nobody_reads():
        _show(tailed(log, topic, partition, last), output, at_once=True)


def tailed(log: Log, topic: str, partition: int | None, last: int) -> Generator[Event]:
    """The last events of each partition, then all that come; those that come meanwhile once."""
    heads = [head for head in log.heads(topic) if partition in (None, head.partition)]
    following = log.read(topic, partition=partition, start="latest")
    return _last_and_following(log, topic, heads, last, following)


def _last_and_following(
    log: Log, topic: str, heads: Sequence[Head], last: int, following: Iterator[Event]
) -> Generator[Event]:
    """`following` begins behind the heads; what lies between is read before it."""
    shown = {head.partition: head.next_sequence for head in heads}
    for head in heads:
        first = max(head.first_sequence, head.next_sequence - last)
        for event in log.read(topic, partition=head.partition, start=first, follow=False):
            yield event
            shown[event.partition] = event.sequence + 1
    yield from (event for event in following if event.sequence >= shown[event.partition])


def _show(events: Generator[Event], output: OutputFormat, *, at_once: bool) -> int:
    """Prints events; answers how many. What is to be noted was flushed before the next is asked for."""
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
    return (event.value or b"") + b"\n"


def _tell_what_is_left(log: Log, topic: str, group: str, partition: int | None) -> None:
    states = [each for each in log.groups(topic) if partition in (None, each.partition)]
    left = sum(each.lag for each in states if each.group == group)
    if left:
        _tell(
            f"{count_of(left, 'event')} left to other readers of the group, or until their holds end: see "
            f"`chronoline log groups {topic}`"
        )


def _tell_of_the_end(log: Log, topic: str, partition: int | None, begin: int) -> None:
    """Where nothing was printed because there is no such sequence yet."""
    ends = [head.next_sequence for head in log.heads(topic) if partition in (None, head.partition)]
    if begin > max(ends):
        _tell(f"there is no sequence {begin} yet: the next event gets {max(ends)} at most")


def _tell(what: str) -> None:
    Console(stderr=True).print(f"chronoline: {what}", markup=False, highlight=False, soft_wrap=True)
