"""Dependencies: the base install is SDK and command; everything else names the extra that brings it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from chronoline.cli.main import _BASE, _COMMANDS  # the table has no other face

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BASE = [Requirement(each) for each in PROJECT["dependencies"]]
EXTRAS = {
    extra: [Requirement(each) for each in named]
    for extra, named in PROJECT["optional-dependencies"].items()
}
PIPE = str(ROOT / "examples" / "pipe-embedded.toml")
S3 = "s3://bucket/prefix?index=dynamodb%3A%2F%2Ftable%3Fregion%3Deu-central-1"
ANSWERED = (
    "--help",
    "--version",
    "up --help",
    *(f"{name} --help" for name, each in _COMMANDS.items() if each.install == _BASE),
)
REFUSED = {
    "up --data x": "'chronoline[server]'",
    "config show": "'chronoline[server]'",
    "token create x": "'chronoline[server]'",
    "demo": "'chronoline[spark]'",
    "demo --timers": "'chronoline[server]'",
    "demo --cluster": "'chronoline[server,postgres,cluster]'",
    "bench store": "chronoline-bench",
    f"log topics --log {S3}": "'chronoline[aws]'",
}
PIPE_COMMANDS = (
    "log create orders --log chronoline-data/log",
    "log create orders-due --log chronoline-data/log",
    f"pipe run --config {PIPE}",
    f"pipe check --config {PIPE}",
)
COMMANDS = (*ANSWERED, *REFUSED, *PIPE_COMMANDS)
ROOMS = {
    "broker": {"jwt", "server"},
    "callbacks": {"server"},
    "cli": {"parquet", "server", "spark"},
    "console": {"server"},
    "coordination": {"cluster"},
    "databases": {"postgres"},
    "log": {"aws", "postgres"},
    "node": {"otel", "server"},
    "pipe": {"kafka", "spark"},
    "runtime": {"otel", "server"},
    "spark": {"spark"},
    "timers": {"server"},
}
"""The extras that a package of ours may import from. Others run on a base install."""
NOT_OURS = {
    "pytest": "it loads the plugin itself",
}
NOT_IMPORTED = {
    "h11": "uvicorn parses requests with it",
    "pandas": "Spark's Python sources import it",
    "tzdata": "zoneinfo reads its files, where the system has none",
    "urllib3": "botocore sends with it",
}


# Base install


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is shipped, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run_on_base(
    wheel: Path, program: str, *, strict: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a program on the shipped package, with the libraries of a base install alone.

    With `strict` libraries of extras are hidden also where they happen to come with one of the base.
    """
    hide = (
        "import sys\n"
        f"sys.path.insert(0, {str(wheel)!r})\n"
        f"hidden = {hidden_modules(strict=strict)!r}\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in hidden:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", hide + program],
        check=False,
        capture_output=True,
        text=True,
        cwd=wheel.parent,
    )


class Answer(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def answers(wheel: Path) -> dict[str, Answer]:
    """The answers to all `COMMANDS` on a base install, by forks of one process."""
    program = (
        "import json, os\n"
        "from chronoline.cli.main import run\n"
        "answers = []\n"
        f"for arguments in {[command.split() for command in COMMANDS]!r}:\n"
        "    with open('stdout', 'w+') as stdout, open('stderr', 'w+') as stderr:\n"
        "        if not (child := os.fork()):\n"
        "            os.dup2(stdout.fileno(), 1), os.dup2(stderr.fileno(), 2)\n"
        "            sys.argv = ['chronoline', *arguments]\n"
        "            run()\n"
        "            sys.exit()\n"
        "        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "        stdout.seek(0), stderr.seek(0)\n"
        "        answers.append((code, stdout.read(), stderr.read()))\n"
        "print(json.dumps(answers))\n"
    )
    done = run_on_base(wheel, program)
    assert (done.returncode, done.stderr) == (0, "")
    found = [Answer(*each) for each in json.loads(done.stdout)]
    return dict(zip(COMMANDS, found, strict=True))


def hidden_modules(*, strict: bool) -> set[str]:
    """All installed packages but those that a base install brings."""
    shown = closure(BASE)
    if strict:
        shown -= {name_of(each) for extra in EXTRAS.values() for each in extra}
    hidden = {
        module
        for module, owners in distributions_by_module().items()
        if not shown & {normal(each) for each in owners} and not module.startswith("_")
    }
    ours = {"chronoline", "pyspark_chronoline", "pyspark_chronoline_log"}
    return hidden - ours | {"chronoline_bench"}


@cache
def distributions_by_module() -> Mapping[str, list[str]]:
    """The installed distributions that bring a module. Finding them reads the records of all."""
    return metadata.packages_distributions()


def closure(wanted: list[Requirement]) -> set[str]:
    """The distributions that an installation of these brings."""
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = name_of(waiting.pop())
        if name in found:
            continue
        found.add(name)
        for need in map(Requirement, metadata.requires(name) or ()):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(need)
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(need: Requirement) -> str:
    return normal(need.name)


def test_sdk_runs_on_a_base_install(wheel: Path) -> None:
    done = run_on_base(
        wheel,
        "import chronoline, chronoline.store, chronoline.testing, chronoline.testing.broker\n"
        f"assert chronoline.__file__.startswith({str(wheel)!r}), chronoline.__file__\n"
        "for name in chronoline.__all__: getattr(chronoline, name)\n"
        "chronoline.Worker(); chronoline.Client().close()\n"
        "chronoline.store.open_store('memory:').close()\n"
        "chronoline.store.open_store('sqlite:///base.db').close()\n"
        "import chronoline.cli.main\n",
        strict=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ANSWERED)
def test_command_answers_on_a_base_install(answers: dict[str, Answer], command: str) -> None:
    assert (answers[command].code, answers[command].stderr) == (0, "")


def test_help_names_the_extra_of_a_missing_part(answers: dict[str, Answer]) -> None:
    shown = " ".join(answers["up --help"].stdout.split())
    assert "Needs: pip install 'chronoline[server]'" in shown


@pytest.mark.parametrize(("command", "install"), REFUSED.items())
def test_missing_part_is_answered_with_its_command(
    answers: dict[str, Answer], command: str, install: str
) -> None:
    done = answers[command]
    assert done.code == 1
    assert done.stderr.startswith("chronoline: ")
    assert done.stderr.endswith(f": pip install {install}\n")


def test_pipe_without_spark_names_its_extra(answers: dict[str, Answer]) -> None:
    made, refused = PIPE_COMMANDS[:2], PIPE_COMMANDS[2:]
    assert [answers[command].code for command in made] == [0, 0]
    for done in (answers[command] for command in refused):
        assert done.code == 1
        assert "pip install 'chronoline[spark]'" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("program", "install"),
    [
        ("from chronoline.store import open_store\nopen_store('postgresql://x/y')", "postgres"),
        (
            "from chronoline.testing import MemoryStore\n"
            "from chronoline.testing.broker import LocalBroker\n"
            "LocalBroker(MemoryStore()).start()",
            "server",
        ),
        (
            "from chronoline.coordination.factory import open_coordination\n"
            "open_coordination('embedded:')\n"
            "open_coordination('etcd://x')",
            "cluster",
        ),
        ("import chronoline.spark", "spark"),
        ("import chronoline.pipe.kafka", "kafka"),
    ],
    ids=["store", "broker", "coordination", "formats", "kafka"],
)
def test_missing_library_raises_missing_extra(wheel: Path, program: str, install: str) -> None:
    done = run_on_base(wheel, program)
    assert done.stderr.splitlines()[-1].startswith("chronoline.core.errors.MissingExtra: ")
    assert done.stderr.endswith(f": pip install 'chronoline[{install}]'\n")


# Declared and imported


def imported(source: str) -> Iterator[str]:
    """The top-level packages that a module imports when it runs, not for its types."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        waiting.extend(ast.iter_child_nodes(node))


@cache
def imports_by_room() -> dict[str, set[str]]:
    """By package of ours: everything that it imports from elsewhere."""
    rooms: dict[str, set[str]] = {}
    for module in sorted((ROOT / "chronoline").rglob("*.py")):
        room = module.relative_to(ROOT / "chronoline").parts[0]
        rooms.setdefault(room, set()).update(imported(module.read_text("utf-8")))
    known = sys.stdlib_module_names | NOT_OURS.keys() | {"chronoline"}
    return {room: names - known for room, names in rooms.items()}


def modules_of(wanted: list[Requirement]) -> set[str]:
    """The packages that these distributions, and their extras that are asked for, let us import."""
    named = {name_of(each) for each in wanted}
    for each in wanted:
        for need in map(Requirement, metadata.requires(each.name) or ()):
            named |= {
                name_of(need)
                for extra in each.extras
                if need.marker is not None and need.marker.evaluate({"extra": extra})
            }
    return {
        module
        for module, owners in distributions_by_module().items()
        if named & {normal(each) for each in owners}
    }


def test_imports_are_declared() -> None:
    undeclared = {
        room: names
        - modules_of(BASE + [need for each in ROOMS.get(room, ()) for need in EXTRAS[each]])
        for room, names in imports_by_room().items()
    }
    assert {room: names for room, names in undeclared.items() if names} == {}


def test_declared_dependencies_are_imported() -> None:
    used = {name for names in imports_by_room().values() for name in names}
    declared = [need for group in (BASE, *EXTRAS.values()) for need in group]
    unused = {each.name for each in declared if not modules_of([each]) & used}
    assert unused == NOT_IMPORTED.keys()


def test_imports_for_types_alone_do_not_count() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import c\nelse:\n    import d\ndef f():\n    from e import g\n"
    assert sorted(imported(source)) == ["a", "d", "e"]


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "3.5.0"])
def test_older_spark_is_named(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import chronoline.spark.timeline"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert f"Spark {version} is too old, 4.2 is needed: pip install" in found.stderr
