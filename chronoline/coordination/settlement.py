"""Commits of unknown outcome, settled by looking.

A commit whose answer was lost may have been made, or be made later: it can wait in a server that hangs. So a
look alone does not settle it. The same commit is sent again, with the same conditions: at most one of the
copies is made, and after an answer none of the others can be, since versions are never used again. The one
exception is a commit on `Absent`, which can still be made after another's entry has come and gone; such
entries must name their writer, so that it recognises them as its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from chronoline.coordination.contract import CommitResult, Condition, Coordination, KeyValue, Write
from chronoline.core.errors import CommitUnknown, CoordinationUnavailable
from chronoline.runtime.backoff import Backoff, Waits

_BACKOFF = Backoff(first=0.05, longest=1.0, spread=0.5)
_ATTEMPTS = 6


async def commit_surely(
    coordination: Coordination,
    writes: Sequence[Write],
    *,
    when: Sequence[Condition],
    is_ours: Callable[[KeyValue | None], bool],
) -> CommitResult:
    """Commits; an unknown outcome is settled by the same commit once more, and a look at the first write.

    `when` must hold at most once: the commit itself makes it false. `is_ours` recognises the entry, or the
    absence, that this commit leaves. Raises `CommitUnknown` if no answer comes after several attempts, and
    `CoordinationUnavailable` if the first attempt was not made.
    """
    waits = Waits(_BACKOFF)
    in_doubt = False
    for _ in range(_ATTEMPTS):
        try:
            result = await coordination.commit(writes, when=when)
            if result.is_made or not in_doubt:
                return result
            return await _look(coordination, writes[0].key, is_ours, result)
        except CommitUnknown:
            in_doubt = True
        except CoordinationUnavailable:
            if not in_doubt:
                raise
        await asyncio.sleep(waits.next())
    raise CommitUnknown


async def _look(
    coordination: Coordination,
    key: str,
    is_ours: Callable[[KeyValue | None], bool],
    refused: CommitResult,
) -> CommitResult:
    """The outcome of a commit that was refused when it was repeated."""
    found = await coordination.get(key)
    if not is_ours(found):
        return refused
    return CommitResult(True, found.version if found else refused.revision)
