"""A real beanstalkd for tests and benchmarks: a work queue with delays, to measure a broker beside.

The program is taken from PATH. Where it is not there Debian's package is fetched once, without root, into the
cache folder; it is not installed.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chronoline.core.errors import MissingExtra
from chronoline.testing.jars import cache_folder

try:
    from chronoline.testing.servers import Server
except ModuleNotFoundError as error:  # psutil
    raise MissingExtra("a beanstalkd for tests needs a package: pip install psutil") from error

_PACKAGE = "beanstalkd"
_PROGRAM = Path("usr/bin/beanstalkd")
_PATIENCE_S = 60
_IMPATIENT = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10")
_SAID_WHEN_FAILED = 500


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
    folder = cache_folder() / f"{_PACKAGE}-{platform.machine()}"
    if not folder.is_dir():
        _make(folder)
    return folder / _PROGRAM


def _make(folder: Path) -> None:
    """The folder appears as a whole. Of those who make it at once the first one wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as made:
        _run("apt-get", *_IMPATIENT, "download", _PACKAGE, within=made)
        for package in Path(made).glob("*.deb"):
            _run("dpkg-deb", "-x", str(package), "files", within=made)
        files = Path(made, "files")
        if not (files / _PROGRAM).is_file():
            raise _missing(f"the package has no {_PROGRAM}")
        try:
            files.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _run(program: str, *arguments: str, within: str) -> None:
    if shutil.which(program) is None:
        raise _missing(f"there is no {program}")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=within,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _missing(f"{program} took more than {_PATIENCE_S} s") from None
    if done.returncode:
        raise _missing(f"{program} said: {(done.stdout + done.stderr)[-_SAID_WHEN_FAILED:]}")


def _missing(reason: str) -> MissingExtra:
    return MissingExtra(
        f"beanstalkd is not installed, and Debian's package could not be fetched: {reason.strip()}; "
        "install beanstalkd, so that it is on PATH"
    )
