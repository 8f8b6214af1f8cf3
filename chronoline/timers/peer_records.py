"""Records of other nodes, checked one by one before a node takes them.

A record that cannot be read, or whose version is too far ahead of the clock, is refused by itself: those
beside it are taken. The refusal is logged, counted and answered to the node that sent the record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.timers.records import Reader
from chronoline.timers.timer import Timer

logger = logging.getLogger(__name__)


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
            self._log_refused(refused, source)
        return timers, refused

    def _log_refused(self, refused: list[RefusedRecord], source: str) -> None:
        self._refused(len(refused))
        first = refused[0]
        logger.warning(
            "%d records of %s were refused; the first is of timer %s: %s",
            len(refused),
            source[:100] or "a node without a name",
            "?" if first.timer_id is None else f"{first.timer_id:016x}",
            first.reason,
            extra={"action": "record_refused", "peer": source[:100], "records": len(refused)},
        )


def _id_of(record: Any) -> int | None:
    timer_id = record.get("id") if isinstance(record, dict) else None
    return timer_id if type(timer_id) is int and 0 <= timer_id < 1 << 64 else None
