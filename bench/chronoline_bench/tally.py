"""The counts that must be 0 in every measurement: lost, duplicated and early messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from chronoline.core.outcome import Grant, Outcome


@dataclass(slots=True)
class Tally:
    """Counts of acknowledged messages that are missing, or were delivered twice or before their due time."""

    lost: int = 0
    duplicated: int = 0
    early: int = 0

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.early)

    def add(self, other: Tally) -> None:
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.early += other.early

    def expect(self, wanted: int, found: int) -> None:
        """Counts missing messages as lost, and surplus ones as duplicated."""
        self.lost += max(0, wanted - found)
        self.duplicated += max(0, found - wanted)

    def expect_done(self, outcomes: Iterable[Outcome]) -> None:
        """Counts each refused change as a lost message."""
        self.lost += sum(not outcome.done for outcome in outcomes)


@dataclass(slots=True)
class Served:
    """The messages that consumers leased and acked; two consumers never hold the same live lease."""

    tally: Tally
    ids: set[str] = field(default_factory=set)

    def add(self, grant: Grant, acked: Sequence[Outcome], now_ms: int) -> None:
        self.tally.expect_done(grant.refused)
        for leased in grant.leased:
            self.tally.early += leased.message.due > now_ms
            self.tally.duplicated += leased.message.id in self.ids
            self.ids.add(leased.message.id)
        self.tally.expect_done(acked)

    def expect(self, ids: Collection[str]) -> None:
        """Checks that exactly these messages were leased."""
        self.tally.lost += sum(each not in self.ids for each in ids)
        self.tally.duplicated += max(0, len(self.ids) - len(ids))
