"""Files of exported messages: JSON lines, and Parquet."""

from __future__ import annotations

import json
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from chronoline.cli.output import json_line
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_BODY_BYTES, history_problem, message_problem
from chronoline.core.message import SavedMessage
from chronoline.runtime.extras import needs
from chronoline.runtime.json_bytes import json_bytes, json_headers, parse_json_bytes
from chronoline.runtime.private_files import open_private

STDIO = "-"
_READ_ROWS = 500
_GROUP_ROWS = 10_000
"""The rows of a Parquet row group, which is in memory until it is written."""
_GROUP_BYTES = 64 * 1024 * 1024
_MOST_LINE_BYTES = 256 * 1024 * 1024


class FileFormat(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"


def format_of(path: str, asked: FileFormat | None) -> FileFormat:
    """The format that was asked for, else that of the file's name, else JSON lines."""
    if asked is not None:
        return asked
    return FileFormat.PARQUET if path.endswith((".parquet", ".pq")) else FileFormat.JSONL


class ExportFile:
    """A file that is complete, or not there: it gets its name when the block ends without an error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._part = Path(f"{path}.part")
        self._file: BinaryIO | None = None

    @property
    def file(self) -> BinaryIO:
        assert self._file is not None
        return self._file

    def __enter__(self) -> Self:
        if self._path == STDIO:
            self._check_reader()
            self._file = sys.stdout.buffer
            return self
        try:
            self._part.unlink(
                missing_ok=True
            )  # of an export that was killed, perhaps of another mode
            self._file = open_private(self._part, "xb")
        except OSError as error:
            raise InvalidInput(f"{self._path!r} cannot be written: {error.strerror}") from None
        return self

    def _check_reader(self) -> None:
        """Raises `InvalidInput` if stdout must not get the file."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path == STDIO:
            if error is None:
                self.end()
                self.file.flush()
            return
        is_whole = False
        try:
            with self.file:
                if error is None:
                    self.end()
                    self.file.flush()
                    os.fsync(self.file.fileno())
            if isinstance(error, OSError):
                raise error
            if error is None:
                self._part.replace(self._path)
                is_whole = True
        except OSError as problem:
            raise InvalidInput(
                f"{self._path!r} cannot be written: {problem.strerror or problem}"
            ) from None
        finally:
            if not is_whole:
                with suppress(OSError):
                    self._part.unlink()

    @abstractmethod
    def write(self, messages: Sequence[SavedMessage]) -> None: ...

    def end(self) -> None:
        """Writes what is left."""


class _JsonLines(ExportFile):
    def write(self, messages: Sequence[SavedMessage]) -> None:
        self.file.write(b"".join(json_line(_fields(each)) for each in messages))


class _Parquet(ExportFile):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._parquet = _parquet()
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def _check_reader(self) -> None:
        if sys.stdout.isatty():
            raise InvalidInput("Parquet is not for terminals: name a file, or redirect stdout")

    def write(self, messages: Sequence[SavedMessage]) -> None:
        for each in messages:
            self._rows.append(_row(each))
            self._bytes += each.content_bytes
            if len(self._rows) >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
                self._write_group()

    def end(self) -> None:
        if self._rows or self._writer is None:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        pa, pq = self._parquet
        schema = _schema(pa)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.file, schema, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema))
        self._rows, self._bytes = [], 0


def export_file(path: str, file_format: FileFormat) -> ExportFile:
    return _Parquet(path) if file_format is FileFormat.PARQUET else _JsonLines(path)


def read_export(path: str, file_format: FileFormat) -> Iterator[SavedMessage]:
    """The messages of a file. Raises `InvalidInput`, with the number of the line or row."""
    rows = _parquet_rows(path) if file_format is FileFormat.PARQUET else _json_rows(path)
    for number, row in rows:
        try:
            yield _saved(row)
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            words = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InvalidInput(f"{path!r}, {number}: {words}") from None


def _json_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with sys.stdin.buffer if path == STDIO else Path(path).open("rb") as file:
            number = 0
            while line := file.readline(_MOST_LINE_BYTES):
                number += 1
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InvalidInput(f"{path!r}, line {number}: no JSON: {error}") from None
                if not isinstance(row, dict):
                    raise InvalidInput(f"{path!r}, line {number}: no JSON object")
                yield f"line {number}", row
    except OSError as error:
        raise InvalidInput(f"{path!r} cannot be read: {error.strerror}") from None


def _parquet_rows(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if path == STDIO:
        raise InvalidInput("Parquet cannot be read from stdin: name a file")
    pa, pq = _parquet()
    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(_READ_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    headers = [(each["name"], each["value"]) for each in row["headers"] or ()]
                    yield f"row {number}", {**row, "headers": headers}
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"{path!r} cannot be read as Parquet: {error}") from None


def _parquet() -> tuple[Any, Any]:
    with needs("Parquet", "parquet"):
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra
    return pa, pq


def _schema(pa: Any) -> Any:
    header = pa.struct([pa.field("name", pa.string(), False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("due_ms", pa.int64(), False),
            pa.field("expires_ms", pa.int64()),
            pa.field("attempts", pa.int64(), False),
            pa.field("producer_group", pa.string(), False),
            pa.field("key", pa.binary()),
            pa.field("headers", pa.list_(header), False),
            pa.field("body", pa.binary()),
            pa.field("reason", pa.string()),
            pa.field("died_ms", pa.int64()),
        ]
    )


def _row(saved: SavedMessage) -> dict[str, Any]:
    return {
        "id": saved.id,
        "due_ms": saved.due,
        "expires_ms": saved.expires,
        "attempts": saved.attempts,
        "producer_group": saved.producer_group,
        "key": saved.key,
        "headers": [{"name": name, "value": value} for name, value in saved.headers],
        "body": saved.body,
        "reason": saved.reason if saved.is_dead else None,
        "died_ms": saved.died if saved.is_dead else None,
    }


def _fields(saved: SavedMessage) -> dict[str, Any]:
    return {
        **_row(saved),
        "key": json_bytes(saved.key),
        "headers": json_headers(saved.headers),
        "body": json_bytes(saved.body),
    }


def _saved(row: dict[str, Any]) -> SavedMessage:
    """Raises `InvalidInput` for what no topic takes; where a body is too large, its topic says."""
    saved = SavedMessage(
        id=_typed(row["id"], str, "id"),
        due=_typed(row["due_ms"], int, "due_ms"),
        expires=None
        if row.get("expires_ms") is None
        else _typed(row["expires_ms"], int, "expires_ms"),
        attempts=_typed(row.get("attempts", 0), int, "attempts"),
        producer_group=_typed(row["producer_group"], str, "producer_group"),
        key=_bytes(row.get("key"), "key"),
        headers=tuple(
            (_typed(name, str, "the name of a header"), _bytes(value, "the value of a header"))
            for name, value in row.get("headers") or ()
        ),
        body=_bytes(row.get("body"), "body"),
        reason=_typed(row.get("reason") or "", str, "reason"),
        died=_typed(row.get("died_ms") or 0, int, "died_ms"),
    )
    if problem := history_problem(saved) or message_problem(saved.to_new(), MAX_BODY_BYTES):
        raise InvalidInput(problem)
    return saved


def _typed(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise InvalidInput(f"{what} must be {'text' if kind is str else 'a whole number'}")
    return value


def _bytes(value: Any, what: str) -> bytes | None:
    return value if isinstance(value, bytes) else parse_json_bytes(value, what)
