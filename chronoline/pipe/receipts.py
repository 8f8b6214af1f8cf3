"""Receipts: a row for each message that was published and acknowledged, as Parquet files in a folder.

The task that fires a message writes its receipt before it deletes the message from the store. So a message
that was deleted has a receipt, also if the process is killed at any moment; a message that is fired again has
another one, with another version.

Parquet files cannot grow. So a task appends to a *journal*, a hidden file of Arrow batches that needs no end
to be readable. It holds a lock on the journal, which the system releases when the process dies. About once a
minute the journals without a lock become one Parquet file, which gets its visible name when it is complete,
and are deleted. A kill between these two steps repeats receipts: id and version tell them apart.

A write that fails is repeated: the rows wait in memory, up to a bound, and are written with later ones, at
the end of the task, or by a later task of the same process.

Journals lie in the folder itself, or in the temporary folder of the machine if the receipts go to an object
store, which cannot append: then the receipts of the last minute are lost with the machine. There they have a
folder of their own, with a name that nobody can foresee; later processes of its user find it by its prefix.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import math
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs, ipc

from chronoline.runtime.private_files import (
    make_private_folder,
    open_private,
    temporary_folders,
)
from chronoline.runtime.service import Closable

logger = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("due", pa.timestamp("us", tz="UTC")),
        pa.field("fired", pa.timestamp("us", tz="UTC")),
        pa.field("lateness_ms", pa.float64()),
        pa.field("redelivered", pa.bool_()),
        pa.field("node", pa.string()),
    ]
)
DDL = (
    "id STRING, version BIGINT, due TIMESTAMP, fired TIMESTAMP, lateness_ms DOUBLE, redelivered BOOLEAN, "
    "node STRING"
)

RECEIPT_ERRORS = (OSError, pa.ArrowException)
"""The errors of a folder that cannot be read or written."""
COLLECT_AFTER_S = 60.0
"""Journals become a Parquet file when the oldest has this age."""
_MOST_UNWRITTEN = 100_000
"""The most rows that wait for a folder that cannot be written; further ones are lost."""
_left: dict[str, list[pa.RecordBatch]] = {}
"""The rows that ended tasks of this process could not write, by URL; the next task that writes takes them."""
_RETRY_S = 1.0
_MOST_JOURNALS = 200
"""The most journals of one Parquet file: each is open until the file is complete."""
_ORPHAN_AFTER_S = 3600.0
"""A file that is not complete at this age was left by a process that was killed."""
_JOURNAL = ".journal-"
_NEW = ".new-"
_ARCHIVE = "receipts-"
_RENAMED = frozenset({"local", "hdfs"})
"""File systems on which a file is visible before it is complete, and can be renamed."""


class Fired(NamedTuple):
    id: str
    version: int
    due_ms: int
    fired_ms: int
    redelivered: bool


def as_batch(fired: Sequence[Fired], node: str) -> pa.RecordBatch:
    columns = [
        pa.array([each.id for each in fired], pa.string()),
        pa.array([each.version for each in fired], pa.int64()),
        _moments([each.due_ms for each in fired]),
        _moments([each.fired_ms for each in fired]),
        pa.array([float(each.fired_ms - each.due_ms) for each in fired], pa.float64()),
        pa.array([each.redelivered for each in fired], pa.bool_()),
        pa.array([node] * len(fired), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _moments(moments_ms: list[int]) -> pa.Array:
    return pa.array([each * 1000 for each in moments_ms], pa.int64()).cast(SCHEMA.field("due").type)


def receipts_url(given: str) -> str:
    """A folder as it is sent to tasks, whose working folder may be another; a URL stays as it is."""
    return given if "://" in given else Path(given).absolute().as_uri()


class ReceiptJournal(Closable):
    """Appends receipts to a file that others leave alone until this process closes it, or dies."""

    def __init__(self, folder: Path) -> None:
        self.opened_s = time.monotonic()
        name = f"{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}"
        unlocked = folder / f"{_NEW}{name}"
        self._file = open_private(unlocked, "xb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            unlocked.rename(folder / f"{_JOURNAL}{name}")  # nobody finds it without its lock
            self._writer = ipc.new_stream(self._file, SCHEMA)
        except BaseException:
            self.close()
            unlocked.unlink(missing_ok=True)
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """Hands a batch to the system. After an error nothing that follows would be readable."""
        self._writer.write_batch(batch)
        self._file.flush()

    def close(self) -> None:
        """Closes the file, also after an error: its complete batches are readable, without an end."""
        with suppress(OSError):  # of the rest of a batch that could not be written
            self._file.close()


class _ReceiptFolder(NamedTuple):
    """The folder of the Parquet files, and that of the journals."""

    system: fs.FileSystem
    folder: str
    journals: Path
    """Where this process writes its journals."""
    prefix: str
    """Of the names of temporary folders with journals; empty if they lie in the folder itself."""

    @classmethod
    def open(cls, url: str) -> Self:
        system, folder = fs.FileSystem.from_uri(url)
        digest = hashlib.sha256(url.encode()).hexdigest()[:16]
        if system.type_name == "local":
            journals = Path(folder)
            make_private_folder(journals)
            return cls(system, folder, journals, "")
        prefix = f"chronoline-receipts-{digest}"
        found = temporary_folders(prefix)
        own = found[0] if found else Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
        return cls(system, folder, own, prefix)

    def journal_folders(self) -> list[Path]:
        """All folders with journals: two processes may have made one each at the same moment."""
        return temporary_folders(self.prefix) if self.prefix else [self.journals]

    @property
    def renames(self) -> bool:
        return self.system.type_name in _RENAMED


class Receipts(Closable):
    """The receipts of one task, and the folder that they share with all others.

    Journals of others are collected too: those of ended tasks, and of killed ones. The folder is opened by
    the first use, so that a task without it can fire.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._journal: ReceiptJournal | None = None
        self._unwritten: list[pa.RecordBatch] = []
        self._unwritten_rows = 0
        self._retry_at_s = 0.0

    @cached_property
    def _place(self) -> _ReceiptFolder:
        return _ReceiptFolder.open(self._url)

    def write(self, fired: Sequence[Fired], node: str) -> None:
        """Writes receipts so that they survive this process; if that fails, a later call or `close` does."""
        if self._journal is not None and _age_s(self._journal) >= COLLECT_AFTER_S:
            self._close_journal()
            # In another thread: a lane that goes on for long must not wait for it.
            threading.Thread(
                target=self._collect_beside, name="chronoline-receipts", daemon=True
            ).start()
        self._take_left()
        self._keep(as_batch(fired, node))
        if time.monotonic() < self._retry_at_s:
            return
        try:
            self._write_kept()
        except RECEIPT_ERRORS as error:
            self._retry_at_s = time.monotonic() + _RETRY_S
            logger.warning(
                "%d receipts are not written yet, and are tried again: %s",
                self._unwritten_rows,
                error,
            )

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._unwritten_rows + batch.num_rows > _MOST_UNWRITTEN:
            logger.error("%d receipts are lost: too many wait to be written", batch.num_rows)
            return
        self._unwritten.append(batch)
        self._unwritten_rows += batch.num_rows

    def _take_left(self) -> None:
        for batch in _left.pop(self._url, ()):
            self._keep(batch)

    def _write_kept(self) -> None:
        while self._unwritten:
            if self._journal is None:
                self._journal = ReceiptJournal(self._place.journals)
            try:
                self._journal.write(self._unwritten[0])
            except BaseException:
                self._close_journal()  # the next write opens another
                raise
            self._unwritten_rows -= self._unwritten.pop(0).num_rows

    def close(self, after_s: float = COLLECT_AFTER_S) -> None:
        """Writes what is left, closes the journal, and collects if it is time.

        With 0 there is no later task, and what cannot be written is lost.
        """
        self._take_left()
        try:
            self._write_kept()
        except RECEIPT_ERRORS:
            if after_s:
                _left[self._url] = self._unwritten
            else:
                logger.error(
                    "%d receipts are lost: they could not be written", self._unwritten_rows
                )
            self._unwritten, self._unwritten_rows = [], 0
            raise
        finally:
            self._close_journal()
        self.collect(after_s)

    def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def _collect_beside(self) -> None:
        try:
            self.collect()
        except RECEIPT_ERRORS as error:
            logger.warning("receipts remain in journals for now: %s", error)

    def collect(self, after_s: float = COLLECT_AFTER_S) -> None:
        """Makes Parquet files of the journals that nobody writes, if the oldest is `after_s` old."""
        for folder in self._place.journal_folders():
            self._collect_in(folder, after_s)

    def _collect_in(self, folder: Path, after_s: float) -> None:
        with _locked(folder / ".collector", "ab") as collector:
            if collector is None:
                return  # another process collects
            paths = sorted(folder.glob(f"{_JOURNAL}*"))
            if not paths or time.time() - _begun_s(paths[0].name) < after_s:
                return
            self._remove_orphans(folder)
            for first in range(0, len(paths), _MOST_JOURNALS):
                self._collect_some(paths[first : first + _MOST_JOURNALS])

    def _collect_some(self, paths: Sequence[Path]) -> None:
        with ExitStack() as locks:
            # NFS locks only what is open for writing.
            files = {path: locks.enter_context(_locked(path, "r+b")) for path in paths}
            free = {path: file for path, file in files.items() if file}
            self._archive(list(free.values()))
            for path in free:
                path.unlink()

    def _archive(self, journals: Sequence[IO[bytes]]) -> None:
        """Writes the rows of journals as one file; without rows there is none."""
        name = f"{_ARCHIVE}{time.time_ns() // 1_000_000}-{uuid.uuid4().hex}.parquet"
        renamed = self._place.renames
        path = f"{self._place.folder}/{'.' * renamed}{name}"
        try:
            if self._write_rows(path, journals) and renamed:
                self._place.system.move(path, f"{self._place.folder}/{name}")
        except BaseException:
            with suppress(*RECEIPT_ERRORS):
                self._place.system.delete_file(path)  # the journals remain
            raise

    def _write_rows(self, path: str, journals: Sequence[IO[bytes]]) -> bool:
        """Returns whether there was a row, and so a file."""
        writer: pq.ParquetWriter | None = None
        try:
            for batches in _gathered(journals):
                writer = writer or pq.ParquetWriter(path, SCHEMA, filesystem=self._place.system)
                writer.write_table(pa.Table.from_batches(batches, SCHEMA))
        finally:
            if writer is not None:
                writer.close()
        return writer is not None

    def _remove_orphans(self, folder: Path) -> None:
        """Deletes files that killed processes did not complete."""
        for path in folder.glob(f"{_NEW}*"):
            if _is_orphan(path.name):
                path.unlink(missing_ok=True)
        if not self._place.renames:
            return
        for found in self._place.system.get_file_info(
            fs.FileSelector(self._place.folder, allow_not_found=True)
        ):
            if found.base_name.startswith(f".{_ARCHIVE}") and _is_orphan(found.base_name):
                with suppress(FileNotFoundError):  # another machine deleted it
                    self._place.system.delete_file(found.path)


_ROW_GROUP = 100_000


def _gathered(journals: Sequence[IO[bytes]]) -> Iterator[list[pa.RecordBatch]]:
    """The batches of journals, in lists of about a row group: a file of many small ones is slow to read."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for journal in journals:
        for batch in _batches(journal):
            gathered.append(batch)
            rows += batch.num_rows
            if rows >= _ROW_GROUP:
                yield gathered
                gathered, rows = [], 0
    if gathered:
        yield gathered


def _batches(journal: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """The complete batches of a journal: the process may have been killed while it wrote the last one."""
    try:
        yield from ipc.open_stream(journal)
    except pa.ArrowInvalid:
        return
    except OSError as error:
        if (
            error.errno is not None
        ):  # the disk failed; Arrow's own error about a torn batch has no number
            raise


@contextmanager
def _locked(path: Path, mode: str) -> Iterator[IO[bytes] | None]:
    """Opens a file under its lock; None if another process has the lock, or deleted the file."""
    try:
        file = open_private(path, mode)
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file if os.path.exists(path) else None


def _age_s(journal: ReceiptJournal) -> float:
    return time.monotonic() - journal.opened_s


def _begun_s(name: str) -> float:
    """The time in the name of a journal, or of a file that is not complete; a foreign file is never old."""
    moment = name.split("-")[1]
    return int(moment) / 1000 if moment.isdecimal() else math.inf


def _is_orphan(name: str) -> bool:
    return time.time() - _begun_s(name) > _ORPHAN_AFTER_S
