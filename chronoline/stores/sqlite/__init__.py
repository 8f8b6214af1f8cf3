"""The timeline in one SQLite file: the embedded default.

State: a write-ahead log flushed at every commit (`synchronous=FULL`), so that an answered change survives
power loss. One connection writes, under a lock, in immediate transactions that hold the whole check and
the write together; readers have connections of their own and never wait for the writer.

Several processes may share the file. A writer that meets another process's lock tries again within
milliseconds until `busy_ms` is over (a create: for a second at most), then answers `StoreBusy`: nothing was
changed. Foreign commits are seen through SQLite's `data_version`.

Failure: a full disk is `StoreFull`, nothing was changed. After a failed flush nobody knows what the disk
holds, so the process stops; the next start recovers from the log.
"""

from chronoline.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
