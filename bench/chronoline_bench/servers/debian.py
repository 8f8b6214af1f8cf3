"""Debian's packages for tests and benchmarks: fetched once, without root, into the cache folder.

Nothing is installed: each package's files lie in their own folder.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from chronoline.core.errors import MissingExtra
from chronoline_bench.servers.jars import cache_folder

_PATIENCE_S = 60
_IMPATIENT = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10")
_SAID_WHEN_FAILED = 500


def fetch(package: str, file: str, *, remedy: str) -> Path:
    """Returns a file of a package, which is fetched if it is missing; `file` may be a pattern.

    Raises `MissingExtra` with the remedy.
    """
    folder = cache_folder() / f"{package}-{platform.machine()}"
    try:
        if not folder.is_dir():
            _make(folder, package, file)
        return _find(folder, file)
    except _Failed as error:
        raise MissingExtra(
            f"{package} is not installed, and Debian's package could not be fetched: {error}; {remedy}"
        ) from None


class _Failed(Exception):
    """The package could not be fetched."""


def _find(folder: Path, file: str) -> Path:
    found = next((path for path in sorted(folder.glob(file)) if path.is_file()), None)
    if found is None:
        raise _Failed(f"the package has no {file}")
    return found


def _make(folder: Path, package: str, file: str) -> None:
    """Makes the folder atomically. Of concurrent processes the first one wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as made:
        _run("apt-get", *_IMPATIENT, "download", package, within=made)
        for archive in Path(made).glob("*.deb"):
            _run("dpkg-deb", "-x", str(archive), "files", within=made)
        files = Path(made, "files")
        _find(files, file)
        try:
            files.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _run(program: str, *arguments: str, within: str) -> None:
    if shutil.which(program) is None:
        raise _Failed(f"there is no {program}")
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
        raise _Failed(f"{program} took more than {_PATIENCE_S} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr)[-_SAID_WHEN_FAILED:]
        raise _Failed(f"{program} said: {said.strip()}")
