"""The journal file: saves and loads records."""

from __future__ import annotations

import fcntl
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from chronoline.core.errors import InvalidInput, StoreBusy, StoreUnavailable
from chronoline.databases.queries import load_queries
from chronoline.databases.sqlite import SqliteDatabase
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.group_commit import Committer
from chronoline.runtime.private_files import open_private
from chronoline.timers.records import Reader, to_record
from chronoline.timers.timer import MOST_AGE_MS, Lives, Timer

_PACKAGE = "chronoline.timers.journal"
_JOURNAL_FILE = 0x43_4C_54_4D  # "CLTM"
_PAGE = 1_000
_MOST_WAITING = 100_000
_COMMIT_MS = 5.0
_QUERIES = load_queries(_PACKAGE)
_UNREADABLE = (InvalidInput, KeyError, TypeError, ValueError, RecursionError)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Saved:
    """A timer of the journal."""

    timer: Timer
    # The other nodes that have it.
    confirmed: Lives
    # False if its start was computed from the wall clock, which may have been set.
    is_certain: bool
    # False if the node that saved it did not keep the timer itself.
    was_kept: bool = True


class Journal:
    """The file. Loading is done before saving begins; `save` may be called from one thread."""

    def __init__(self, path: Path, *, boot: str) -> None:
        self._database = SqliteDatabase(str(path), package=_PACKAGE, application_id=_JOURNAL_FILE)
        with self._database.writing() as connection:
            connection.execute(_QUERIES["begin_life"], {"life": secrets.token_hex(8)})
            connection.execute(_QUERIES["see_boot"], {"boot": boot})
            self.life: str = connection.execute(_QUERIES["life"]).fetchone()[0]
            self._boot: int = connection.execute(
                _QUERIES["boot_number"], {"boot": boot}
            ).fetchone()[0]
        # Records that cannot be read or written, with the reason: they are left out, and what the file has
        # stays until it is overwritten.
        self.unreadable: dict[int, str] = {}
        self._committer = Committer(
            "journal", SystemClock(), commit_ms=_COMMIT_MS, most_items=_MOST_WAITING
        )
        self._queue = self._committer.open_queue()

    def load(self, *, now_ms: int, wall_ms: int) -> Iterator[Saved]:
        """All saved timers, with starts by the clock that reads `now_ms`.

        A record that cannot be read is left out, and noted in `unreadable`.
        """
        reader = Reader()
        first = -(1 << 63)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(_QUERIES["page"], {"first": first, "limit": _PAGE})
                page = rows.fetchall()
            for timer_id, *row in page:
                first = timer_id + 1
                unsigned = timer_id % (1 << 64)
                try:
                    saved = self._read(reader, unsigned, row, now_ms=now_ms, wall_ms=wall_ms)
                except _UNREADABLE as error:
                    self.leave_out(unsigned, error)
                else:
                    yield saved
            if len(page) < _PAGE:
                return

    def _read(
        self, reader: Reader, timer_id: int, row: Sequence[Any], *, now_ms: int, wall_ms: int
    ) -> Saved:
        start_ms, wall_start_ms, boot, record, confirmed = row
        is_certain = boot == self._boot
        age_ms = now_ms - start_ms if is_certain else wall_ms - wall_start_ms
        age_ms = min(max(age_ms, -MOST_AGE_MS), MOST_AGE_MS)  # a wrong wall clock loses nothing
        fields = {**json.loads(record), "id": timer_id, "age": age_ms}
        timer = reader.timer(fields, now_ms)
        # Records of earlier releases lack it.
        was_kept = fields.get("was_kept", True) is True
        return Saved(timer, _lives_from_json(confirmed), is_certain, was_kept)

    def leave_out(self, timer_id: int, error: Exception) -> None:
        """Notes that a saved timer is not used; its record stays in the file until the timer is changed."""
        self.unreadable[timer_id] = str(error)
        logger.error(
            "timer %016x: its record of the journal cannot be used and was left out, the other nodes may "
            "have it: %s",
            timer_id,
            error,
            extra={"action": "record_unreadable", "timer": f"{timer_id:016x}"},
        )

    def save(
        self,
        changes: Sequence[tuple[int, Timer | None, Lives]],
        *,
        has_kept: Callable[[Timer], bool],
        now_ms: int,
        wall_ms: int,
    ) -> Future[list[None]]:
        """The future is done when the changes are on disk. None forgets a timer. See `Replica.has_kept`.

        A record that cannot be written is left out; then the future of all of them fails.
        """
        for timer_id, _, _ in changes if self.unreadable else ():
            self.unreadable.pop(timer_id, None)
        rows: list[dict[str, Any]] = []
        for timer_id, timer, lives in changes:
            try:
                was_kept = timer is not None and has_kept(timer)
                row = self._row(
                    timer_id, timer, lives, was_kept=was_kept, now_ms=now_ms, wall_ms=wall_ms
                )
            except Exception as error:  # of one record: the others are saved
                self.leave_out(timer_id, error)
            else:
                rows.append(row)
        saved = self._committer.submit(self._queue, "save", self._write, rows, item_bytes=_weight)
        if len(rows) == len(changes):
            return saved
        failed: Future[list[None]] = Future()
        failed.set_exception(StoreUnavailable("a record cannot be written to the journal"))
        return failed

    def _row(
        self,
        timer_id: int,
        timer: Timer | None,
        lives: Lives,
        *,
        was_kept: bool,
        now_ms: int,
        wall_ms: int,
    ) -> dict[str, Any]:
        if timer is None:
            return {"id": _signed(timer_id)}
        return {
            "id": _signed(timer_id),
            "start_ms": timer.start_ms,
            "wall_start_ms": timer.start_ms - now_ms + wall_ms,
            "boot": self._boot,
            "record": _to_json({**to_record(timer, now_ms), "was_kept": was_kept}),
            "confirmed": _lives_to_json(lives),
        }

    def _write(self, rows: Sequence[dict[str, Any]], _: int) -> list[None]:
        # The last change of a timer counts.
        latest = {row["id"]: row for row in rows}
        with self._database.writing() as connection:
            saved = [row for row in latest.values() if "record" in row]
            forgotten = [row for row in latest.values() if "record" not in row]
            connection.executemany(_QUERIES["save"], saved)
            connection.executemany(_QUERIES["forget"], forgotten)
        return [None] * len(rows)

    def check_room(self) -> None:
        """Raises `StoreFull` or `StoreBusy` while no new timer should be taken in."""
        self._database.check_room()
        if self._queue.is_crowded:
            raise StoreBusy("the journal has too much to write; nothing was changed. Try again")

    def close(self) -> None:
        """Closes the file after the pending saves."""
        self._committer.close()
        self._database.close()


def has_waiting(path: Path) -> bool:
    """Whether a file is a journal with a live timer; no other process may have it open."""
    if not path.exists() or not is_readable(path):
        return False
    reader = Reader()
    connection = sqlite3.connect(path)
    try:
        return any(
            _is_waiting(reader, timer_id, record)
            for timer_id, record in connection.execute(_QUERIES["records"])
        )
    except sqlite3.OperationalError:  # it has no timers at all
        return False
    finally:
        connection.close()


def _is_waiting(reader: Reader, timer_id: int, record: Any) -> bool:
    """Whether a record is of a live timer; an unreadable one counts as live."""
    try:
        return not reader.timer({**json.loads(record), "id": timer_id % (1 << 64)}, 0).is_over
    except _UNREADABLE:
        return True


def set_aside(path: Path) -> Path:
    """Moves an unreadable journal and its log aside; returns the new path."""
    aside = path.with_name(f"{path.name}.unreadable-{time.time_ns() // 1_000_000}")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


def is_readable(path: Path) -> bool:
    """Whether SQLite finds the file intact. Raises `StoreUnavailable` if it is locked or cannot be read."""
    if not path.exists():
        return True
    try:
        connection = sqlite3.connect(path)
        try:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return False
        raise StoreUnavailable(f"the journal {path.name!r} cannot be opened: {error}") from error


_to_json = json.JSONEncoder(separators=(",", ":")).encode
# Thousands of timers are kept by the same nodes.
_lives_to_json = lru_cache(10_000)(_to_json)


@lru_cache(10_000)
def _lives_from_json(text: bytes) -> Lives:
    lives = tuple((node, life) for node, life in json.loads(text))
    if not all(type(word) is str for pair in lives for word in pair):
        raise ValueError(f"{lives!r:.100} does not name nodes and lives")
    return lives


def _weight(row: dict[str, Any]) -> int:
    return len(row.get("record", ""))


def _signed(timer_id: int) -> int:
    return timer_id - (1 << 64) if timer_id >= 1 << 63 else timer_id


def claim(path: Path) -> IO[bytes]:
    """Keeps other processes from a file until the answered one is closed, or this process ends.

    Two processes that write to one journal would pop everything twice. Raises `StoreUnavailable` if another
    process has the file.
    """
    claimed: IO[bytes] = open_private(path.with_name(f"{path.name}.lock"), "wb")
    try:
        fcntl.flock(claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claimed.close()
        raise StoreUnavailable(
            f"another process has {str(path)!r}: stop that node, or name another folder by --data"
        ) from None
    return claimed
