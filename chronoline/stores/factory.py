"""Opens a store by its URL: the one place that chooses an engine."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import SCHEMES
from chronoline.stores.contract import Store


def open_store(url: str) -> Store:
    """Opens the timeline store that a URL names, making or migrating its tables where needed.

    - ``memory:`` lives in this process and ends with it.
    - ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` are one file, for one machine.
    - ``postgresql://…`` is a database of a PostgreSQL server; needs ``chronoline[postgres]``. With
      ``?notify=off`` it uses no LISTEN and NOTIFY, which some compatible servers lack.
    """
    try:
        scheme = urlsplit(str(url)).scheme
    except ValueError:
        scheme = ""
    if scheme == "memory":
        from chronoline.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from chronoline.stores.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(url))
    if scheme in ("postgresql", "postgres"):
        from chronoline.databases.postgres import split_notify
        from chronoline.stores.postgres import PostgresStore

        address, notify = split_notify(url)
        return PostgresStore(address, notify=notify)
    known = ", ".join(SCHEMES.values())
    shown = repr(url) if "@" not in str(url) else f"{scheme}://…"  # it may hold a password
    raise InvalidInput(f"{shown} is not the URL of a store; use one of: {known}")


def _sqlite_path(url: str) -> str:
    prefix = "sqlite:///"
    path = unquote(url[len(prefix) :])
    if not url.lower().startswith(prefix) or not path:
        raise InvalidInput(f"{url!r} names no file; write {SCHEMES['sqlite']}")
    if path == ":memory:":
        raise InvalidInput(
            "a SQLite database in memory would be another for each connection; write memory:"
        )
    if "?" in path:
        raise InvalidInput(f"{url!r} has parameters, and none are known")
    return path
