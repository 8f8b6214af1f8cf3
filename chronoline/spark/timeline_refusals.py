"""Refused rows as Parquet: a table of the whole rows, each with its reason.

Each task writes one file, under a hidden name until it is through; a repeated task replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from chronoline.core.outcome import Outcome
from chronoline.spark.output_folder import OutputFolder

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


def make_readable(folder: OutputFolder) -> None:
    """Makes the table, even if it stays empty."""
    system, path = folder.make()
    files = system.get_file_info(pa.fs.FileSelector(path))
    if not any(file.base_name.endswith(".parquet") for file in files):
        pq.write_table(SCHEMA.empty_table(), f"{path}/none.parquet", filesystem=system)


class RefusedRows:
    """The refused rows of one task. Without a folder it keeps nothing."""

    def __init__(
        self, folder: OutputFolder | None, write: str, partition: int, attempt: str
    ) -> None:
        self._folder = folder
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
        if self._writer is not None and self._folder is not None:
            self._writer.close()
            system, path = self._folder.open()
            system.delete_file(f"{path}/{self._hidden}")

    def add(
        self, batch: pa.RecordBatch, places: Sequence[int], outcomes: Sequence[Outcome]
    ) -> None:
        """These rows of a batch, refused with these outcomes."""
        if self._folder is None:
            return
        if self._writer is None:
            system, path = self._folder.make()
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
        if self._writer is not None and self._folder is not None:
            self._writer.close()
            self._writer = None
            system, path = self._folder.open()
            system.move(f"{path}/{self._hidden}", f"{path}/{self._name}")
