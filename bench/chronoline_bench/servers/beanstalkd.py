"""A real beanstalkd for tests and benchmarks: a work queue with delays, to measure a broker beside.

The program is taken from PATH. Where it is not there Debian's package is fetched once, without root, into the
cache folder; it is not installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from chronoline.runtime.child_process import Server
from chronoline_bench.servers.debian import fetch

_PACKAGE = "beanstalkd"
_PROGRAM = "usr/bin/beanstalkd"


class BeanstalkdServer(Server):
    """A beanstalkd with its own folder and its own port on 127.0.0.1.

    It is durable: every write is flushed before it is answered. It starts and stops as often as you like, on
    the same jobs and port. `MissingExtra` is raised at the start if the program cannot be had.
    """

    name = "beanstalkd"

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self._program: Path | None = None
        super().__init__()

    @property
    def port(self) -> int:
        """Where it is reached; valid from the first start on."""
        return self._port

    def _prepare(self) -> None:
        self._program = self._program or find_program()
        self.data_dir.mkdir(parents=True, exist_ok=True)

    def _command(self) -> Sequence[str | Path]:
        assert self._program is not None
        address = ("-l", "127.0.0.1", "-p", str(self._port))
        return [self._program, *address, "-b", self.data_dir, "-f", "0"]

    def _is_ready(self) -> bool:
        return self._listens()


def find_program() -> Path:
    """Where beanstalkd lies; fetches it where it is missing. Raises `MissingExtra`."""
    if installed := shutil.which(_PACKAGE):
        return Path(installed)
    return fetch(_PACKAGE, _PROGRAM, remedy="install beanstalkd, so that it is on PATH")
