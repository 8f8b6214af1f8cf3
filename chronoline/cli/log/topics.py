"""`chronoline log`: creates, lists, moves and deletes topics and groups."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.log.place import DEFAULT_FOLDER, GroupName, LogPlace, parse_start
from chronoline.cli.options import TopicName, Yes, confirm
from chronoline.cli.output import count_of, print_table
from chronoline.core.errors import TopicExists, TopicNotFound
from chronoline.log import GroupNotFound, GroupProgress, Log
from chronoline.log.contract import Head
from chronoline.log.factory import prepare, url_of
from chronoline.log.factory import template as template_of
from chronoline.log.log import DEFAULT_PARTITIONS
from chronoline.log.place import open_log
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment

AsJson = Annotated[bool, typer.Option("--json", help="One JSON array instead of a table.")]


# Set-up


def init(
    place: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="CHRONOLINE_LOG",
            help="The place of events: a folder, s3://bucket/prefix, gs://… or az://…",
        ),
    ] = DEFAULT_FOLDER,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where their order is kept: postgresql://…, dynamodb://table, or sqlite:////file. "
            "A folder has its own.",
        ),
    ] = None,
    template: Annotated[
        bool,
        typer.Option("--template", help="Create nothing; print a template for CloudFormation."),
    ] = False,
) -> None:
    """Set up a log, and print the string that names it.

    chronoline log init
    chronoline log init s3://bucket/events --index dynamodb://events
    chronoline log init s3://bucket/events --index dynamodb://events --template

    It creates the folder or the bucket, and the tables; existing ones stay
    unchanged. The string goes to stdout, the next commands to stderr.
    """
    if template:
        print(template_of(url_of(place), index))
        return
    name = prepare(url_of(place), index)
    print(name)
    no_need = "A folder needs no set-up, but is there now. " if _is_plain_folder(name) else ""
    typer.echo(
        f"\n{no_need}The log is ready, and the line above names it. Next:\n\n"
        f"  export CHRONOLINE_LOG={shlex.quote(name)}\n"
        "  chronoline log create orders\n"
        "  chronoline log append orders hello\n"
        "  chronoline log read orders",
        err=True,
    )


def create(
    topic: TopicName,
    partitions: Annotated[
        int, typer.Option(metavar="N", help="The most readers of a group that can share it.")
    ] = DEFAULT_PARTITIONS,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave an existing topic unchanged.")
    ] = False,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Create a topic. A folder needs no set-up before it.

    chronoline log create orders --partitions 16
    """
    with Log(url_of(place)) as log:
        try:
            made = log.create_topic(topic, partitions=partitions)
        except TopicExists:
            if not if_missing:
                raise
            made = log.topic(topic)
    print(f"{made.name!r} has {count_of(made.partitions, 'partition')}")


def _is_plain_folder(name: str) -> bool:
    return name.startswith("file:") and "?" not in name


# Lists


def topics(as_json: AsJson = False, place: LogPlace = DEFAULT_FOLDER) -> None:
    """List the topics, and the number of their events.

    chronoline log topics
    """
    heads: dict[str, Sequence[Head]] = {}
    with open_log(place) as log:
        for topic in log.topics():
            with suppress(TopicNotFound):  # it is deleted meanwhile
                heads[topic.name] = log.heads(topic.name)
    if as_json:
        print(json.dumps([_topic_json(name, each) for name, each in heads.items()], indent=2))
    elif heads:
        print_table(_topic_table(heads))
    else:
        print("There are no topics yet: `chronoline log create TOPIC` makes one.")


def groups(topic: TopicName, as_json: AsJson = False, place: LogPlace = DEFAULT_FOLDER) -> None:
    """List the groups that read a topic: their progress, and the holder of each partition.

    chronoline log groups orders
    """
    with open_log(place) as log:
        found = log.groups(topic)
    if as_json:
        print(json.dumps([_group_json(each) for each in found], indent=2))
    elif found:
        print_table(_group_table(found, SystemClock().now_ms()))
    else:
        print(f"No group reads {topic!r} yet: `chronoline log read {topic} --group G` makes one.")


def _topic_json(name: str, heads: Sequence[Head]) -> dict[str, object]:
    partitions = [head._asdict() for head in heads]
    return {"topic": name, "events": _events(heads), "partitions": partitions}


def _topic_table(topics: Mapping[str, Sequence[Head]]) -> Table:
    table = Table(Column("topic", overflow="fold"))
    for name in ("partitions", "events", "dropped", "appended"):
        table.add_column(name, justify="right", overflow="fold")
    for name, heads in topics.items():
        events, appended = _events(heads), sum(head.next_sequence for head in heads)
        figures = (len(heads), events, appended - events, appended)
        table.add_row(Text(printable(name)), *(f"{figure:,}" for figure in figures))
    return table


def _events(heads: Sequence[Head]) -> int:
    return sum(head.next_sequence - head.first_sequence for head in heads)


def _group_json(progress: GroupProgress) -> dict[str, object]:
    fields = asdict(progress)
    until_ms = fields.pop("until_ms")
    return fields | {"until": None if until_ms is None else show_moment(until_ms)}


def _group_table(found: Sequence[GroupProgress], now_ms: int) -> Table:
    table = Table(Column("group", overflow="fold"))
    for name in ("partition", "next sequence", "lag"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("holder", overflow="fold")
    table.add_column("hold ends", overflow="fold")
    for name, partitions in groupby(found, lambda each: each.group):
        table.add_section()
        for each in partitions:
            figures = (str(each.partition), f"{each.sequence:,}", f"{each.lag:,}")
            holder = Text(printable(each.holder or ""))
            table.add_row(Text(printable(name)), *figures, holder, _hold_end(each.until_ms, now_ms))
    return table


def _hold_end(until_ms: int | None, now_ms: int) -> str:
    if until_ms is None:
        return ""
    return ("over since " if until_ms <= now_ms else "") + show_moment(until_ms)


# Progress of groups


def seek(
    topic: TopicName,
    group: GroupName,
    to: Annotated[
        str,
        typer.Option(
            metavar="START",
            show_default=False,
            help="earliest, latest, a sequence, a time such as 2026-01-31T12:00:00Z, or -10m.",
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="One partition; by default all.")
    ] = None,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Set the progress of a group, also while it reads.

    In a partition that ends before the sequence, the group continues at its end.

    chronoline log seek orders billing --to earliest
    chronoline log seek orders billing --to 1200 --partition 3
    chronoline log seek orders billing --to 2026-01-31T12:00:00Z
    """
    start = parse_start(to, "--to", SystemClock().now_ms())
    with open_log(place) as log:
        log.seek(topic, group, start, partition=partition)
        states = [each for each in log.groups(topic) if each.group == group]
    lag = sum(each.lag for each in states)
    print(f"{group!r} has {count_of(lag, 'event')} of {topic!r} to read")
    if isinstance(start, int):
        chosen = [each for each in states if partition in (None, each.partition)]
        _print_short_partitions([each for each in chosen if each.sequence < start], start)


def _print_short_partitions(states: Sequence[GroupProgress], start: int) -> None:
    if states:
        count = f"{count_of(len(states), 'partition')} {'ends' if len(states) == 1 else 'end'}"
        typer.echo(f"chronoline: {count} before {start}, where it goes on at the end", err=True)


def skip_to_end(topic: TopicName, group: GroupName, place: LogPlace = DEFAULT_FOLDER) -> None:
    """Let a group skip all existing events.

    chronoline log skip-to-end orders billing
    """
    with open_log(place) as log:
        log.skip_to_end(topic, group)
    print(f"{group!r} goes on with the next events of {topic!r}")


# Deletion


def delete(topic: TopicName, yes: Yes = False, place: LogPlace = DEFAULT_FOLDER) -> None:
    """Delete a topic, its events and the progress of its groups, for good.

    chronoline log delete orders

    Readers and writers get an error. The name can be used again.
    """
    with open_log(place) as log:
        events = sum(head.next_sequence - head.first_sequence for head in log.heads(topic))
        what = f"topic {topic!r} with {count_of(events, 'event')}"
        confirm(f"Delete {what} for good?", yes=yes)
        log.delete_topic(topic)
    print(f"deleted {what}")


def delete_group(
    topic: TopicName, group: GroupName, yes: Yes = False, place: LogPlace = DEFAULT_FOLDER
) -> None:
    """Delete a group and its progress on a topic, for good.

    chronoline log delete-group orders billing

    Its readers get an error. A later group of that name begins with the
    first event.
    """
    with open_log(place) as log:
        found = [each for each in log.groups(topic) if each.group == group]
        if not found:
            raise GroupNotFound(f"no group named {group!r} reads {topic!r}")
        held = sum(each.holder is not None for each in found)
        what = f"group {group!r} of {topic!r}"
        question = f"Delete {what}, which holds {count_of(held, 'partition')}, for good?"
        confirm(question, yes=yes)
        log.delete_group(topic, group)
    print(f"deleted {what}")
