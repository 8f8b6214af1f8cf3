"""The index in PostgreSQL: for logs that many machines share.

State: the schema `chronoline_log`. A batch is one statement, committed by itself; trimming and compaction are
short transactions that lock the partition's head first.

Order: a commit locks the heads of its partitions in the order of their key, and gives away their next
sequences. They are locked until it is done, so whoever sees a chunk sees all before it. The object's name is
inserted in the same statement: if it is there already, nothing else happens, and the former answer is read.

Failure: if the server does not answer a change, nobody knows whether it happened: `OutcomeUnknown`. If no
connection could be had, or in looking, nothing was changed: `StoreUnavailable`.

Waking: a commit says in its own transaction which topics it appended to, and all processes hear of it when it
is done, neither earlier nor never. With `notify=off` in the URL, of all processes alike, nothing is said.
"""

from chronoline.log.index.postgres.index import PostgresIndex, exists

__all__ = ["PostgresIndex", "exists"]
