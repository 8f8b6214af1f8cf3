"""Files and folders that their user alone can read, whatever the umask.

Only new ones: a file or a folder that is there keeps its mode, which the operator may have chosen.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_private(path: Path | str, mode: str) -> Any:
    """Opens a file, in binary or as UTF-8. If that makes it, others cannot read it."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def make_private_file(path: Path | str) -> None:
    """Makes an empty file unless there is one."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))


def make_private_folder(folder: Path) -> None:
    """Makes a folder and its parents unless they are there."""
    if not folder.is_dir():
        make_private_folder(folder.parent)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def is_open_to_others(path: Path) -> bool:
    """Whether every user of the machine can read or write a file, or a file in a folder."""
    try:
        if path.is_dir():
            return _lets_in(path) and any(map(_is_open, path.iterdir()))
        return _lets_in(path.parent) and _is_open(path)
    except OSError:  # this user cannot look, or it is gone
        return False


def _lets_in(folder: Path) -> bool:
    return bool(folder.resolve().stat().st_mode & stat.S_IXOTH)


def _is_open(path: Path) -> bool:
    status = path.lstat()
    if stat.S_ISDIR(status.st_mode):
        return bool(status.st_mode & stat.S_IXOTH)
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & (stat.S_IROTH | stat.S_IWOTH))


def temporary_folders(prefix: str) -> list[Path]:
    """The folders with this prefix in the temporary folder that are this user's own.

    Everybody can make a folder or a link there under any name: those of others do not count.
    """
    found = sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*"))
    return [folder for folder in found if is_own_folder(folder)]


def is_own_folder(path: Path) -> bool:
    """Whether this is a folder of this user, and no link, in which nobody else can write."""
    try:
        status = path.lstat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & others
    )
