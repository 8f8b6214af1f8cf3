"""A release: sdists and wheels as they are published, installed into empty environments, offline.

The installer takes the libraries from its cache, which set-up has filled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from chronoline.core.errors import MissingExtra
from chronoline.core.version import VERSION
from tests.conftest import miss
from tests.project.test_extras import BASE, EXTRAS, ROOT, closure, normal

_LOCK = ROOT / "requirements.lock"
_NOT_CACHED = re.compile(
    r"No module named uv|network was disabled|--offline|wasn't found in the cache"
)
_TYPED = """
from datetime import timedelta
from chronoline import AsyncClient, Client, Lease, Worker
from chronoline.store import open_store

def work(client: Client) -> str:
    return client.send("t", b"x", delay=timedelta(seconds=1))

worker = Worker()

@worker.handler("t")
def handle(lease: Lease) -> None:
    lease.ack()

reveal_type(work)
reveal_type(open_store("memory:"))
Client(adress="x")
"""


def run(*command: str | Path, **options: Any) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both distributions. Each wheel is built from its sdist, as `python -m build` does."""
    made = tmp_path_factory.mktemp("dist")
    for folder in (ROOT, ROOT / "bench"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, folder)
    return made


def wheel_of(released: Path, name: str = "chronoline") -> Path:
    return released / f"{name}-{VERSION}-py3-none-any.whl"


def install(folder: Path, *wanted: str) -> Path:
    """An empty environment with these distributions at the versions of the lock; returns its `bin`."""
    uv = [sys.executable, "-m", "uv", "--quiet", "--offline"]
    environment = folder / "environment"
    python = environment / "bin" / "python"
    constrained = ["pip", "install", "--python", str(python), "--constraints", str(_LOCK)]
    for command in (["venv", str(environment)], [*constrained, *wanted]):
        done = subprocess.run([*uv, *command], check=False, capture_output=True, text=True)
        if done.returncode and _NOT_CACHED.search(done.stderr):
            miss("the installation of a release", MissingExtra(done.stderr.strip()[-500:]))
        assert done.returncode == 0, done.stderr
    return environment / "bin"


def installed(programs: Path) -> dict[str, str]:
    """The distributions of an environment with their versions."""
    program = (
        "import json; from importlib.metadata import distributions\n"
        "print(json.dumps({each.name: each.version for each in distributions()}))"
    )
    found = json.loads(run(programs / "python", "-c", program))
    return {normal(name): version for name, version in found.items()}


@pytest.fixture(scope="module")
def base(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the base install."""
    return install(tmp_path_factory.mktemp("base"), str(wheel_of(released)))


def test_sdists_and_wheels_have_the_version(released: Path) -> None:
    assert sorted(path.name for path in released.iterdir()) == sorted(
        f"{name}-{VERSION}{suffix}"
        for name in ("chronoline", "chronoline_bench")
        for suffix in ("-py3-none-any.whl", ".tar.gz")
    )
    for name in ("chronoline", "chronoline_bench"):
        with ZipFile(wheel_of(released, name)) as archive:
            (path,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
            about = Parser().parsestr(archive.read(path).decode())
        assert (about["Version"], about["License-Expression"]) == (VERSION, "Apache-2.0")
    assert {*EXTRAS} >= {"server", "otel"}


def test_sdist_holds_sources_and_no_leavings(released: Path) -> None:
    with tarfile.open(released / f"chronoline-{VERSION}.tar.gz") as archive:
        names = {each.split("/", 1)[1] for each in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO"} <= names
    assert {"chronoline/py.typed", "docs/sdk.md", "deploy/compose.yaml"} <= names
    assert not [each for each in names if "__pycache__" in each or each.endswith((".db", ".env"))]
    tops = {each.split("/", 1)[0] for each in names}
    assert not tops & {"tests", "bench", ".venv"}


def test_base_install_is_sdk_and_command(base: Path) -> None:
    assert run(base / "chronoline", "--version") == f"chronoline {VERSION}\n"
    assert installed(base).keys() == closure(BASE) | {"chronoline"}
    program = "import chronoline; print([getattr(chronoline, each) for each in chronoline.__all__])"
    assert "Client" in run(base / "python", "-c", program)


def test_installed_package_is_typed(base: Path, tmp_path: Path) -> None:
    path = tmp_path / "typed.py"
    path.write_text(_TYPED)
    python = str(base / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    done = subprocess.run(
        [*command, "--config-file=", f"--cache-dir={tmp_path / 'cache'}", path],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(revealed) == 2, done.stdout + done.stderr
    assert "-> str" in revealed[0] or "-> builtins.str" in revealed[0]
    assert "Any" not in revealed[1]
    errors = re.findall(r"error: (.*)", done.stdout)
    assert len(errors) == 1, done.stdout
    assert 'Unexpected keyword argument "adress"' in errors[0]


def test_all_extras_are_what_the_lock_holds(released: Path, tmp_path: Path) -> None:
    wanted = f"{wheel_of(released)}[{','.join(EXTRAS)}]"
    programs = install(tmp_path, wanted, str(wheel_of(released, "chronoline_bench")))
    locked = set(re.findall(r"^([\w.-]+)==([\w.+!-]+)", _LOCK.read_text("utf-8"), re.M))
    found = installed(programs)
    ours = {"chronoline", "chronoline-bench"}
    assert {found.pop(each) for each in ours} == {VERSION}
    assert found.items() - locked == set()
    named = {normal(each.name) for needs in EXTRAS.values() for each in needs}
    assert named <= found.keys()
    shown = run(programs / "chronoline", "config", "show", cwd=tmp_path)
    assert "grpc = " in shown
    assert "beanstalkd" in run(programs / "chronoline", "bench", "--help", cwd=tmp_path)
