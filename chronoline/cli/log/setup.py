"""`chronoline log init` and `chronoline log create`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from chronoline.cli.log.place import DEFAULT_FOLDER, LogPlace, TopicName, url_of
from chronoline.cli.quantities import count_of
from chronoline.core.errors import TopicExists
from chronoline.log import Log
from chronoline.log.factory import prepare
from chronoline.log.factory import template as template_of
from chronoline.log.log import DEFAULT_PARTITIONS


def init(
    place: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            envvar="CHRONOLINE_LOG",
            help="Where events are kept: a folder, s3://bucket/prefix, gs://… or az://…",
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
        bool, typer.Option("--template", help="Make nothing; print a template for CloudFormation.")
    ] = False,
) -> None:
    """Make what a log needs, and print the one string that names it.

    chronoline log init
    chronoline log init s3://bucket/events --index dynamodb://events
    chronoline log init s3://bucket/events --index dynamodb://events --template

    It makes the folder or the bucket, and the tables; what is there stays
    as it is. The string goes to stdout, what to do next to stderr.
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
        int, typer.Option(metavar="N", help="As many readers of a group can share it.")
    ] = DEFAULT_PARTITIONS,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="A topic that is there stays as it is.")
    ] = False,
    place: LogPlace = DEFAULT_FOLDER,
) -> None:
    """Make a topic. A folder needs nothing before it.

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
