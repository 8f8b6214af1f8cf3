"""`chronoline log compact`, `retain`, `sweep` and `import`.

Upkeep may run beside writers and readers at any time.
"""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace
from chronoline.cli.options import TopicName
from chronoline.cli.output import count_of
from chronoline.cli.progress import showing
from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms, parse_size_bytes
from chronoline.log import Log, import_events
from chronoline.log.factory import url_of
from chronoline.log.place import open_log
from chronoline.runtime.signals import exit_on_sigterm


def compact(
    topic: TopicName,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help="The approximate size of new chunks.")
    ] = "8MiB",
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Merge small chunks into large ones, which are faster to read.

    chronoline log compact orders --target-size 16MiB
    """
    target_bytes = parse_size_bytes(target_size, "--target-size")
    with open_log(place) as log, exit_on_sigterm(), showing("chunks") as advance:
        done = log.compact(topic, target_bytes=target_bytes, progress=advance)
    print(f"{count_of(done.chunks_before, 'chunk')} became {done.chunks_after:,}")


def retain(
    topic: TopicName,
    max_age: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delete events that are older, such as 7d."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Delete the oldest beyond this size of each partition, such as 1GiB.",
        ),
    ] = None,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Delete the oldest events, by age or by size, in whole chunks.

    chronoline log retain orders --max-age 7d --max-size 1GiB
    """
    if max_age is None and max_size is None:
        raise InvalidInput("give --max-age, --max-size, or both")
    max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
    max_bytes = None if max_size is None else parse_size_bytes(max_size, "--max-size")
    with open_log(place) as log, exit_on_sigterm():
        partitions = log.topic(topic).partitions
        with showing("partitions", partitions) as advance:
            dropped = log.retain(
                topic, max_age_ms=max_age_ms, max_bytes=max_bytes, progress=advance
            )
    print(f"dropped {count_of(dropped, 'event')}")


def sweep(
    grace: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Younger objects stay: their append may be under way."
        ),
    ] = "1h",
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Delete objects of failed appends, and those without events.

    chronoline log sweep --grace 1h
    """
    grace_ms = parse_duration_ms(grace, "--grace")
    with open_log(place) as log, exit_on_sigterm(), showing("objects") as advance:
        swept = log.sweep(grace_ms=grace_ms, progress=advance)
    print(f"deleted {count_of(swept, 'object')}")


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
    becomes an event without a value. It creates a missing log and topic.
    Stop the producers first. If it is interrupted, run it again: it continues,
    and adds no event twice.
    """
    with Log(url_of(place)) as log, exit_on_sigterm(), showing("events") as advance:
        done = import_events(
            log, topic, url_of(source), table=table, consumers=consumers, progress=advance
        )
    missing = f", {done.missing:,} of them missing" if done.missing else ""
    groups = f", and the progress of {count_of(done.groups, 'group')}" if done.groups else ""
    where = count_of(done.partitions, "partition")
    print(f"imported {count_of(done.events, 'event')}{missing} in {where}{groups}")
