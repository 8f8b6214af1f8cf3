"""Logs of a worker process: opened inside it, once for each, and closed when it ends."""

from __future__ import annotations

import atexit
import os
import threading
from urllib.parse import parse_qs, urlsplit

from pyspark import TaskContext

from chronoline.core.errors import InvalidInput
from chronoline.log import Log

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
    """In a task, whose properties name the master: refuses what lies on one machine if there are several."""
    task = TaskContext.get()
    master = None if task is None else task.getLocalProperty("spark.master")
    if master is None or master == "local" or master.startswith("local["):
        return
    scheme = urlsplit(url).scheme
    index = parse_qs(urlsplit(url).query).get("index", [""])[0]
    if scheme == "file" or urlsplit(index).scheme == "sqlite":
        raise InvalidInput(
            f"a log with its {'objects' if scheme == 'file' else 'index'} in a folder of one machine cannot "
            f"serve the executors of {master}: use a bucket with an index in PostgreSQL or DynamoDB, or a "
            "local master"
        )
