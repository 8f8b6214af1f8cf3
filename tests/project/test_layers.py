"""Rules that import-linter cannot check: the core is pure, and the table of CONTRIBUTING is true."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "chronoline"
CORE = PACKAGE / "core"
ROW = re.compile(r"^\| `chronoline\.(\w+)` \|[^|]*\|([^|]*)\|$", re.M)


def imported_modules(source: str) -> Iterator[str]:
    """The modules that a module imports from elsewhere; `from a import b` counts as `a` and `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_packages(source: str) -> set[str]:
    """The top-level packages that a module imports from elsewhere."""
    return {module.partition(".")[0] for module in imported_modules(source)}


def test_the_core_imports_the_standard_library_alone() -> None:
    modules = sorted(CORE.rglob("*.py"))
    assert modules
    used = {name for module in modules for name in imported_packages(module.read_text("utf-8"))}
    assert used - sys.stdlib_module_names <= {"chronoline"}


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\ndef h():\n    import i\n"
    assert sorted(imported_packages(source)) == ["a", "c", "d", "i"]


def rooms_of(place: Path) -> set[str]:
    """The rooms of the package that a room imports."""
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    rooms = {path.stem for path in PACKAGE.iterdir()}
    imported = {
        module.split(".")[1]
        for path in files
        for module in imported_modules(path.read_text("utf-8"))
        if module.startswith("chronoline.")
    }
    return imported & rooms - {place.stem}


def test_layers_of_contributing_are_complete_and_true() -> None:
    table = dict(ROW.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    told = {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in table.items()}
    rooms = [path for path in PACKAGE.iterdir() if re.fullmatch(r"[a-z]\w*(\.py)?", path.name)]
    assert told == {path.stem: rooms_of(path) for path in rooms}
