"""Folders that a write fills beside the timeline: refused rows and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs

from chronoline.core.errors import InvalidInput
from chronoline.runtime.private_files import make_private_folder
from chronoline.spark.locality import check_local


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFolder:
    """A folder, by its URL."""

    url: str

    def open(self) -> tuple[pyarrow.fs.FileSystem, str]:
        if self.url.startswith("file:"):
            check_local(f"the folder {self.url}", "use one that all of them reach")
        system, path = pyarrow.fs.FileSystem.from_uri(self.url)
        return system, path.rstrip("/")

    def make(self) -> tuple[pyarrow.fs.FileSystem, str]:
        """Opens the folder, which is made if it is not there: on a disk for its user alone."""
        system, path = self.open()
        if system.type_name == "local":
            make_private_folder(Path(path))
        else:
            system.create_dir(path, recursive=True)
        return system, path

    def put_json(self, name: str, row: Mapping[str, object]) -> None:
        """Writes a file of one row; a repetition replaces it. Readers see all of it, or nothing."""
        system, path = self.make()
        with system.open_output_stream(f"{path}/.{name}.json") as out:
            out.write(json.dumps(row).encode() + b"\n")
        system.move(f"{path}/.{name}.json", f"{path}/{name}.json")


def find_folder(option: str, text: str, otherwise: str = "") -> OutputFolder:
    """The folder that an option names by its path or its URL; `otherwise` is what it takes besides."""
    local = "://" not in text and not text.startswith("file:")
    url = Path(text).absolute().as_uri() if local else text
    try:
        pyarrow.fs.FileSystem.from_uri(url)
    except (ValueError, OSError, NotImplementedError) as error:
        raise InvalidInput(
            f"option {option!r} cannot be {text!r}: write {otherwise}the path or URL of a folder ({error})"
        ) from error
    return OutputFolder(url=url)
