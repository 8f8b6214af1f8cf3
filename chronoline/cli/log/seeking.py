"""`chronoline log seek` and `chronoline log skip-to-end`."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.log.place import DEFAULT_FOLDER, GroupName, LogPlace, TopicName, open_log
from chronoline.cli.moments import parse_start
from chronoline.cli.quantities import count_of
from chronoline.clock import SystemClock


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

    chronoline log seek orders billing --to earliest
    chronoline log seek orders billing --to 1200 --partition 3
    chronoline log seek orders billing --to 2026-01-31T12:00:00Z
    """
    start = parse_start(to, "--to", SystemClock().now_ms())
    with open_log(place) as log:
        log.seek(topic, group, start, partition=partition)
        lag = sum(each.lag for each in log.groups(topic) if each.group == group)
    print(f"{group!r} has {count_of(lag, 'event')} of {topic!r} to read")


def skip_to_end(topic: TopicName, group: GroupName, place: LogPlace = DEFAULT_FOLDER) -> None:
    """Let a group pass over everything that is there now.

    chronoline log skip-to-end orders billing
    """
    with open_log(place) as log:
        log.skip_to_end(topic, group)
    print(f"{group!r} goes on with the next events of {topic!r}")
