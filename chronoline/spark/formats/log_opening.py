"""Logs of a worker process: opened inside it, once for each, and closed when it ends."""

from __future__ import annotations

import atexit
import os
import threading
from urllib.parse import parse_qs, urlsplit

from chronoline.log import Log
from chronoline.spark.formats.locality import check_local

_opened: dict[tuple[int, str], Log] = {}
_opening = threading.Lock()


def open_log(url: str) -> Log:
    """The log that this process has open for a URL. A fork opens its own."""
    with _opening:
        key = (os.getpid(), url)
        if key not in _opened:
            _check_place(url)
            log = _opened[key] = Log(url)
            atexit.register(log.close)
        return _opened[key]


def _check_place(url: str) -> None:
    index = parse_qs(urlsplit(url).query).get("index", [""])[0]
    on_disk = [
        urlsplit(url).scheme == "file" and "objects",
        urlsplit(index).scheme == "sqlite" and "index",
    ]
    for part in filter(None, on_disk):
        check_local(
            f"a log with its {part} in a folder",
            "use a bucket with an index in PostgreSQL or DynamoDB",
        )
