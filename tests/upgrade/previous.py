"""The previous release: the package as of a commit of this repository, run beside the present one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

COMMIT = "451d3a1c83e860af81360f05b37ebe8ed555f38d"
"""The release that clusters in production run. A new release moves it on."""
PROGRAM = (sys.executable, "-P", "-m", "chronoline")
"""Without the folder of the caller in its path, which has the present package."""
_ROOT = Path(__file__).parents[2]
_WHERE = "import chronoline; print(chronoline.__file__)"


def unpack(folder: Path) -> dict[str, str]:
    """Unpacks the previous release; returns the environment in which `PROGRAM` runs it.

    Without the repository's history, as in a source archive, the test is skipped; in CI it fails.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", COMMIT, "chronoline"],
        cwd=_ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        reason = (
            f"The upgrade is NOT tested: the history lacks {COMMIT[:9]}: {archive.stderr.decode()}"
        )
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    environment = {"PYTHONPATH": str(folder)}
    found = run(environment, "-c", _WHERE).strip()
    assert Path(found).is_relative_to(folder), found
    return environment


def run(environment: dict[str, str], *arguments: str) -> str:
    """Runs the interpreter with the previous release; returns its stdout."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
