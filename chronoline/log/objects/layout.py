"""Where an object lies, the same below a folder and in a bucket, so that one can be copied to the other."""

from __future__ import annotations

from chronoline.log.contract import MARK

FOLDER_CHARACTERS = 5
"""Of a name, which begins with its time: a folder holds about two hours."""
SUFFIX = ".events"


def path_of(name: str) -> str:
    return f"{name[:FOLDER_CHARACTERS]}/{name}{SUFFIX}"


def name_of(path: str) -> str | None:
    """The object's name, or None for what is not ours."""
    name = path.rpartition("/")[2].removesuffix(SUFFIX)
    return name if name and name != MARK and path_of(name) == path else None
