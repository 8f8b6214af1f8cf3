"""The state of a SQLite file for a diagnosis, and a copy of it while others use it."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from chronoline.core.errors import StoreError, StoreFull, StoreUnavailable
from chronoline.runtime.private_files import make_private_file

_LOOK_EVERY_STEPS = 10_000
_BUSY_S = 5.0
_COMMENT = re.compile(r"--[^\n]*")
_OF_SQLITE = frozenset({"sqlite_sequence", "sqlite_stat1", "sqlite_stat4"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFacts:
    """The state of a file."""

    application_id: int
    has_tables: bool
    schema_version: int
    size_bytes: int
    log_bytes: int
    """The write-ahead log, which a checkpoint moves into the file."""
    damage: str
    """The first damage that SQLite's quick check found; empty if there is none."""
    is_checked: bool
    """False if the check took too long and was ended."""


def read_facts(path: Path, *, check_s: float) -> SqliteFacts:
    """Reads the facts of an existing file. SQLite's quick check runs for `check_s` at most.

    Raises `StoreUnavailable` if the file cannot be read, `StoreError` if it is no database.
    """
    try:
        with closing(_open(path)) as connection:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (schema_version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            damage, is_checked = _check(connection, check_s)
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{str(path)!r} is not a SQLite database, or damaged: {error}") from error
    return SqliteFacts(
        application_id=application_id,
        has_tables=bool(tables),
        schema_version=schema_version,
        size_bytes=path.stat().st_size,
        log_bytes=_size(path.with_name(f"{path.name}-wal")),
        damage=damage,
        is_checked=is_checked,
    )


def foreign_object(path: Path, scripts: Sequence[str]) -> str | None:
    """Something in the schema of an existing file that these migrations do not make, such as a trigger.

    Raises `StoreUnavailable` if the file cannot be read, `StoreError` if it is no database.
    """
    with closing(sqlite3.connect(":memory:")) as model:
        for script in scripts:
            model.executescript(script)
        known = set(_objects(model))
    try:
        with closing(_open(path)) as connection:
            found = set(_objects(connection))
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be read: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{str(path)!r} is not a SQLite database, or damaged: {error}") from error
    return next((f"{kind} {name!r}" for kind, name, *_ in sorted(found - known)), None)


def _objects(connection: sqlite3.Connection) -> Iterator[tuple[str, ...]]:
    """Kind, name, table and definition of each object, without comments and the breaks of lines."""
    for kind, name, table, sql in connection.execute(
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"
    ):
        is_of_sqlite = name in _OF_SQLITE or (name.startswith("sqlite_autoindex_") and not sql)
        if not is_of_sqlite:
            yield str(kind), str(name), str(table), " ".join(_COMMENT.sub(" ", str(sql)).split())


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)
    # The schema of a file of others calls no function that has an effect.
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check(connection: sqlite3.Connection, check_s: float) -> tuple[str, bool]:
    give_up = time.monotonic() + check_s
    connection.set_progress_handler(lambda: time.monotonic() > give_up, _LOOK_EVERY_STEPS)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            return "", False
        raise
    return ("" if found == "ok" else str(found)), True


def copy_database(source: Path, target: Path) -> None:
    """Copies a database as of one moment into a new file, while other processes use it.

    The copy is compact, checked, and on disk when this returns. Raises `StoreError` if `target` exists, or
    if the copy is damaged, `StoreFull` without room for it.
    """
    if target.exists():
        raise StoreError(f"{str(target)!r} is there already; name another file")
    begun = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        begun.unlink(missing_ok=True)
        make_private_file(begun)
        with closing(_open(source)) as connection:
            connection.execute("VACUUM INTO ?", [str(begun)])
        with closing(_open(begun)) as connection:
            damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise StoreError(f"the copy of {str(source)!r} is damaged: {damage}")
        _flush(begun)
        os.link(begun, target)  # unlike a rename, it never replaces a file
        _flush(target.parent)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_FULL":
            raise StoreFull(f"no room is left for {str(target)!r}; nothing was changed") from error
        raise StoreUnavailable(
            f"{str(source)!r} cannot be copied to {str(target)!r}: {error}"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{str(source)!r} cannot be copied: {error}") from error
    except FileExistsError:
        raise StoreError(f"{str(target)!r} is there already; name another file") from None
    except OSError as error:
        raise StoreUnavailable(f"{str(target)!r} cannot be written: {error.strerror}") from error
    finally:
        begun.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
