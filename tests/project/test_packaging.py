"""What a user installs: the whole package, a command that answers, one version, locked parts."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import chronoline

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_the_wheel_holds_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    present = {
        path.relative_to(ROOT).as_posix()
        for package in ("chronoline", "pyspark_chronoline", "pyspark_chronoline_log")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == present
    assert "chronoline/py.typed" in shipped
    assert any(name.endswith(".sql") for name in shipped)


def test_the_command_answers() -> None:
    command = Path(sysconfig.get_path("scripts"), "chronoline")
    done = subprocess.run([command, "--help"], check=True, capture_output=True, text=True)
    assert "Usage:" in done.stdout


def test_there_is_one_version(pyproject: dict[str, Any]) -> None:
    declared = pyproject["project"]["version"]
    assert chronoline.__version__ == declared
    assert version("chronoline") == declared


def test_every_dependency_is_locked(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *pyproject["dependency-groups"].values(),
    ]
    wanted = {re.split(r"[^\w.-]", need, maxsplit=1)[0] for group in groups for need in group}
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert wanted <= set(re.findall(r"^([\w.-]+)==", lock, re.M))
