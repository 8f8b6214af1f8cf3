"""The paths of objects, the same in a folder and in a bucket, so that one can be copied to the other."""

from __future__ import annotations

from chronoline.log.contract import MARK

FOLDER_CHARACTERS = 5
"""The path of a name, which begins with its time: a folder holds about two hours."""
SUFFIX = ".events"


def path_of(name: str) -> str:
    return f"{name[:FOLDER_CHARACTERS]}/{name}{SUFFIX}"


def name_of(path: str) -> str | None:
    """The object's name, or None for a path that is not ours."""
    name = path.rpartition("/")[2].removesuffix(SUFFIX)
    return name if name and name != MARK and path_of(name) == path else None
