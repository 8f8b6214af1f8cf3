"""Arguments and options that several commands take."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, TypedDict

import typer

from chronoline.cli.quantities import parse_duration_ms
from chronoline.core.errors import InvalidInput
from chronoline.core.message import DEFAULT_PRODUCER_GROUP
from chronoline.runtime.timestamps import from_ms, parse_moment_ms

DEFAULT_GROUP = DEFAULT_PRODUCER_GROUP

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
MessageId = Annotated[str, typer.Argument(metavar="ID", show_default=False)]
Group = Annotated[str, typer.Option(metavar="G", help="The producer group: it owns what it sends.")]
Due = Annotated[
    str | None, typer.Option(metavar="TIME", help="When, such as 2027-01-31T12:00:00Z.")
]
In = Annotated[
    str | None,
    typer.Option("--in", metavar="DURATION", help="In how long, such as 250ms, 5s, 15m or 2d."),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class When(TypedDict, total=False):
    """One of both, or neither, as the client takes it."""

    due: datetime
    delay: timedelta


def when(due: str | None, delay: str | None) -> When:
    if due is not None and delay is not None:
        raise InvalidInput("give --due or --in, not both")
    if due is not None:
        return When(due=from_ms(parse_moment_ms(due, "--due")))
    if delay is not None:
        return When(delay=duration(delay, "--in"))
    return When()


def duration(text: str, what: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms(text, what))


def confirm(question: str, *, yes: bool) -> None:
    """Raises `InvalidInput` unless the answer is yes."""
    if yes:
        return
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        raise InvalidInput("nothing was done: answer y, or say --yes")
