"""The counts of a running pipe since its start, which it sends with its heartbeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from chronoline.core.lateness import LATENESS_BOUNDS_MS, LatenessHistogram
from chronoline.pipe.windows import SERVED, SKIPPED, windows_between

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
    """Windows that a lane served on time, with all of its tasks."""
    skipped: int = 0
    """Windows that a task missed, or during which the store was unreachable."""
    relayed: int = 0
    """Dead letters that were moved to their topic."""
    restarts: int = 0
    """Queries that failed and were started again."""
    lag: int = 0
    """Records of the input that wait to be taken in, in the partitions of this pipe."""
    clock_offset_ms: int = 0
    """The time by which the store's clock is ahead of this process's."""
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)

    def add_messages(self, observed: Mapping[str, Any]) -> None:
        """Adds the messages that were observed in a micro-batch of a lane."""
        for name in ("fired", "redelivered"):
            setattr(self, name, getattr(self, name) + (observed[name] or 0))
        places = range(len(LATENESS_BOUNDS_MS) + 1)
        late = [observed[f"late_{place}"] or 0 for place in places]
        self.lateness.add(late, observed["late_sum_ms"] or 0)

    def add(self, other: Counters) -> None:
        """Adds the counts of another process; of clock offsets the largest is kept."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.clock_offset_ms = max(self.clock_offset_ms, other.clock_offset_ms, key=abs)
        self.lateness.add(other.lateness.counts, other.lateness.sum_ms)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Counters:
        """Reads the counts of a pipe. Another version may send fewer counts, or more."""
        try:
            found = dict(json.loads(text))
            lateness = found.pop("lateness")
            late, sum_ms = list(lateness["counts"]), float(lateness.get("sum_ms", 0))
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()
        known = {name: found[name] for name in found if name in cls.__slots__}
        counters = cls(**known)
        if len(late) == len(counters.lateness.counts):
            counters.lateness.add(late, sum_ms)
        return counters


class WindowCount:
    """Counts each window of one lane once, also if several tasks or micro-batches served it.

    A window counts as skipped if one of its tasks did not serve it, or if no task came to it.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._last: int | None = None  # the last window that is counted

    def add(self, observed: Mapping[str, Any], counters: Counters) -> None:
        """Adds the windows of a micro-batch: usually one, and two if some tasks started late."""
        first: int = observed["first_window"]
        window: int = observed["window"]
        last = first - self._lanes if self._last is None else self._last
        if window <= last:  # while the store is unreachable a window has several micro-batches
            return
        self._last = window
        counters.skipped += windows_between(last, window, self._lanes)
        if not (observed[SERVED] or observed[SKIPPED]):  # the pipe stops
            return
        if first < window or observed[SKIPPED]:
            counters.skipped += 1
        else:
            counters.served += 1
