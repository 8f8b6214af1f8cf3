"""The place of a log, as people name it: a URL, or a folder."""

from __future__ import annotations

import re
from pathlib import Path

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.log.log import Log
from chronoline.runtime.store_url import split_url

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


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
