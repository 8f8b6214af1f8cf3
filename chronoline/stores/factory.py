"""Opens a store by its URL: the one place that chooses an engine."""

from __future__ import annotations

from chronoline.core.errors import InvalidInput
from chronoline.runtime.store_url import (
    POSTGRES,
    SCHEMES,
    scheme_of,
    sqlite_path,
    without_password,
)
from chronoline.stores.contract import Store


def open_store(url: str) -> Store:
    """Opens the timeline store that a URL names, making or migrating its tables where needed.

    - ``memory:`` lives in this process and ends with it.
    - ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` are one file, for one machine.
    - ``postgresql://…`` is a database of a PostgreSQL server; needs ``chronoline[postgres]``. With
      ``?notify=off`` it uses no LISTEN and NOTIFY, which some compatible servers lack.
    """
    scheme = scheme_of(str(url))
    if scheme == "memory":
        from chronoline.stores.memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from chronoline.stores.sqlite import SqliteStore

        return SqliteStore(sqlite_path(url))
    if scheme in POSTGRES:
        from chronoline.databases.postgres import split_notify
        from chronoline.stores.postgres import PostgresStore

        address, notify = split_notify(url)
        return PostgresStore(address, notify=notify)
    known = ", ".join(SCHEMES.values())
    raise InvalidInput(
        f"{without_password(str(url))!r} is not the URL of a store; use one of: {known}"
    )
