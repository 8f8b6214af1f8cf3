"""Chromium for tests and pictures of the console: the one of this machine, or Debian's.

Debian's is not installed: its files, and those of the libraries that this machine lacks, lie in the cache
folder. Fonts come with it, since a page without fonts has no text.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chronoline.core.errors import MissingExtra
from chronoline_bench.servers.jars import cache_folder

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "fonts-dejavu-core")
_PROGRAM = "usr/lib/chromium/chromium"
_PATIENCE_S = 300
_SAID_WHEN_FAILED = 500
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


@dataclass(frozen=True, slots=True)
class Browser:
    """A program, and the environment that it needs."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


def find_browser() -> Browser:
    """Raises `MissingExtra` if there is none and Debian's cannot be fetched."""
    for name in _PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            return Browser(Path(found))
    folder = cache_folder() / f"chromium-{platform.machine()}"
    try:
        if not (folder / _PROGRAM).is_file():
            _make(folder)
    except (subprocess.SubprocessError, OSError) as error:
        raise MissingExtra(
            f"no Chromium is installed, and Debian's could not be fetched: {_said(error)}; install chromium"
        ) from None
    return _unpacked(folder)


def _unpacked(folder: Path) -> Browser:
    libraries = sorted({str(each.parent) for each in (folder / "usr" / "lib").rglob("*.so*")})
    fonts = folder / "fonts.conf"
    if not fonts.is_file():
        fonts.write_text(
            _FONTS.format(fonts=folder / "usr" / "share" / "fonts", cache=folder / "font-cache")
        )
    return Browser(
        folder / _PROGRAM,
        {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(libraries),
            "FONTCONFIG_FILE": str(fonts),
            "XDG_DATA_DIRS": str(folder / "usr" / "share"),
        },
    )


def _make(folder: Path) -> None:
    """Makes the folder atomically. Of concurrent processes the first one wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as made:
        try:
            _download(made)
        except subprocess.CalledProcessError:  # the list of packages may be old, or missing
            _run("apt-get", "-qq", "update", within=made)
            _download(made)
        for archive in sorted(Path(made).glob("*.deb")):
            _run("dpkg-deb", "-x", str(archive), "files", within=made)
            archive.unlink()
        try:
            Path(made, "files").rename(folder)
        except OSError:
            if not (folder / _PROGRAM).is_file():
                raise


def _download(within: str) -> None:
    """The packages, with all that they need and this machine lacks."""
    plan = _run("apt-get", "-s", "install", "--no-install-recommends", *_PACKAGES, within=within)
    lacking = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _run("apt-get", "download", *sorted({*lacking, *_PACKAGES}), within=within)


def _run(program: str, *arguments: str, within: str) -> str:
    done = subprocess.run(
        [program, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=within,
        timeout=_PATIENCE_S,
        check=True,
    )
    return done.stdout


def _said(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{error.cmd[0]} said: {(error.stdout + error.stderr)[-_SAID_WHEN_FAILED:].strip()}"
    return str(error)
