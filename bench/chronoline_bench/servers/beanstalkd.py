"""A real beanstalkd for tests and benchmarks: a work queue with delays, the reference of a broker.

The program is taken from PATH. If it is missing, Debian's package is fetched once, without root, into the
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

    It is durable: it flushes every write before the answer. It can be stopped and started again, with the
    same jobs and port. The start raises `MissingExtra` if the program is not available.
    """

    name = "beanstalkd"

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self._program: Path | None = None
        super().__init__()

    @property
    def port(self) -> int:
        """Its address; valid from the first start on."""
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
    """Returns the path of beanstalkd; fetches it if it is missing. Raises `MissingExtra`."""
    if installed := shutil.which(_PACKAGE):
        return Path(installed)
    return fetch(_PACKAGE, _PROGRAM, remedy="install beanstalkd, so that it is on PATH")
