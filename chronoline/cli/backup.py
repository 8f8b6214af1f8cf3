"""`chronoline backup` and `chronoline restore`: copies of a store in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chronoline.cli.node import Data, StoreUrl, load
from chronoline.cli.options import Config
from chronoline.core.errors import InvalidInput, SchemaTooNew, StoreError
from chronoline.databases.queries import load_migrations
from chronoline.databases.sqlite import TIMELINE_FILE
from chronoline.databases.sqlite_facts import copy_database, foreign_object, read_facts
from chronoline.node.settings import NodeSettings
from chronoline.runtime.private_files import make_private_folder
from chronoline.runtime.store_url import POSTGRES, scheme_of, sqlite_path

_CHECK_S = 3_600.0

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


def backup(
    file: BackupFile, config: Config = None, *, data: Data = None, store: StoreUrl = None
) -> None:
    """Copy a SQLite store into a new file, while its node runs.

    chronoline backup monday.db
    chronoline backup --config node.toml /backups/monday.db

    The copy is the store as of one moment, compact and checked for damage. It
    takes as much room as the store. The folder's tokens are not in it. A
    store in PostgreSQL is backed up by its own tools, such as pg_dump.
    """
    source = _sqlite_file(
        load(config, data=data, store=store),
        f"pg_dump --format=custom --schema=chronoline --file={file} URL",
    )
    if not source.exists():
        raise InvalidInput(f"there is no store {str(source)!r}; name it by --data or --config")
    _check(source)
    copy_database(source, file)
    print(f"{file}: {file.stat().st_size:,} bytes")


def restore(
    file: BackupFile, config: Config = None, *, data: Data = None, store: StoreUrl = None
) -> None:
    """Make a SQLite store of a backup. There must not be one yet.

    chronoline restore monday.db
    chronoline restore --config node.toml /backups/monday.db

    Stop the node and move its store away before, with the files that end in
    -wal and -shm. Messages that were acked after the backup are delivered
    again, those that were sent after it are gone. The backup stays as it is.
    """
    target = _sqlite_file(
        load(config, data=data, store=store),
        f"pg_restore --exit-on-error --dbname=URL {file}, into a database without the schema chronoline",
    )
    if not file.exists():
        raise InvalidInput(f"there is no file {str(file)!r}")
    _check(file)
    left = [
        path
        for end in ("", "-wal", "-shm")
        if (path := target.with_name(f"{target.name}{end}")).exists()
    ]
    if left:
        raise InvalidInput(
            f"{str(left[0])!r} is there: stop its node, and move it away together with the files that end in "
            "-wal and -shm; nothing was changed"
        )
    make_private_folder(target.parent)
    copy_database(file, target)
    print(f"{target}: {target.stat().st_size:,} bytes")


def _sqlite_file(settings: NodeSettings, command: str) -> Path:
    """The file of the store; for PostgreSQL an error that names its own command."""
    scheme = scheme_of(settings.store)
    if scheme in POSTGRES:
        raise InvalidInput(f"the store is in PostgreSQL, which has its own tool: {command}")
    if scheme != "sqlite":
        raise InvalidInput("the store is in memory, and ends with its node")
    return Path(sqlite_path(settings.store))


def _check(path: Path) -> None:
    """Refuses a file that is no store, is damaged, has a foreign schema, or is of a newer version."""
    facts = read_facts(path, check_s=_CHECK_S)
    if facts.application_id != TIMELINE_FILE:
        raise InvalidInput(f"{str(path)!r} is not a store of messages")
    if facts.damage:
        raise StoreError(f"{str(path)!r} is damaged: {facts.damage}")
    scripts = load_migrations("chronoline.stores.sqlite")
    if facts.schema_version > len(scripts):
        raise SchemaTooNew(
            f"{str(path)!r} has schema version {facts.schema_version}, and this Chronoline knows up to "
            f"{len(scripts)}: upgrade Chronoline"
        )
    if (foreign := foreign_object(path, scripts[: facts.schema_version])) is not None:
        raise StoreError(
            f"{str(path)!r} has a {foreign} that Chronoline does not make: it would change messages, or run "
            "with each write; nothing was changed"
        )
