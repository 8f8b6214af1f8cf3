"""The log that a command works on, and positions in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.core.units import parse_duration_ms
from chronoline.log import Log
from chronoline.log.start_positions import Start
from chronoline.runtime.store_url import split_url
from chronoline.runtime.timestamps import from_ms, parse_moment_ms

DEFAULT_FOLDER = "chronoline-log"
_SEQUENCE = re.compile(r"[0-9]{1,18}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

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


def url_of(place: str) -> str:
    """A URL unchanged; a path as the URL of its folder."""
    if _SCHEME.match(place):
        return place
    if not place or "\0" in place:
        raise InvalidInput(f"{place!r} is neither a URL nor a folder")
    return Path(place).expanduser().absolute().as_uri()


def open_log(place: str) -> Log:
    """Opens an existing log. It does not create a missing folder."""
    url = url_of(place)
    scheme, host, folder, _ = split_url(url)
    if scheme == "file" and not host and not Path(folder, "objects").is_dir():
        if Path(folder, "index.db").is_file():
            raise StoreError(
                f"the folder {folder!r} has the index of a log, and its objects are gone: bring the folder "
                "'objects' back"
            )
        raise InvalidInput(
            f"there is no log in the folder {folder!r}: "
            "`chronoline log init` or `chronoline log create` makes it, --log names another"
        )
    return Log(url)


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
