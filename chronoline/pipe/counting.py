"""What a running pipe counts of itself since its start; it travels with its heartbeats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from chronoline.pipe.receipts import LATENESS_BOUNDS_MS, LatenessHistogram

_SUMMED = ("fired", "redelivered", "served", "skipped", "relayed", "restarts", "lag")


@dataclass(slots=True)
class Counters:
    source: str = ""
    """The name of the input in the accounts of the store."""
    fired: int = 0
    """Messages that were published and acknowledged."""
    redelivered: int = 0
    """Those among them whose earlier reservation had lapsed."""
    served: int = 0
    """Windows that a lane served on time."""
    skipped: int = 0
    """Windows to which no task came in time, or during which the store was away."""
    relayed: int = 0
    """Dead letters that were moved to their topic."""
    restarts: int = 0
    """Queries that failed and were started again."""
    lag: int = 0
    """Records of the input that wait to be taken in, in the partitions of this pipe."""
    clock_offset_ms: int = 0
    """By how much the store's clock is ahead of this process's."""
    kafka_clock_offset_ms: int = 0
    """By how much the clock of the input's Kafka is ahead."""
    lateness: LatenessHistogram = field(default_factory=LatenessHistogram)

    def add_windows(self, observed: Mapping[str, Any]) -> None:
        """Adds what was observed of a micro-batch of a lane."""
        for name in ("fired", "redelivered", "served", "skipped"):
            setattr(self, name, getattr(self, name) + (observed[name] or 0))
        places = range(len(LATENESS_BOUNDS_MS) + 1)
        self.lateness.add([observed[f"late_{place}"] or 0 for place in places])

    def add(self, other: Counters) -> None:
        """Adds what another process counted; of clocks, the worst is kept."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("clock_offset_ms", "kafka_clock_offset_ms"):
            setattr(self, name, max(getattr(self, name), getattr(other, name), key=abs))
        self.lateness.add(other.lateness.counts)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Counters:
        """What a pipe said of itself; one of another version may say less, or more."""
        try:
            found = dict(json.loads(text))
            late = list(found.pop("lateness")["counts"])
        except (ValueError, KeyError, TypeError):
            return cls()
        known = {name: found[name] for name in found if name in cls.__slots__}
        counters = cls(**known)
        if len(late) == len(counters.lateness.counts):
            counters.lateness.add(late)
        return counters
