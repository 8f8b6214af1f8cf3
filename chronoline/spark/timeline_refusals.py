"""Refused rows as Parquet: a table of the whole rows, each with its reason.

Each task writes one file, under a hidden name until it is through; a repeated task replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from chronoline.core.errors import InvalidInput
from chronoline.core.outcome import Outcome
from chronoline.spark.locality import check_local

FAIL = "fail"
_STAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "due": _STAMP,
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        "expires": _STAMP,
        "refusal": pa.string(),
        "reason": pa.string(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """A folder, by its URL or its path."""

    url: str

    def open(self) -> tuple[pa.fs.FileSystem, str]:
        if self.url.startswith("file:"):
            check_local(f"the folder {self.url} for refusals", "use one that all of them reach")
        system, path = pa.fs.FileSystem.from_uri(self.url)
        return system, path.rstrip("/")

    def make_readable(self) -> None:
        """Makes the table, even if it stays empty."""
        system, path = self.open()
        system.create_dir(path, recursive=True)
        files = system.get_file_info(pa.fs.FileSelector(path))
        if not any(each.base_name.endswith(".parquet") for each in files):
            pq.write_table(SCHEMA.empty_table(), f"{path}/none.parquet", filesystem=system)


def find_folder(option: str) -> Refusals | None:
    """The folder of refused rows, from the option `refusals`; None if a refusal fails the job."""
    if option.lower() == FAIL:
        return None
    local = "://" not in option and not option.startswith("file:")
    url = Path(option).absolute().as_uri() if local else option
    try:
        pa.fs.FileSystem.from_uri(url)
    except (ValueError, OSError, NotImplementedError) as error:
        raise InvalidInput(
            f"option 'refusals' cannot be {option!r}: write {FAIL!r}, or the path or URL of a folder"
            f" ({error})"
        ) from error
    return Refusals(url=url)


class RefusedRows:
    """The refused rows of one task. Without a folder it keeps nothing."""

    def __init__(self, refusals: Refusals | None, write: str, partition: int, attempt: str) -> None:
        self._refusals = refusals
        self._name = f"{write}-{partition:05}.parquet"
        self._hidden = f".{self._name}.{attempt}"
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._writer is not None and self._refusals is not None:
            self._writer.close()
            system, path = self._refusals.open()
            system.delete_file(f"{path}/{self._hidden}")

    def add(
        self, batch: pa.RecordBatch, places: Sequence[int], outcomes: Sequence[Outcome]
    ) -> None:
        """These rows of a batch, refused with these outcomes."""
        if self._refusals is None:
            return
        if self._writer is None:
            system, path = self._refusals.open()
            system.create_dir(path, recursive=True)
            self._writer = pq.ParquetWriter(f"{path}/{self._hidden}", SCHEMA, filesystem=system)
        chosen = batch.take(pa.array(places))
        columns = {
            name: chosen.column(name).cast(SCHEMA.field(name).type) for name in chosen.schema.names
        }
        columns["refusal"] = pa.array([str(each.refusal) for each in outcomes], pa.string())
        columns["reason"] = pa.array([each.reason for each in outcomes], pa.string())
        arrays = [columns.get(field.name, pa.nulls(len(places), field.type)) for field in SCHEMA]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))

    def keep(self) -> None:
        """Makes the file visible to readers."""
        if self._writer is not None and self._refusals is not None:
            self._writer.close()
            self._writer = None
            system, path = self._refusals.open()
            system.move(f"{path}/{self._hidden}", f"{path}/{self._name}")
