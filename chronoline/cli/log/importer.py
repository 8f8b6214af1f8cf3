"""`chronoline log import`: a log that is laid out as `events/PARTITION/SEQUENCE`."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.ending import cleaning_up_when_told_to_end
from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, url_of
from chronoline.cli.progress import showing
from chronoline.cli.quantities import count_of
from chronoline.log import Log, import_events


def import_log(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", show_default=False, help="s3://bucket/prefix or a folder."
        ),
    ],
    topic: TopicName,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            show_default=False,
            help="Its partitions: dynamodb://table, or a file of items as lines of JSON.",
        ),
    ],
    consumers: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Its consumers, likewise: they become groups."),
    ] = None,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Import a log that has an object events/PARTITION/SEQUENCE for each event.

    chronoline log import s3://bucket/log orders --table dynamodb://partitions
    chronoline log import ./old orders --table partitions.json --consumers consumers.json

    Every event keeps its partition and sequence; a number that has no event
    becomes an event without a value. It makes log and topic if there are none.
    Stop the producers first. If it is broken off, run it again: it goes on, and
    what is there is not added twice.
    """
    with Log(url_of(place)) as log, cleaning_up_when_told_to_end(), showing("events") as advance:
        done = import_events(
            log, topic, url_of(source), table=table, consumers=consumers, progress=advance
        )
    missing = f", {done.missing:,} of them missing" if done.missing else ""
    groups = f", and the progress of {count_of(done.groups, 'group')}" if done.groups else ""
    where = count_of(done.partitions, "partition")
    print(f"imported {count_of(done.events, 'event')}{missing} in {where}{groups}")
