"""The logs that a worker process has open: each is opened once and closed at the end."""

from __future__ import annotations

import atexit
import os
import threading

from chronoline.core.errors import InvalidInput
from chronoline.log import Log
from chronoline.log.factory import connection_string, lacks_files, parts_on_one_machine
from chronoline.spark.locality import check_local

_opened: dict[tuple[int, str], Log] = {}
_opening = threading.Lock()


def open_worker_log(url: str) -> Log:
    """The log that this process has open for a URL. A fork opens its own."""
    with _opening:
        key = (os.getpid(), url)
        if key not in _opened:
            _check_place(url)
            log = _opened[key] = Log(url)
            atexit.register(log.close)
        return _opened[key]


def _check_place(url: str) -> None:
    for part in parts_on_one_machine(url):
        check_local(
            f"a log with its {part} in a folder",
            "use a bucket with an index in PostgreSQL or DynamoDB",
        )
    if lacks_files(url):
        raise InvalidInput(
            f"there is no log at {connection_string(url)}: check the option 'log', or make the topic first:"
            " chronoline log create TOPIC --log …"
        )
