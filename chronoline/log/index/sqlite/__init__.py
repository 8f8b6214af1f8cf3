"""The index in one SQLite file: the embedded default."""

from chronoline.log.index.sqlite.index import SqliteIndex

__all__ = ["SqliteIndex"]
