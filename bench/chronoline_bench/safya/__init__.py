"""The algorithm of seed 001 (Safya) on our disk: what the log is measured against.

A producer takes a sequence number for the event's partition, in an index transaction of its own, and then
writes the event as an object, `events/{partition}/{sequence}`. A consumer locks a partition, reads its
objects one by one, and after each sets its sequence number by a conditional write, which renews the lock. A
number without an event, which a producer that died leaves behind, is passed over.

The index is a SQLite file and the objects are files, opened and flushed by the same classes as the log's.
Where Safya's own program does more, this does not: the partitioner is a constant, nobody is notified, and a
lock is taken once for a whole partition, not for every twenty events.
"""

from chronoline_bench.safya.safya import Item, Safya

__all__ = ["Item", "Safya"]
