"""A timeline in plain dictionaries, written from the design's rules and from nothing of ours.

It decides what must be done and what refused, and changes its rows accordingly. The store under test is
asked the same questions.
"""

from dataclasses import dataclass, field
from typing import Protocol

MIN_LEASE_MS = 10
SETTLED_AFTER_MS = 3_000


class Lease(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def consumer(self) -> str: ...
    @property
    def version(self) -> int: ...


@dataclass
class Row:
    group: str
    ts: int
    due: int
    version: int
    expires: int | None
    life: str = "live"
    """live; gone: the id is taken until `ts`; dead: a dead letter since `ts`."""
    lock: str | None = None
    attempts: int = 0
    hand: str | None = None
    """Of a row that is gone: the consumer that acked it."""

    @property
    def forgettable_at(self) -> int:
        """Of a row that is gone: from then on it may be removed."""
        return max(self.ts, self.version + SETTLED_AFTER_MS)

    def is_leased(self, now: int) -> bool:
        return self.life == "live" and self.lock is not None and self.ts > now


@dataclass
class Model:
    dedupe_ms: int
    max_attempts: int
    max_lateness_ms: int | None
    rows: dict[str, Row] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    """The highest version that an id ever had."""

    def find(self, message_id: str, life: str = "live") -> Row | None:
        row = self.rows.get(message_id)
        return row if row is not None and row.life == life else None

    def _note(self, message_id: str, row: Row) -> None:
        self.highest[message_id] = max(row.version, self.highest.get(message_id, 0))

    # Producers

    def may_create(self, message_id: str, group: str, replace: bool, now: int) -> bool:
        row = self.rows.get(message_id)
        if row is None or (row.life == "gone" and row.ts <= now):
            return True
        return replace and row.group == group and not row.is_leased(now)

    def first_versions(self, message_id: str, now: int, latest: int) -> set[int]:
        """The mark of a deleted message may be gone when no clock can give its version out again.

        `latest` is what the clock that is most ahead has shown.
        """
        row = self.rows.get(message_id)
        if row is None:
            return {now}
        after = max(now, row.version + 1)
        forgotten = row.life == "gone" and row.forgettable_at <= latest
        return {after, now} if forgotten else {after}

    def create(self, message_id: str, row: Row) -> None:
        self.rows[message_id] = row
        self._note(message_id, row)

    def reschedule(self, message_id: str, due: int, group: str, now: int) -> bool:
        row = self.find(message_id)
        if row is None or row.group != group or row.is_leased(now):
            return False
        if row.expires is not None and row.expires <= max(due, now):
            return False
        row.attempts += row.lock is not None
        row.ts = row.due = due
        row.lock = None
        self._change(message_id, row)
        return True

    def cancel(self, message_id: str, group: str, now: int) -> bool:
        gone = self.find(message_id, "gone")
        if gone is not None:
            return gone.ts > now and gone.hand is None and gone.group == group
        row = self.find(message_id)
        if row is None or row.group != group or row.is_leased(now):
            return False
        self._delete(message_id, row, None, now)
        return True

    # Leases

    def ready(self, now: int, ahead_ms: int) -> dict[str, int]:
        """Returns the messages that a reservation may take, with their ts."""
        return {
            message_id: row.ts
            for message_id, row in self.rows.items()
            if row.life == "live"
            and (row.ts <= now or (row.lock is None and row.ts <= now + ahead_ms))
        }

    def take(self, message_id: str, consumer: str, lease_ms: int, now: int) -> bool:
        """Leases a message that is ready; false if it goes to the dead letters instead."""
        row = self.rows[message_id]
        row.attempts += row.lock is not None
        too_old = row.expires is not None and row.expires <= max(row.due, now)
        too_late = self.max_lateness_ms is not None and now > row.due + self.max_lateness_ms
        if row.attempts >= self.max_attempts or too_old or too_late:
            self._bury(message_id, row, now)
            return False
        row.ts = max(row.due, now) + lease_ms
        row.lock = consumer
        self._change(message_id, row)
        return True

    def hold(self, operation: str, lease: Lease, to: int, now: int) -> bool:
        """The operations of a holder: extend, release, retry, bury, unreserve, ack."""
        gone = self.find(lease.id, "gone")
        if operation == "ack" and gone is not None:
            same = gone.hand == lease.consumer and gone.version == lease.version + 1
            return same and gone.ts > now
        row = self.find(lease.id)
        if row is None or (row.lock, row.version) != (lease.consumer, lease.version):
            return False
        earliest = max(row.due, now) if operation == "extend" else now
        too_soon = operation in ("extend", "release", "retry") and to < earliest + MIN_LEASE_MS
        if row.ts <= now or too_soon:
            return False
        row.attempts += operation in ("retry", "bury")
        if operation == "ack":
            self._delete(lease.id, row, lease.consumer, now)
        elif operation == "bury" or (operation == "retry" and row.attempts >= self.max_attempts):
            self._bury(lease.id, row, now)
        else:
            self._move(lease.id, row, operation, to)
        return True

    def _move(self, message_id: str, row: Row, operation: str, to: int) -> None:
        if operation == "extend":
            row.ts = to
        else:
            row.lock = None
            row.due = row.due if operation == "unreserve" else to
            row.ts = row.due
        self._change(message_id, row)

    def resume(self, consumer: str, now: int) -> set[str]:
        found = {
            message_id
            for message_id, row in self.rows.items()
            if row.is_leased(now) and row.lock == consumer
        }
        for message_id in found:
            self._change(message_id, self.rows[message_id])
        return found

    # Dead letters

    def redrive(self, message_id: str, due: int, now: int) -> bool:
        row = self.find(message_id, "dead")
        if row is None:
            return False
        row.life = "live"
        row.ts = row.due = due
        row.attempts = 0
        if row.expires is not None and row.expires <= due:
            row.expires = None
        self._change(message_id, row)
        return True

    def discard(self, message_id: str, now: int) -> bool:
        row = self.find(message_id, "dead")
        if row is None:
            return False
        self._delete(message_id, row, None, now)
        return True

    # How rows change

    def _change(self, message_id: str, row: Row) -> None:
        row.version += 1
        self._note(message_id, row)

    def _delete(self, message_id: str, row: Row, hand: str | None, now: int) -> None:
        row.life, row.lock, row.hand = "gone", None, hand
        row.ts = now + self.dedupe_ms if self.dedupe_ms else 0  # free at once, by every clock
        self._change(message_id, row)

    def _bury(self, message_id: str, row: Row, now: int) -> None:
        row.life, row.lock, row.ts = "dead", None, now
        self._change(message_id, row)
