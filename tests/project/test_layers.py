"""The one import rule that import-linter cannot say: the core needs the standard library alone."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).parents[2] / "chronoline" / "core"


def imported_packages(source: str) -> Iterator[str]:
    """The top-level packages that a module imports from elsewhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_the_core_imports_the_standard_library_alone() -> None:
    modules = sorted(CORE.rglob("*.py"))
    assert modules
    used = {name for module in modules for name in imported_packages(module.read_text("utf-8"))}
    assert used - sys.stdlib_module_names <= {"chronoline"}


def test_imports_are_found_wherever_they_stand() -> None:
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\ndef h():\n    import i\n"
    assert sorted(imported_packages(source)) == ["a", "c", "d", "i"]
