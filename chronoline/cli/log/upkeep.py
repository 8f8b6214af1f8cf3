"""`chronoline log compact`, `retain` and `sweep`: beside writers and readers, as often as one likes."""

from __future__ import annotations

from typing import Annotated

import typer

from chronoline.cli.ending import cleaning_up_when_told_to_end
from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, open_log
from chronoline.cli.progress import showing
from chronoline.cli.quantities import count_of, parse_duration_ms, parse_size_bytes
from chronoline.core.errors import InvalidInput


def compact(
    topic: TopicName,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help="About how large chunks become.")
    ] = "8MiB",
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Put small chunks together into large ones, which are faster to read.

    chronoline log compact orders --target-size 16MiB
    """
    target_bytes = parse_size_bytes(target_size, "--target-size")
    with open_log(place) as log, cleaning_up_when_told_to_end(), showing("chunks") as advance:
        done = log.compact(topic, target_bytes=target_bytes, progress=advance)
    print(f"{count_of(done.chunks_before, 'chunk')} became {done.chunks_after:,}")


def retain(
    topic: TopicName,
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Drop what is older, such as 7d.")
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Drop the oldest beyond this size of each partition, such as 1GiB."
        ),
    ] = None,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Drop the oldest events, by age or by size, in whole chunks.

    chronoline log retain orders --max-age 7d --max-size 1GiB
    """
    if max_age is None and max_size is None:
        raise InvalidInput("say what is kept: --max-age, --max-size, or both")
    max_age_ms = None if max_age is None else parse_duration_ms(max_age, "--max-age")
    max_bytes = None if max_size is None else parse_size_bytes(max_size, "--max-size")
    with open_log(place) as log, cleaning_up_when_told_to_end():
        partitions = log.topic(topic).partitions
        with showing("partitions", partitions) as advance:
            dropped = log.retain(
                topic, max_age_ms=max_age_ms, max_bytes=max_bytes, progress=advance
            )
    print(f"dropped {count_of(dropped, 'event')}")


def sweep(
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="Younger objects stay: their append may go on.")
    ] = "1h",
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Delete objects that failed appends left behind, and those that nothing lies in any more.

    chronoline log sweep --grace 1h
    """
    grace_ms = parse_duration_ms(grace, "--grace")
    with open_log(place) as log, cleaning_up_when_told_to_end(), showing("objects") as advance:
        swept = log.sweep(grace_ms=grace_ms, progress=advance)
    print(f"deleted {count_of(swept, 'object')}")
