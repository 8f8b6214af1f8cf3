"""The log: partitioned, append-only topics on an object store, with an index database.

An append writes data first: one immutable, checksummed object with the events of many partitions, on disk
before anything speaks of it. Then one index transaction gives each partition its next sequence numbers,
so a sequence has no gaps, and the answer follows the commit. An append that fails in between leaves an object
without a reference, which is swept later.

Readers of a group hold partitions by a lock with an end and a fence; their progress is a conditional write.
An appended event reaches every group at least once, in sequence within its partition.
"""

from chronoline.log.catch_up import CaughtUp
from chronoline.log.contract import GroupNotFound
from chronoline.log.events import Event, NewEvent, Position
from chronoline.log.groups import GroupProgress
from chronoline.log.importer import Imported, import_events
from chronoline.log.log import Log
from chronoline.log.notifier import Notification
from chronoline.log.once_writer import Numbered
from chronoline.log.partitioner import partition_id
from chronoline.log.processor import Again

__all__ = [
    "Again",
    "CaughtUp",
    "Event",
    "GroupNotFound",
    "GroupProgress",
    "Imported",
    "Log",
    "NewEvent",
    "Notification",
    "Numbered",
    "Position",
    "import_events",
    "partition_id",
]
