"""Which log a command works on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.log import Log
from chronoline.runtime.store_url import split_url

DEFAULT_FOLDER = "chronoline-log"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")

LogPlace = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="URL",
        envvar="CHRONOLINE_LOG",
        help="The log: what `chronoline log init` printed, or a folder.",
    ),
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]


def url_of(place: str) -> str:
    """A URL as it is; a path as the URL of its folder."""
    if _SCHEME.match(place):
        return place
    if not place or "\0" in place:
        raise InvalidInput(f"{place!r} is neither a URL nor a folder")
    return Path(place).expanduser().absolute().as_uri()


def open_log(place: str) -> Log:
    """Opens a log that exists. A folder that does not is not made by looking at it."""
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
