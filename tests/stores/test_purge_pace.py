"""The pause of a process between two purge rounds."""

from __future__ import annotations

from chronoline.stores.purge_pace import PurgePace


class Ticks:
    """A caller that comes once a second."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pace = PurgePace(1.0, monotonic=lambda: self.now_s)

    def rounds(self, seconds: int, removed: int) -> list[int]:
        """Returns the seconds in which it purges."""
        found = []
        for second in range(seconds):
            self.now_s += 1
            if self.pace.is_due:
                found.append(second)
                self.pace.purged(removed)
        return found


def test_rounds_become_rarer_while_there_is_nothing_to_remove() -> None:
    ticks = Ticks()
    assert ticks.rounds(17, removed=0) == [0, 2, 6, 11, 16]


def test_rounds_follow_each_other_while_rows_remain() -> None:
    ticks = Ticks()
    ticks.rounds(17, removed=0)
    ticks.pace.purged(1)
    assert ticks.rounds(5, removed=1) == [0, 1, 2, 3, 4]
