"""The index in PostgreSQL: for logs that many machines share.

State: the schema `chronoline_log`. A batch is one statement, committed by itself; trimming and compaction are
short transactions that lock the partition's head first.

Order: a commit locks the heads of its partitions in the order of their key, and gives away their next
sequences. They are locked until it is done, so a reader that sees a chunk sees all before it. The object's
name is inserted in the same statement: if it is there already, nothing else happens, and the former answer
is read.

Failure: if the server does not answer a change, its outcome is unknown: `OutcomeUnknown`. If there was no
connection, or in a read, nothing was changed: `StoreUnavailable`.

Waking: a commit names its topics in a NOTIFY of its own transaction, so all processes learn of it exactly
when it is done. With `notify=off` in the URL of all processes, there are no notifications.
"""

from chronoline.log.index.postgres.index import PostgresIndex, exists

__all__ = ["PostgresIndex", "exists"]
