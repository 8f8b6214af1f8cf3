"""The one place that chooses the log's engines, by URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from chronoline.core.errors import InvalidInput
from chronoline.log.contract import Index, Objects

KNOWN = "file:///folder"


def open_parts(url: str, index: str | None = None) -> tuple[Objects, Index]:
    """The objects and the index that a URL names.

    ``file:///folder`` keeps both below a folder: files, and a SQLite database. It needs no set-up.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        from chronoline.log.index.sqlite import SqliteIndex  # noqa: PLC0415 - chosen by URL
        from chronoline.log.objects.local import LocalObjects  # noqa: PLC0415 - chosen by URL

        folder = Path(unquote(parts.path))
        objects = LocalObjects(folder / "objects")
        return objects, SqliteIndex(str(folder / "index.db"))
    raise InvalidInput(f"no log has the URL {url!r}; write {KNOWN}")
