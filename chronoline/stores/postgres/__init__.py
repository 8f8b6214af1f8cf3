"""The timeline in PostgreSQL: for more than one machine.

State: one table of messages in the schema `chronoline`, one statement for each batch, committed by
itself. The guards are in the statement; a reservation skips rows that another transaction has locked.

Failure: if the server does not answer a change, it may have happened: `OutcomeUnknown`. If no connection is
free in time, nothing was sent: `StoreUnavailable`. The pool replaces broken connections. A transaction that
the server gave up (deadlock, serialization) changed nothing and is tried again.

Waking: NOTIFY announces changes that fall due soon. A store with a watch listens before it reads, and after
every reconnection it sends its watches a notice to look again. With `notify=off` in its URL a store neither
announces nor listens: its own watches get notices of its own changes, and look for those of others every
100 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.databases.postgres import Connection, safe_path
from chronoline.stores.contract import IfExists
from chronoline.stores.postgres.engine import PostgresEngine
from chronoline.stores.timeline import Timeline
from chronoline.stores.writer import Writer

__all__ = ["PostgresEngine", "PostgresStore"]


class PostgresStore(Timeline):
    """A store in a PostgreSQL database: `Timeline(PostgresEngine(url))`, with `create_in`."""

    engine: PostgresEngine

    def __init__(
        self,
        url: str,
        *,
        notify: bool = True,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(PostgresEngine(url, notify=notify), random_bytes)

    def create_in(
        self,
        connection: Connection,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        """Like `create`, on a connection that the caller holds (psycopg 3).

        The messages exist exactly if the caller's transaction commits. Errors of the driver are passed
        on as they are, since the transaction is the caller's.
        """
        writer = Writer(self.engine, self.topics, connection, create=self.engine.create_free)
        with safe_path(connection):
            return self._create(writer, topic_uid, messages, if_exists, now_ms)
