"""Records of other nodes, checked one by one before a node takes them.

A record that cannot be read, or whose version is too far ahead of the clock, is refused by itself: those
beside it are taken. The refusal is logged, counted and answered to the node that sent the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from chronoline.core.errors import InvalidInput
from chronoline.runtime.log_summary import LogSummary
from chronoline.timers.records import Reader, id_of
from chronoline.timers.timer import Timer

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)
_MOST_SHOWN = 200

Taken = TypeVar("Taken")


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that was not taken."""

    # None if it could not be read.
    timer_id: int | None
    reason: str


class PeerRecords:
    """Reads the records that other nodes send."""

    def __init__(
        self,
        *,
        problem: Callable[[Timer, int], str | None],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        refused: Callable[[int], None],
    ) -> None:
        """`problem` answers the reason to refuse a record, by the wall clock; `refused` counts."""
        self._reader = Reader()
        self._problem = problem
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._refused = refused

    def read(self, records: Iterable[Any], source: str) -> tuple[list[Timer], list[RefusedRecord]]:
        """The timers of records that `source` sent just now, and the refused records."""
        now_ms, wall_ms = self._now_ms(), self._wall_ms()
        timers: list[Timer] = []
        refused: list[RefusedRecord] = []
        for record in records:
            try:
                timer = self._reader.timer(record, now_ms)
            except InvalidInput as error:
                refused.append(RefusedRecord(_id_of(record), str(error)))
                continue
            if (problem := self._problem(timer, wall_ms)) is None:
                timers.append(timer)
            else:
                refused.append(RefusedRecord(timer.id, problem))
        if refused:
            self.log_refused(refused, source)
        return timers, refused

    def take(
        self, records: Iterable[Any], source: str, take: Callable[[Timer], Taken]
    ) -> tuple[list[tuple[Timer, Taken]], list[RefusedRecord]]:
        """Reads records and takes each; returns the timers with what `take` answers, and the refused records.

        A record that cannot be taken is refused like one that cannot be read: those beside it are taken.
        """
        timers, refused = self.read(records, source)
        taken: list[tuple[Timer, Taken]] = []
        failed: list[RefusedRecord] = []
        for timer in timers:
            try:
                taken.append((timer, take(timer)))
            except Exception as error:
                logger.debug("taking timer %016x failed", timer.id, exc_info=error)
                failed.append(RefusedRecord(timer.id, f"it cannot be taken: {error!r:.300}"))
        if failed:
            self.log_refused(failed, source)
        return taken, refused + failed

    def log_refused(self, refused: Sequence[RefusedRecord], source: str) -> None:
        """Counts and logs what was refused."""
        self._refused(len(refused))
        first = refused[0]
        _summary.warning(
            "record_refused",
            "a record of %s was refused, of timer %s: %s",
            shown(source) or "a node without a name",
            "?" if first.timer_id is None else f"{first.timer_id:016x}",
            first.reason,
            count=len(refused),
            peer=shown(source),
        )


def _id_of(record: Any) -> int | None:
    return id_of(record.get("id")) if isinstance(record, dict) else None


def shown(text: object) -> str:
    """A text of another node for a log line: one line, and not long."""
    return "".join(each if each.isprintable() else "?" for each in str(text)[:_MOST_SHOWN].strip())
