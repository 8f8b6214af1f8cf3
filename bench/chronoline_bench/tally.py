"""What must be 0 in every measurement: lost, duplicated and early messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from chronoline.core.outcome import Grant, Outcome


@dataclass(slots=True)
class Tally:
    """Messages that were acknowledged and are not there, were handed out twice, or before they were due."""

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
        """Count what is missing, and what is there beyond the number wanted."""
        self.lost += max(0, wanted - found)
        self.duplicated += max(0, found - wanted)

    def expect_done(self, outcomes: Iterable[Outcome]) -> None:
        """Nothing speaks against these changes: each that was refused is a message lost."""
        self.lost += sum(not outcome.done for outcome in outcomes)


@dataclass(slots=True)
class Served:
    """What consumers were given and have acked; live leases are never for two."""

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
        """All of these should have been given out, and no others."""
        self.tally.lost += sum(each not in self.ids for each in ids)
        self.tally.duplicated += max(0, len(self.ids) - len(ids))
