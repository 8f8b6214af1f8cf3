"""The log that a command works on, and positions in it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms
from chronoline.log.start_positions import Start
from chronoline.runtime.timestamps import from_ms, parse_moment_ms

DEFAULT_FOLDER = "chronoline-log"
_SEQUENCE = re.compile(r"[0-9]{1,18}")

LogPlace = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="CHRONOLINE_LOG",
        help="The log: the output of `chronoline log init`, or a folder.",
    ),
]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


def parse_start(text: str, what: str, now_ms: int) -> Start:
    """The start of reading: earliest, latest, a sequence, a time, or a time ago such as -10m."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if _SEQUENCE.fullmatch(text):
        return int(text)
    try:
        if text.startswith("-"):
            return from_ms(max(0, now_ms - parse_duration_ms(text[1:], what)))
        return from_ms(parse_moment_ms(text, what))
    except InvalidInput as error:
        raise InvalidInput(
            f"{what} {text!r} is not a start: write earliest, latest, a sequence, a time with its "
            "zone such as 2026-01-31T12:00:00Z, or how long ago such as -10m"
        ) from error
