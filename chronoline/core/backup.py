"""The backup ranges of a consumer: when an idle consumer looks for messages that others should have got.

A healthy consumer reserves a message of its own range before its due. So a backup looks for messages that are
due already (it reserves nothing ahead), and only some time after the due: then nobody serves them. It looks
at its ranges one by one, in order. When it finds messages, it begins again with its own ranges. When it has
found none, it sleeps until the next message that it knows of is overdue; at most five times a second, and at
least every few seconds, because a notice can be lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from chronoline.core.agenda import DEFAULT_MAX_SLEEP_MS
from chronoline.core.ranges import BucketRange

OVERDUE_MS = 50
"""The time after its due at which a message counts as left by its own consumer."""
LOOK_EVERY_MS = 200
"""The shortest time between two rounds through the ranges."""


class BackupRanges:
    """The ranges, and the moment of the next look at one of them."""

    def __init__(self) -> None:
        self.ranges: tuple[BucketRange, ...] = ()
        self._turn = 0
        # The next look, as far as is known, and the earliest moment of one.
        self._at = 0
        self._not_before = 0
        # The earliest message that this round found, or that was noticed since it began.
        self._overdue_at: int | None = None

    def cover(self, ranges: Sequence[BucketRange]) -> None:
        """Looks at these ranges from now on."""
        if tuple(ranges) != self.ranges:
            self.ranges = tuple(ranges)
            self._turn, self._at, self._overdue_at = 0, 0, None

    @property
    def next_range(self) -> BucketRange:
        return self.ranges[self._turn]

    def look_at(self, now_ms: int) -> int | None:
        """When to look; None means not before it has ranges."""
        if not self.ranges:
            return None
        at_ms = max(self._at, self._not_before)
        # A moment further ahead was planned before the clock was put back.
        return at_ms if at_ms <= now_ms + DEFAULT_MAX_SLEEP_MS else now_ms

    def noticed(self, due: int | None) -> bool:
        """A message was put at `due`, None if that is unknown. Whether the next look is earlier by that."""
        overdue_at = 0 if due is None else due + OVERDUE_MS
        self._heard(overdue_at)
        is_earlier = bool(self.ranges) and overdue_at < self._at
        self._at = min(self._at, overdue_at)
        return is_earlier

    def _heard(self, overdue_at: int) -> None:
        known = self._overdue_at
        self._overdue_at = overdue_at if known is None else min(known, overdue_at)

    def looked(self, *, found: bool, next_ts: int | None, now_ms: int) -> None:
        """A look is over; the next message of its range is at `next_ts`."""
        if found or not self.ranges:
            return  # the same range again, after the own ones
        if next_ts is not None:
            self._heard(next_ts + OVERDUE_MS)
        self._turn += 1
        if self._turn < len(self.ranges):
            return
        latest = now_ms + DEFAULT_MAX_SLEEP_MS
        self._at = latest if self._overdue_at is None else min(latest, self._overdue_at)
        self._turn, self._overdue_at, self._not_before = 0, None, now_ms + LOOK_EVERY_MS

    def postponed(self, until_ms: int) -> None:
        """The store could not be asked."""
        self._not_before = until_ms
