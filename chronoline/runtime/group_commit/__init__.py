"""Group commit: many callers, few commits.

A call is put in a queue and answered by a future. While a committer's thread is busy with one commit, calls
of the same kind gather, and the next commit takes them together. Nothing waits for a timer, unless a linger
is asked for, or several calls were answered together: who waits for an answer comes back at once, and after a
slow commit the next one waits for them up to a quarter of the time that the last one took. Else they would
part into two groups that take turns.

A committer serves its queues in turn and cuts commits to about `commit_ms` of work, so that a turn comes
soon. Calls of different kinds may overtake each other; one that must come after another waits for its answer.
An error reaches exactly the calls that were in that commit. If the committer itself fails, which nobody
foresaw, they are answered as unknown, and it goes on.

A committer with `most_places` keeps calls whole: one that fits into a commit by itself, by `MOST_ROWS`, bytes
and the places that its items go to, is never cut, and waits for the next commit where it does not fit into
this one. What cannot fit is committed alone, in parts.

A committer with a `together` makes one commit of everything that waits, whatever its kind, as far as the rows
of its queues' commits allow. Then an error reaches only the calls of the kind that raised it, unless the
commit itself fails.

A queue is full at `most_items`, or at `most_bytes` by what the callers say that an item weighs. Then it
refuses at once with `StoreBusy`; an empty one takes a call of any size, since its caller holds it anyway. A
commit is cut to `commit_bytes` too, and that much is on its way besides what waits.
"""

from chronoline.runtime.group_commit.committer import DEFAULT_MOST_BYTES, Committer, only
from chronoline.runtime.group_commit.pace import FEWEST_ROWS, MOST_ROWS, Pace
from chronoline.runtime.group_commit.queue import Queue, Result, Write

__all__ = [
    "DEFAULT_MOST_BYTES",
    "FEWEST_ROWS",
    "MOST_ROWS",
    "Committer",
    "Pace",
    "Queue",
    "Result",
    "Write",
    "only",
]
