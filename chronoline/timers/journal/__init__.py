"""The journal of a node: the records of its timers, in one SQLite file.

A save is done when the records are on disk; saves that come meanwhile share the next flush. A flush that
fails ends the process. SQLite discards a torn end of its log.

Moments are kept twice: by the monotonic clock of this boot of the machine, which cannot be set, and by the
wall clock, for the next boot.
"""

from chronoline.timers.journal.journal import (
    Journal,
    Saved,
    claim,
    has_waiting,
    is_readable,
    set_aside,
)

__all__ = ["Journal", "Saved", "claim", "has_waiting", "is_readable", "set_aside"]
