"""Connections to one SQLite file: settings, transactions, errors, schema."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from chronoline.core.errors import (
    OutcomeUnknown,
    SchemaTooNew,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from chronoline.databases.queries import load_migrations
from chronoline.runtime.fork_guard import ForkGuard
from chronoline.runtime.private_files import make_private_file, make_private_folder

OLDEST_SQLITE = (3, 38, 0)
DEFAULT_BUSY_MS = 5_000
_CHECKPOINT_BYTES = 8 * 1024 * 1024
_CHECKPOINT_PATIENCE_S = 0.1
TIMELINE_FILE = 0x43484C4E  # "CHLN"
LOG_FILE = 0x43484C47  # "CHLG"
_OWNER = "SELECT application_id, EXISTS (SELECT 1 FROM sqlite_master) FROM pragma_application_id"
_SCHEMA = "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
_KEPT_READERS = 8
_KEPT_BYTES = 16 * 1024 * 1024
_FSYNC_FAILED = {"SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC"}

_RANDOM = random.Random()  # the state of the caller's own is left alone
logger = logging.getLogger(__name__)


def stop_process(error: BaseException) -> NoReturn:
    """Ends the process at once, without cleaning up: the content of the disk is no longer known."""
    logger.critical(
        "a flush to disk failed (%s); the process stops so that nothing is answered wrongly", error
    )
    os._exit(70)


class SqliteDatabase:
    """One writing connection under a lock, and a reading connection for each reader at a time."""

    def __init__(
        self,
        path: str,
        *,
        package: str,
        application_id: int = TIMELINE_FILE,
        busy_ms: int = DEFAULT_BUSY_MS,
        on_failed_flush: Callable[[BaseException], NoReturn] = stop_process,
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            wanted = ".".join(map(str, OLDEST_SQLITE))
            raise StoreError(f"SQLite {wanted} is needed, not {sqlite3.sqlite_version}")
        self.path = os.path.realpath(path)
        self._fork_guard = ForkGuard("the store")
        self._busy_ms = busy_ms
        self._on_failed_flush = on_failed_flush
        self._lock = threading.Lock()
        self._readers: list[sqlite3.Connection] = []
        self._closed = False
        self._version: int | None = None
        # How long the current transaction waited for its turn.
        self._waited_ms = 0.0
        self._joiner: int | None = None
        self._application_id = application_id
        self._writer = self._connect(cache_kib=65_536)
        self._flush_log()
        self._migrate(load_migrations(package))

    @contextmanager
    def writing(self, *, turn_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """The write transaction; committed, and on disk, when the block ends.

        A caller that waits for its turn longer than `turn_ms`, or `busy_ms` if that is shorter, is refused.
        """
        if self.is_joined:
            self._check_turn(turn_ms)
            with self._translated():
                yield self._writer
            return
        wait_ms = self._busy_ms if turn_ms is None else min(turn_ms, self._busy_ms)
        begun = time.monotonic()
        with self._alone(wait_ms), self._translated():
            try:  # from the beginning on: a signal may raise as soon as it has begun
                self._retried(
                    lambda: self._writer.execute("BEGIN IMMEDIATE"), begun + wait_ms / 1000
                )
                self._waited_ms = (time.monotonic() - begun) * 1000
                self._check_turn(turn_ms)
                self._version = self._writer.execute("PRAGMA data_version").fetchone()[0]
                yield self._writer
            except BaseException:
                self._roll_back()
                raise
            self._commit(wait_ms)
            self._checkpoint_if_due()

    def _check_turn(self, turn_ms: int | None) -> None:
        if turn_ms is not None and self._waited_ms > turn_ms:
            raise StoreBusy("the turn to write came too late; nothing was changed. Try again")

    @contextmanager
    def joining(self, *, turn_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction that all reading and writing of this thread joins until the block ends."""
        with self.writing(turn_ms=turn_ms) as connection:
            self._joiner = threading.get_ident()
            try:
                yield connection
            finally:
                self._joiner = None

    @property
    def is_joined(self) -> bool:
        """This thread is inside `joining`."""
        return self._joiner == threading.get_ident()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A reading connection that sees the last commit."""
        if self.is_joined:
            yield self._writer
            return
        self.check_open()
        with self._translated():
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect(cache_kib=8_192)
                connection.execute(f"PRAGMA busy_timeout={self._busy_ms}")
            try:
                connection.execute("BEGIN")  # one snapshot for all that is read
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
                if self._closed or len(self._readers) >= _KEPT_READERS:
                    connection.close()
                else:
                    self._readers.append(connection)

    @contextmanager
    def _alone(self, wait_ms: int) -> Iterator[None]:
        """The lock of the writer among the threads of this process."""
        self.check_open()  # before the lock, which a fork may have inherited taken forever
        if not self._lock.acquire(timeout=wait_ms / 1000):
            raise StoreBusy("other threads write to the store; nothing was changed. Try again")
        try:
            self.check_open()
            yield
        finally:
            self._lock.release()

    def check_room(self) -> None:
        """Refuses new messages while the disk is nearly full: existing ones must keep moving."""
        try:
            disk = shutil.disk_usage(os.path.dirname(self.path) or ".")
        except OSError as error:
            raise StoreUnavailable(
                f"the folder of {self.path!r} cannot be read; nothing was changed: {error}"
            ) from error
        kept = min(_KEPT_BYTES, disk.total // 4)
        if disk.free < kept:
            raise StoreFull(
                f"only {disk.free:,} bytes are left on the disk of {self.path!r}, and {kept:,} are kept for "
                "leases and deletions; nothing was changed. Free some disk"
            )

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed
        self.check_process()

    def check_process(self) -> None:
        """Raises `StoreError` in a fork of the process that opened it."""
        self._fork_guard.check()

    def foreign_changes(self) -> int | None:
        """A number that changes when another process commits; None before the first look.

        While this process writes, the writer looks: each of its transactions does so first.
        """
        self.check_process()
        if self._lock.acquire(blocking=False):
            try:
                if not self._closed:
                    with self._translated():
                        row = self._writer.execute("PRAGMA data_version").fetchone()
                        self._version = row[0]
            finally:
                self._lock.release()
        return self._version

    def close(self) -> None:
        """May be called twice. In a fork it does nothing: what is open is its parent's."""
        if self._fork_guard.is_forked:
            return
        with self._lock:
            if not self._closed:
                self._closed = True
                while self._readers:
                    self._readers.pop().close()
                self._checkpoint()
                self._writer.close()

    def _connect(self, *, cache_kib: int) -> sqlite3.Connection:
        try:
            make_private_file(self.path)  # its -wal and -shm get the same mode
            connection = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.OperationalError) as error:
            raise StoreUnavailable(f"{self.path!r} cannot be opened: {error}") from error
        with self._translated():
            self._check_owner(connection)
            self._retried(lambda: connection.execute("PRAGMA journal_mode=WAL"))
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA wal_autocheckpoint=0")  # see _checkpoint_if_due
            connection.execute(f"PRAGMA journal_size_limit={_CHECKPOINT_BYTES // 2}")
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        return connection

    def _flush_log(self) -> None:
        """Flushes the log that an earlier process may have left.

        SQLite shows a commit to other connections when it is flushed. But a process that ended within the
        flush left it in the log, from which the next one reads it, whether or not the disk has it.
        """
        try:
            descriptor = os.open(f"{self.path}-wal", os.O_RDONLY)
        except OSError:  # there is none
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._on_failed_flush(error)
        finally:
            os.close(descriptor)

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        """Checks the file before the first write: a file of another program stays as it is."""
        found: list[tuple[int, int]] = []
        self._retried(lambda: found.extend(connection.execute(_OWNER)))
        owner, tables = found[0]
        if tables and owner != self._application_id:
            connection.close()
            raise StoreError(
                f"{self.path!r} is a database of another program, or of Chronoline's but of another kind; "
                "name another file"
            )

    def _retried(self, action: Callable[[], object], give_up: float | None = None) -> None:
        """Tries again while another process holds the lock, until a moment of the monotonic clock.

        SQLite's own waiting takes steps of up to 100 ms, too coarse for a deadline.
        """
        if give_up is None:
            give_up = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                action()
                return
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                    raise
                if time.monotonic() >= give_up:
                    raise
            time.sleep(_RANDOM.uniform(0.0002, 0.002))  # the lock of another process has no event

    def _commit(self, wait_ms: int) -> None:
        give_up = time.monotonic() + wait_ms / 1000
        try:
            self._retried(lambda: self._writer.execute("COMMIT"), give_up)
        except BaseException:
            self._roll_back()
            raise

    def _checkpoint_if_due(self) -> None:
        """Moves the log into the file when it has grown enough; the next commit then begins it anew.

        SQLite would do so by itself, but does not report a failed flush of the file.
        """
        try:
            grown = os.stat(f"{self.path}-wal").st_size >= _CHECKPOINT_BYTES
        except OSError:  # it may be gone, and the change is durable without the checkpoint
            grown = False
        if grown:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Moves the log into the file while nobody writes, in any process.

        SQLite before 3.51.3 can take new commits for moved ones, and lose them, if another process begins the
        log anew at the start of a checkpoint. So a connection of its own holds the lock of writers meanwhile.
        If that cannot be had, or on a failure other than of a flush, a later checkpoint moves the log.
        """
        try:
            with closing(self._guard()) as guard:
                give_up = time.monotonic() + _CHECKPOINT_PATIENCE_S
                self._retried(lambda: guard.execute("BEGIN IMMEDIATE"), give_up)
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname in _FSYNC_FAILED:
                self._on_failed_flush(error)
            if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
                logger.warning("the log of %r stays as it is for now: %s", self.path, error)

    def _guard(self) -> sqlite3.Connection:
        """A connection to the file as it is: one that was moved away is not made anew."""
        return sqlite3.connect(
            f"file:{quote(self.path)}?mode=rw", uri=True, timeout=0, isolation_level=None
        )

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates the driver's errors into ours."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            if self._closed:
                raise StoreClosed from error
            raise
        except sqlite3.DatabaseError as error:
            name = getattr(error, "sqlite_errorname", "")
            if name in _FSYNC_FAILED:
                self._on_failed_flush(error)
            raise _ours(name, self.path, error) from error

    def _migrate(self, scripts: Sequence[str]) -> None:
        """Brings the schema up to date. A current one needs no turn to write."""
        try:
            if self._is_current(len(scripts)):
                return
            with self.writing() as connection:
                found: int = connection.execute("PRAGMA user_version").fetchone()[0]
                if found > len(scripts):
                    raise SchemaTooNew(
                        f"{self.path!r} has schema version {found}, and this Chronoline knows up to "
                        f"{len(scripts)}: upgrade Chronoline, or open another file"
                    )
                for script in scripts[found:]:
                    for statement in _statements(script):
                        connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self._application_id}")
                connection.execute(f"PRAGMA user_version = {len(scripts)}")
        except BaseException:
            self.close()
            raise

    def _is_current(self, version: int) -> bool:
        found: list[tuple[int, int]] = []
        with self._translated():
            self._retried(lambda: found.extend(self._writer.execute(_SCHEMA)))
        return found == [(self._application_id, version)]


def _statements(script: str) -> Iterator[str]:
    """The single statements of a script: `executescript` would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _ours(name: str, path: str, error: sqlite3.Error) -> StoreError:
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(
            f"{path!r} is locked by another process; nothing was changed. Try again, or end the "
            "process that holds it"
        )
    if name == "SQLITE_FULL":
        return StoreFull(f"no room is left for {path!r}; nothing was changed. Free some disk")
    if name.startswith("SQLITE_READONLY") or name.startswith("SQLITE_CANTOPEN"):
        return StoreUnavailable(f"{path!r} cannot be written; nothing was changed: {error}")
    if name.startswith("SQLITE_IOERR"):
        return OutcomeUnknown(f"reading or writing {path!r} failed: {error}")
    if name == "SQLITE_NOTADB":
        return StoreError(f"{path!r} is not a SQLite database")
    return StoreError(f"{path!r}: {error}")


def prepare_folder(path: str) -> None:
    """Makes the folder of a new file, which its owner alone can read."""
    try:
        make_private_folder(Path(path).resolve().parent)
    except OSError as error:
        raise StoreUnavailable(f"the folder of {path!r} cannot be made: {error}") from error
