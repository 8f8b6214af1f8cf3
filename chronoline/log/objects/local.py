"""Objects as files of a folder, each on disk before anyone speaks of it.

Plain files, not the object-store library: that one does not flush, and takes about seven times as long to
read a few hundred bytes. After a failed flush the process stops: nobody knows what the disk holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from chronoline.core.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from chronoline.databases.sqlite import stop_process
from chronoline.log.contract import ObjectMissing, Objects, StoredObject

_FOLDER_CHARACTERS = 5
"""Of a name, which begins with its time: a folder holds about two hours."""
_SUFFIX = ".events"
_NO_ROOM = 28  # ENOSPC


class LocalObjects(Objects):
    """Files below a folder."""

    def __init__(
        self,
        folder: Path,
        *,
        on_failed_flush: Callable[[BaseException], NoReturn] = stop_process,
    ) -> None:
        self._root = folder
        self._on_failed_flush = on_failed_flush
        try:
            self._make_folder(folder)
        except OSError as error:
            raise StoreUnavailable(f"the folder {str(folder)!r} cannot be made: {error}") from error

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            self._make_folder(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                self._flush(descriptor)
            finally:
                os.close(descriptor)
            self._flush_folder(path.parent)
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno == _NO_ROOM:
                raise StoreFull(f"no room is left below {str(self._root)!r}") from error
            raise StoreUnavailable(f"object {name!r} cannot be written: {error}") from error

    def get(self, name: str, offset: int, length: int) -> bytes:
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY)
        except FileNotFoundError as error:
            raise ObjectMissing(f"there is no object {name!r}") from error
        except OSError as error:
            raise OutcomeUnknown(f"object {name!r} cannot be read: {error}") from error
        try:
            return os.pread(descriptor, length, offset)
        finally:
            os.close(descriptor)

    def list(self) -> Iterator[StoredObject]:
        for path in self._root.glob(f"*/*{_SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            modified_ms = status.st_mtime_ns // 1_000_000
            yield StoredObject(path.name.removesuffix(_SUFFIX), status.st_size, modified_ms)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def close(self) -> None:
        pass

    def _path(self, name: str) -> Path:
        return self._root / name[:_FOLDER_CHARACTERS] / f"{name}{_SUFFIX}"

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            self._flush_folder(folder.parent)

    def _flush_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            self._flush(descriptor)
        finally:
            os.close(descriptor)

    def _flush(self, descriptor: int) -> None:
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._on_failed_flush(error)
