"""Group commit: many callers, few commits.

A call is put in a queue and answered by a future. While a committer's thread is busy with one commit, calls
of the same kind gather, and the next commit takes them together. Nothing waits for a timer, with two
exceptions: a linger, and callers that were answered together. These return at once with their next
calls, so after a slow commit the next one waits for them up to a quarter of the time that the last one took.
Otherwise they would split into two groups that take turns.

A committer serves its queues in turn and limits commits to about `commit_ms` of work, so that a turn comes
soon. Calls of different kinds may overtake each other; a caller that needs an order waits for the first
answer. An error reaches exactly the calls that were in that commit. If the committer itself fails by a
defect, they are answered as unknown, and it continues.

A caller withdraws a call by cancelling its future. That succeeds until a commit takes the first part of the
call: then nothing of it is written. Afterwards it fails, and the call is done to its end. A withdrawn call
counts against the limits of its queue until its turn.

A committer with `most_places` keeps calls whole: one that fits into a commit by itself, by `MOST_ROWS`, bytes
and the places of its items, is never split, and waits for the next commit if it does not fit into this one. A
call that cannot fit is committed alone, in parts.

A committer with a `together` makes one commit of all waiting calls, whatever their kind, within the rows of
its queues' commits. Then an error reaches only the calls of the kind that raised it, unless the commit itself
fails.

A queue is full at `most_items`, or at `most_bytes` by the sizes that callers give. Then it refuses at once
with `StoreBusy`; an empty one takes a call of any size, since its caller holds it anyway. A commit is limited
to `commit_bytes` too, and that much is under way besides the waiting calls.
"""

from chronoline.runtime.group_commit.committer import DEFAULT_MOST_BYTES, Committer
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
]
