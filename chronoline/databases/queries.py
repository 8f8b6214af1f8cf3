"""SQL lives in `.sql` files: named queries, one line of description each.

-- name: ack
-- Marks a message as deleted by its holder.
UPDATE messages …
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_\w+\.sql$")


def load_queries(package: str) -> dict[str, str]:
    """The queries of a package's `queries.sql`, by name."""
    text = (files(package) / "queries.sql").read_text(encoding="utf-8")
    _, *pieces = _NAME.split(text)
    names, bodies = pieces[::2], pieces[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"{package} names a query twice")
    return {
        name: _COMMENT.sub("", body).strip().rstrip(";")
        for name, body in zip(names, bodies, strict=True)
    }


def load_migrations(package: str) -> list[str]:
    """The scripts of a package's `migrations` folder, in order: the first makes version 1."""
    found = {
        int(match[1]): entry.read_text(encoding="utf-8")
        for entry in (files(package) / "migrations").iterdir()
        if (match := _MIGRATION.match(entry.name))
    }
    return [found[number] for number in sorted(found)]
