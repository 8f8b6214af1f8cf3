"""Fakes of Debian's two programs, so that a test downloads nothing."""

import shutil
from pathlib import Path

import pytest


def stand_in(place: Path, monkeypatch: pytest.MonkeyPatch, *, apt_get: str, dpkg_deb: str) -> Path:
    """Make a folder with only these two programs, and an empty cache beside it."""
    folder = place / "bin"
    write(folder / "apt-get", apt_get.format(folder=folder))
    write(folder / "dpkg-deb", dpkg_deb)
    real = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: real(name, path=str(folder)))
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setenv("CHRONOLINE_CACHE", str(place / "cache"))
    return folder


def write(path: Path, text: str) -> None:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
