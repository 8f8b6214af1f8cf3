"""A real PgBouncer for tests: a pooler in front of a PostgreSQL server.

The program is taken from PATH. If it is missing, Debian's packages are fetched once, without root, into
the cache folder; they are not installed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from chronoline.runtime.child_process import Server
from chronoline_bench.servers.debian import fetch

_REMEDY = "install pgbouncer, so that it is on PATH"
_OTHER_USER = "nobody"


class PgBouncerServer(Server):
    """A PgBouncer on its own port of 127.0.0.1, in front of the databases of one PostgreSQL server."""

    name = "PgBouncer"

    def __init__(
        self,
        folder: Path,
        server_url: str,
        *,
        pool_mode: Literal["transaction", "session"],
        options: Mapping[str, str | Path] | None = None,
    ) -> None:
        """`options` are further settings, such as those of TLS, in the place of the server's own."""
        self._folder = folder.absolute()
        self._server = urlsplit(server_url)
        self._pool_mode = pool_mode
        self._given = dict(options or {})
        self._program: Path | None = None
        self._libraries: Path | None = None
        super().__init__()

    def url(self, database: str) -> str:
        """Returns the URL of a database through it; valid from the first start on."""
        return f"postgresql://{self._server.username}@127.0.0.1:{self._port}/{database}"

    def _prepare(self) -> None:
        if installed := shutil.which("pgbouncer"):
            self._program = Path(installed)
        else:
            self._program = fetch("pgbouncer", "usr/sbin/pgbouncer", remedy=_REMEDY)
            cares = fetch("libc-ares2", "usr/lib/*/libcares.so.2*", remedy=_REMEDY)
            self._libraries = cares.parent
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = [
            "[databases]",
            f"* = host=127.0.0.1 port={self._server.port} user={self._server.username}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self._port}",
            "unix_socket_dir =",
            *(f"{name} = {value}" for name, value in ({"auth_type": "any"} | self._given).items()),
            f"pool_mode = {self._pool_mode}",
            "default_pool_size = 4",
        ]
        if os.geteuid() == 0:
            settings.append(f"user = {_OTHER_USER}")  # PgBouncer refuses to run as root
        self._settings_path.write_text("\n".join(settings) + "\n", encoding="utf-8")

    @property
    def _settings_path(self) -> Path:
        return self._folder / "pgbouncer.ini"

    def _command(self) -> Sequence[str | Path]:
        assert self._program is not None
        return [self._program, self._settings_path]

    def _options(self) -> dict[str, Any]:
        if self._libraries is None:
            return {}
        return {"env": {**os.environ, "LD_LIBRARY_PATH": str(self._libraries)}}

    def _is_ready(self) -> bool:
        return self._listens()
