"""What those values of a pipe's settings may be that no other settings have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from chronoline.core.limits import name_problem
from chronoline.core.topic import check_topic_name
from chronoline.log.factory import connection_string
from chronoline.runtime.store_url import SCHEMES, lasting_store, scheme_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def _timeline(name: str) -> str:
    check_topic_name(name)
    return name


def _header(name: str) -> str:
    if problem := name_problem("the name of a header", name):
        raise ValueError(problem)
    return name


def _store(url: str) -> str:
    """A relative file is made absolute: Spark's tasks may run in another folder."""
    if scheme_of(url) == "memory":
        raise ValueError(
            "memory: is another store in each process, and Spark's tasks are processes of their own; "
            f"write {SCHEMES['sqlite']} or {SCHEMES['postgresql']}"
        )
    return lasting_store(url)


def _log(place: str) -> str:
    """A log's connection string, always written in the same way; a path is a folder."""
    if not place or "\0" in place:
        raise ValueError("is neither the URL of a log nor a folder")
    url = place if _URL.match(place) else Path(place).expanduser().absolute().as_uri()
    return connection_string(url)


TimelineName = Annotated[str, AfterValidator(_timeline)]
HeaderName = Annotated[str, AfterValidator(_header)]
StoreUrl = Annotated[str, AfterValidator(_store)]
LogUrl = Annotated[str, AfterValidator(_log)]
