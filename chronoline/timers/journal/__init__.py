"""What a node has on its disk: the records of its timers, in one SQLite file.

Whoever saves is answered when the records are on disk; what is saved meanwhile shares the next flush. A flush
that fails ends the process. SQLite throws away what was torn at the end of its log.

Moments are kept twice: by the monotonic clock of this boot of the machine, which nobody can move, and by the
clock on the wall, for a machine that was started anew.
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
