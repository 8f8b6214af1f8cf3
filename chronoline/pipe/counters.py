"""The counts of a running pipe since its start, which it sends with its heartbeats."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from chronoline.core.lateness import LatenessHistogram

_SUMMED = ("fired", "redelivered", "served", "skipped", "relayed", "restarts", "lag")


@dataclass(slots=True)
class Counters:
    source: str = ""
    """The name of the input in the accounts of the store."""
    fired: int = 0
    """Messages that were published and acknowledged."""
    redelivered: int = 0
    """The fired messages whose earlier reservation had lapsed."""
    served: int = 0
    """Windows that tasks served in every piece of the pipe's buckets."""
    skipped: int = 0
    """Windows that no task served in a piece, or during which the store was unreachable."""
    relayed: int = 0
    """Dead letters that were moved to their topic."""
    restarts: int = 0
    """Queries that failed and were started again."""
    lag: int = 0
    """Records of the input that wait to be taken in, in the partitions of this pipe."""
    clock_offset_ms: int = 0
    """The time by which the store's clock is ahead of this process's."""
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)

    def add_fired(self, late_ms: float, *, redelivered: bool) -> None:
        """Adds a message that was published; lateness is that of first deliveries."""
        self.fired += 1
        if redelivered:
            self.redelivered += 1
        else:
            self.lateness.observe(max(0.0, late_ms))

    def set_fired(self, other: Counters) -> None:
        """Takes over the counts of tasks, each in one step; the others belong to other threads."""
        self.fired = other.fired
        self.redelivered = other.redelivered
        self.served = other.served
        self.skipped = other.skipped
        self.lateness = other.lateness.copy()

    def add(self, other: Counters) -> None:
        """Adds the counts of another process; of clock offsets the largest is kept."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.clock_offset_ms = max(self.clock_offset_ms, other.clock_offset_ms, key=abs)
        late = other.lateness
        self.lateness.add(late.counts, late.sum_ms, late.max_ms)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Counters:
        """Reads the counts of a pipe. Another version may send fewer counts, or more."""
        try:
            found = dict(json.loads(text))
            lateness = found.pop("lateness")
            late, sum_ms = list(lateness["counts"]), float(lateness.get("sum_ms", 0))
            max_ms = float(lateness.get("max_ms", sum_ms))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()
        known = {name: found[name] for name in found if name in cls.__slots__}
        counters = cls(**known)
        if len(late) == len(counters.lateness.counts):
            counters.lateness.add(late, sum_ms, max_ms)
        return counters


class WindowCount:
    """Counts each window of a pipe once: served if a task served it in every piece, else skipped.

    The lanes do not matter: a task that goes on beyond its window serves those of another lane.
    """

    def __init__(self, pieces: int) -> None:
        self._served: list[set[int]] = [set() for _ in range(pieces)]
        self._next: int | None = None  # the first window that is not counted

    def note(self, piece: int, windows: range) -> None:
        """Windows that were served in a piece. They may be noted again."""
        if not windows:
            return
        if self._next is None:
            self._next = windows.start
        self._served[piece].update(range(max(windows.start, self._next), windows.stop))

    def count(self, before: int, counters: Counters) -> None:
        """Counts the windows before this one, of which nothing more is noted."""
        if self._next is None:
            return
        for window in range(self._next, before):
            if all(window in served for served in self._served):
                counters.served += 1
            else:
                counters.skipped += 1
        self._next = max(self._next, before)
        for served in self._served:
            served.difference_update([each for each in served if each < self._next])
