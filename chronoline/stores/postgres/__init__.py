"""The timeline in PostgreSQL: for those who outgrow one machine.

State: one table of messages in the schema `chronoline`, one statement for each batch, committed by
itself. The guards are in the statement; a reservation skips rows that another transaction has locked.

Failure: if the server does not answer a change, nobody knows whether it happened: `OutcomeUnknown`. If no
connection could be had, nothing was sent: `StoreUnavailable`. Broken connections are replaced by the
pool. A transaction that the server gave up (deadlock, serialization) changed nothing and is tried again.

Waking: changes that fall due soon are announced by NOTIFY. A store that watches listens before it looks,
and after every reconnection it tells its watches to look again. With `notify=off` in its URL a store neither
announces nor listens: it tells its own watches of its own changes, and to look for others' every 100 ms.
"""

from chronoline.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
