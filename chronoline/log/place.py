"""The place of a log, as people name it: a URL, or a folder."""

from __future__ import annotations

from pathlib import Path

from chronoline.core.errors import InvalidInput, StoreError
from chronoline.log.factory import url_of
from chronoline.log.log import Log
from chronoline.runtime.store_url import split_url


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
