"""`chronoline log topics` and `chronoline log groups`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, open_log
from chronoline.cli.rendering import print_table
from chronoline.core.errors import TopicNotFound
from chronoline.log import GroupProgress
from chronoline.log.contract import Head
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import show_moment

_NO_LIMIT = 1_000_000

AsJson = Annotated[bool, typer.Option("--json", help="One JSON array instead of a table.")]


def topics(as_json: AsJson = False, place: LogPlace = DEFAULT_FOLDER) -> None:
    """List the topics, and how many events they have.

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
    """List the groups that read a topic: how far they are, and who holds what until when.

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
        table.add_row(Text(name), *(f"{figure:,}" for figure in figures))
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
            table.add_row(Text(name), *figures, each.holder, _hold_end(each.until_ms, now_ms))
    return table


def _hold_end(until_ms: int | None, now_ms: int) -> str:
    if until_ms is None:
        return ""
    return ("over since " if until_ms <= now_ms else "") + show_moment(until_ms)
