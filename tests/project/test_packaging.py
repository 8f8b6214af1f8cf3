"""The two distributions: their wheels, their commands, one version, locked and declared dependencies."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import chronoline
from tests.project.test_layers import imported_packages

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
WHEELS = {
    ROOT: ("chronoline", "pyspark_chronoline", "pyspark_chronoline_log"),
    BENCH: ("chronoline_bench",),
}
COMMAND = Path(sysconfig.get_path("scripts"), "chronoline")

# `chronoline bench store` without the distribution chronoline-bench.
WITHOUT_BENCH = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **chosen: [e for e in found(**chosen) if e.name != "bench"]
sys.modules["chronoline_bench"] = None
from chronoline.cli.main import run
sys.argv = ["chronoline", "bench", "store", "--quick"]
run()
"""


def declared(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))


def needs(*groups: list[Any]) -> set[str]:
    """Returns the names of the required distributions; a group that another includes is given itself."""
    return {
        re.split(r"[^\w.-]", need, maxsplit=1)[0]
        for group in groups
        for need in group
        if isinstance(need, str)
    }


@pytest.fixture(scope="module", params=WHEELS, ids=("chronoline", "chronoline-bench"))
def wheel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, set[str]]:
    """A distribution's folder, and the expected files of its wheel."""
    folder: Path = request.param
    made = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)
    (path,) = made.glob("*.whl")
    return folder, {name for name in ZipFile(path).namelist() if ".dist-info/" not in name}


def test_wheel_holds_its_packages_and_nothing_else(wheel: tuple[Path, set[str]]) -> None:
    folder, shipped = wheel
    present = {
        path.relative_to(folder).as_posix()
        for package in WHEELS[folder]
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == present
    assert f"{WHEELS[folder][0]}/py.typed" in shipped
    assert any(name.endswith(".sql") for name in shipped)


def test_servers_are_in_the_wheel_of_bench_alone(wheel: tuple[Path, set[str]]) -> None:
    folder, shipped = wheel
    theirs = {name for name in shipped if re.search(r"bench|/servers/|jars", name)}
    assert theirs == (shipped if folder == BENCH else set())
    assert ("chronoline_bench/servers/jars.lock" in shipped) == (folder == BENCH)


def test_command_answers() -> None:
    done = subprocess.run([COMMAND, "--help"], check=True, capture_output=True, text=True)
    assert "Usage:" in done.stdout


def test_bench_is_found_by_its_entry_point() -> None:
    done = subprocess.run([COMMAND, "bench", "--help"], check=True, capture_output=True, text=True)
    assert "beanstalkd" in done.stdout
    assert declared(BENCH)["project"]["entry-points"]["chronoline.commands"] == {
        "bench": "chronoline_bench.command:bench"
    }


def test_missing_bench_names_its_install_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_BENCH], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("chronoline: ")
    assert "pip install chronoline-bench" in done.stderr
    assert "Traceback" not in done.stderr


def test_there_is_one_version() -> None:
    stated = chronoline.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+|\.dev\d+)?", stated)
    for folder in (ROOT, BENCH):
        place = declared(folder)["tool"]["hatch"]["version"]["path"]
        assert (folder / place).resolve() == ROOT / "chronoline" / "core" / "version.py"
        assert "version" not in declared(folder)["project"]
    assert version("chronoline") == version("chronoline-bench") == stated


def test_every_dependency_is_locked() -> None:
    own, bench = declared(ROOT), declared(BENCH)
    wanted = needs(
        own["project"]["dependencies"],
        *own["project"]["optional-dependencies"].values(),
        *own["dependency-groups"].values(),
        bench["project"]["dependencies"],
    )
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    locked = set(re.findall(r"^([\w.-]+)==", lock, re.M))
    assert wanted - {"chronoline"} <= locked
    assert not {name for name in locked if name.startswith("chronoline")}


def test_bench_imports_only_what_it_declares() -> None:
    own, bench = declared(ROOT)["project"], declared(BENCH)["project"]
    (ours,) = (need for need in bench["dependencies"] if need.startswith("chronoline["))
    extras = re.findall(r"\w+", ours)[1:]
    allowed = needs(
        bench["dependencies"],
        own["dependencies"],
        *(own["optional-dependencies"][extra] for extra in extras),
    )
    distributions = packages_distributions()
    for module in sorted((BENCH / "chronoline_bench").rglob("*.py")):
        for name in imported_packages(module.read_text("utf-8")):
            if name in sys.stdlib_module_names or name in ("chronoline", "chronoline_bench"):
                continue
            assert allowed & set(distributions[name]), f"{module} imports {name}"
