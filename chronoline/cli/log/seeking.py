"""`chronoline log seek` and `chronoline log skip-to-end`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from chronoline.cli.log.place import DEFAULT_FOLDER, GroupName, LogPlace, TopicName, open_log
from chronoline.cli.log.starts import parse_start
from chronoline.cli.quantities import count_of
from chronoline.log import GroupProgress
from chronoline.runtime.clock import SystemClock


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
        int | None, typer.Option(metavar="N", help="In one partition; else in all.")
    ] = None,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Set where a group goes on, also while it reads.

    A partition that ends before a sequence goes on at its end.

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
        _tell_of_short_ones([each for each in chosen if each.sequence < start], start)


def _tell_of_short_ones(states: Sequence[GroupProgress], start: int) -> None:
    if states:
        count = f"{count_of(len(states), 'partition')} {'ends' if len(states) == 1 else 'end'}"
        typer.echo(f"chronoline: {count} before {start}, where it goes on at the end", err=True)


def skip_to_end(topic: TopicName, group: GroupName, place: LogPlace = DEFAULT_FOLDER) -> None:
    """Let a group pass over everything that is there now.

    chronoline log skip-to-end orders billing
    """
    with open_log(place) as log:
        log.skip_to_end(topic, group)
    print(f"{group!r} goes on with the next events of {topic!r}")
