"""The files of a pipe that are on this machine already.

A command that only looks at a pipe makes nothing: a mistyped folder would be there from then on, and look
like a place where nothing waits.
"""

from __future__ import annotations

from pathlib import Path

from chronoline.core.errors import TopicNotFound
from chronoline.pipe.places import Place
from chronoline.runtime.store_url import scheme_of, split_url, sqlite_path


def missing_file(url: str) -> Path | None:
    """The file of a SQLite database that does not exist yet; opening the database makes it."""
    if scheme_of(url) != "sqlite":
        return None
    path = Path(sqlite_path(url))
    return None if path.exists() else path


def check_log(place: Place) -> None:
    """Raises `TopicNotFound` for a topic of a log that is not there yet, and says how both are made."""
    missing = _missing_part(place.log) if place.kind == "log" else None
    if missing is not None:
        raise TopicNotFound(f"there is no {str(missing)!r}, and so {place.log_problem()}")


def _missing_part(log: str) -> Path | None:
    scheme, _, folder, options = split_url(log)
    if scheme == "file" and not Path(folder, "objects").is_dir():
        return Path(folder, "objects") if Path(folder).is_dir() else Path(folder)
    return missing_file(options.get("index", ""))
