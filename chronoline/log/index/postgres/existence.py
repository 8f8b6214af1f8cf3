"""Whether a database has an index, without making one."""

from __future__ import annotations

from chronoline.core.errors import StoreUnavailable
from chronoline.databases.postgres import CONNECT_TIMEOUT_S, split_notify

import psycopg  # isort: skip - what is not installed is said by the module above


def exists(url: str) -> bool:
    """True also for an invalid URL: opening it reports the problem."""
    url, _ = split_notify(url)
    try:
        with psycopg.connect(url, connect_timeout=int(CONNECT_TIMEOUT_S)) as connection:
            row = connection.execute("SELECT to_regclass('chronoline_log.topics')").fetchone()
    except psycopg.ProgrammingError:
        return True
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"PostgreSQL cannot be reached: {error}") from error
    return row is not None and row[0] is not None
