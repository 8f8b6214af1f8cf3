"""Objects as files of a folder, each on disk before it is referred to.

Plain files, not the object-store library: that one does not flush, and takes about seven times as long to
read a few hundred bytes. After a failed flush the process stops: the content of the disk is unknown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from chronoline.core.errors import StoreError, StoreFull, StoreUnavailable
from chronoline.databases.sqlite import stop_process
from chronoline.log.contract import MARK, ObjectMissing, Objects, StoredObject
from chronoline.log.objects.address import SUFFIX, name_of, path_of
from chronoline.runtime.private_files import FILE_MODE, FOLDER_MODE

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


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
        self._made: set[Path] = set()
        """Folders whose names are on disk: one for about two hours."""
        try:
            self._make_folder(folder)
        except OSError as error:
            raise StoreUnavailable(f"the folder {str(folder)!r} cannot be made: {error}") from error

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            self._make_folder(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        except FileExistsError as error:
            self._check_same(name, data, error)
        except OSError as error:
            self._made.discard(path.parent)  # another process may have removed it
            raise self._not_put(name, error) from error
        else:
            try:
                self._write(descriptor, data)
                self._flush_folder(path.parent)
            except OSError as error:
                with suppress(OSError):  # a leftover is an orphan, and swept
                    path.unlink(missing_ok=True)
                raise self._not_put(name, error) from error

    def get(self, name: str, offset: int, length: int) -> bytes:
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY)
            try:
                return os.pread(descriptor, length, offset)
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise ObjectMissing(f"there is no object {name!r}") from error
        except OSError as error:
            raise StoreUnavailable(f"object {name!r} cannot be read: {error}") from error

    def list(self) -> Iterator[StoredObject]:
        for path in self._root.glob(f"*/*{SUFFIX}"):
            name = name_of(path.relative_to(self._root).as_posix())
            if name is None:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreUnavailable(f"object {name!r} cannot be read: {error}") from error
            yield StoredObject(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._path(name).unlink(missing_ok=True)
            except OSError as error:
                raise StoreUnavailable(f"object {name!r} cannot be deleted: {error}") from error

    def mark(self, log_id: str) -> str:
        """Written beside and linked in: half a mark is never visible, and a crash leaves none."""
        path = self._path(MARK)
        beside = path.with_name(f"{uuid4().hex}.new")
        try:
            self._make_folder(path.parent)
            self._write(
                os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), log_id.encode()
            )
            try:
                os.link(beside, path)
            except FileExistsError:
                pass  # another process was faster
            except OSError:  # a disk without links
                return super().mark(log_id)
            self._flush_folder(path.parent)
        except OSError as error:
            raise self._not_put(MARK, error) from error
        finally:
            with suppress(OSError):  # a leftover does no harm
                beside.unlink(missing_ok=True)
        return self.marked() or log_id

    def close(self) -> None:
        pass

    def _path(self, name: str) -> Path:
        return self._root / path_of(name)

    def _write(self, descriptor: int, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            self._flush(descriptor)
        finally:
            os.close(descriptor)

    def _check_same(self, name: str, data: bytes, error: FileExistsError) -> None:
        if self.get(name, 0, len(data) + 1) != data:
            raise StoreError(
                f"object {name!r} exists already, with other bytes; nothing was changed"
            ) from error

    def _not_put(self, name: str, error: OSError) -> StoreError:
        if error.errno in _NO_ROOM:
            return StoreFull(f"no room is left below {str(self._root)!r}")
        return StoreUnavailable(f"object {name!r} cannot be written: {error}")

    def _make_folder(self, folder: Path) -> None:
        """Also flushes an existing folder: its maker may not have done that yet."""
        if folder not in self._made:
            if not folder.parent.is_dir():
                self._make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            self._flush_folder(folder.parent)
            self._made.add(folder)

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
