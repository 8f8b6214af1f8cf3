"""The record of a timer on one node, and how two records are merged.

Versions. Every change by a client (create, replace, delete) gives the timer a new version: a number of a
hybrid logical clock (`hybrid_clock.py`), with the node's name for the case that two give the same one.

Progress. Within a version a timer only goes forward: the count of its pops, and the steps of its next pop. A
later record includes an earlier one, so that records may arrive twice, late and in any order, and every node
ends with the same one.

Bounds. Every number of a record is bounded where it is read (`records.py`), and the merge of two records
stays within the bounds.

Clocks. `start_ms` is a moment of the clock of the node that holds the record. Between nodes it travels as an
age. Of one version every node keeps the start that it received first: later ones were longer under way.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from chronoline.timers.plan import TimerPlan

MOVED_KEPT_MS = 600_000
"""How long a node remembers a timer that moved away, for messages that are still under way."""
UNKNOWN_KEPT_MS = 3_600_000
"""How long a node remembers the deletion of a timer that it never had."""
MOST_NUMBER = 1 << 54
"""The highest number of a version: more than a clock gives before the year 2248."""
MOST_AGE_MS = 1 << 42
"""The longest age of a record: more than the hundred years of the longest timer."""
MOST_MS = 2 * MOST_AGE_MS
"""The longest wait, and the longest time for which a record is remembered."""
MOST_STEPS = 1 << 31 | 1
"""The highest count of steps, and of notices that a call is not over."""
SLACK_MS = 600_000
"""How long after its last pop a timer is remembered: another node may still try to call."""


class Version(NamedTuple):
    """Orders the changes that clients make to a timer."""

    number: int
    # The node that gave it, and the life of its journal: a new journal counts from the start.
    giver: str


Progress = tuple[Version, int, int, int, int]
"""Version, pops that are over, failed attempts of the next one, notices of it, and its steps."""

Lives = tuple[tuple[str, str], ...]
"""Nodes, each with the life of its journal: a random name, new when the journal begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A record: the plan of a timer, its progress, and the nodes that keep it."""

    id: int
    version: Version
    # None after its deletion.
    plan: TimerPlan | None
    start_ms: int
    # The number of pops that are over, called or given up.
    popped: int = 0
    # Steps of the next pop: 2 for each failed attempt, and 1 more while one is queued or under way.
    step: int = 0
    # The delay of the next attempt after the due time.
    wait_ms: int = 0
    # Notices of the next attempt: a node has queued or begun the call, or leaves it to others.
    renewed: int = 0
    replicas: tuple[str, ...]
    # The list of nodes by which the replicas were chosen.
    view: str
    # How long after its start a deleted or replaced timer is remembered at least.
    kept_ms: int = 0

    @property
    def progress(self) -> Progress:
        """The order of two records of a timer: the higher is the later."""
        return (self.version, self.popped, self.attempts, self.renewed, self.step)

    @property
    def characters(self) -> int:
        """The size of the texts of its plan, which can be large."""
        return 0 if self.plan is None else self.plan.characters

    @property
    def is_over(self) -> bool:
        """Whether it has no more pops."""
        return self.plan is None or self.popped >= self.plan.pops

    @property
    def attempts(self) -> int:
        """The number of failed attempts of the next pop."""
        return self.step // 2

    @property
    def due_ms(self) -> int:
        """When the next pop is due; of a finished timer, when it was deleted or popped last."""
        if self.plan is None or self.is_over:
            return self.start_ms
        return self.plan.due_ms(self.start_ms, self.popped + 1)

    def with_popped(self, popped: int) -> Timer:
        """The record after this number of pops, with no attempt of the next one."""
        return replace(self, popped=popped, step=0, wait_ms=0, renewed=0)

    def renew(self, *, step: int, wait_ms: int) -> Timer:
        """The record with one more notice of the next attempt: its steps, and how long to wait for it."""
        renewed = min(self.renewed + 1, MOST_STEPS)
        return replace(self, step=step, wait_ms=wait_ms, renewed=renewed)

    def only_renews(self, before: Timer | None) -> bool:
        """Whether it only adds the notice that a call is queued or under way, or left to others.

        That need not be on disk: a node that starts asks the others.
        """
        return before is not None and _facts(before) == _facts(self)

    def turn_ms(self, node: str, absent: Set[str] = frozenset()) -> int:
        """When it is a node's turn to make the next attempt; the node is one of its replicas.

        It does not wait for absent nodes. If another node has the call, the first waits half a step too:
        news of that call may be under way.
        """
        assert self.plan is not None
        replicas = len(self.replicas)
        before = self.replicas[: self.replicas.index(node)]
        level = sum(each not in absent for each in before) if absent else len(before)
        skew_ms = self.plan.skew_ms(level, replicas)
        if not level and self.step % 2 and replicas > 1:
            skew_ms = self.plan.skew_ms(1, replicas) // 2
        return self.due_ms + self.wait_ms + skew_ms

    def forgotten_ms(self) -> int:
        """When a finished record may be forgotten."""
        kept_ms = self.start_ms + self.kept_ms
        if self.plan is None:
            return kept_ms
        return max(kept_ms, self.plan.end_ms(self.start_ms) + SLACK_MS)


def _facts(timer: Timer) -> tuple[object, ...]:
    return (
        timer.version,
        timer.popped,
        timer.attempts,
        timer.start_ms,
        timer.replicas,
        timer.view,
        timer.kept_ms,
    )


def later(mine: Timer, theirs: Timer, view: str) -> Timer:
    """Merges two records of a timer.

    The keepers are merged separately: the list by the node's present `view` wins, or else that of the later
    record.
    """
    winner = theirs if theirs.progress > mine.progress else mine
    placed = winner
    if theirs.view != mine.view and view in (theirs.view, mine.view):
        placed = theirs if theirs.view == view else mine
    start_ms = mine.start_ms if mine.version == winner.version else theirs.start_ms
    kept_ms = max(mine.kept_ms, theirs.kept_ms)
    if mine.version != theirs.version or winner.plan is None:
        # Deleted or replaced: remembered at least as long as it would have lived.
        kept_ms = max(mine.forgotten_ms(), theirs.forgotten_ms()) - start_ms
    kept_ms = min(max(kept_ms, -MOST_MS), MOST_MS)
    if winner is mine and placed is mine and kept_ms == mine.kept_ms:
        return mine
    return replace(
        winner,
        start_ms=start_ms,
        replicas=placed.replicas,
        view=placed.view,
        kept_ms=kept_ms,
    )
