"""Imports: `import chronoline` stays light, and the core needs only the standard library.

import-linter checks all other import rules; it cannot express the one of the core.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import chronoline
import chronoline.client

CORE = Path(__file__).parents[2] / "chronoline" / "core"
LAZY = {"AsyncClient", "Client", "Retry", "ToSend", "Worker"}


def imported_packages(source: str) -> Iterator[str]:
    """The top-level packages that a module imports, without relative imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_core_imports_only_the_standard_library() -> None:
    modules = sorted(CORE.rglob("*.py"))
    assert modules
    used = {name for module in modules for name in imported_packages(module.read_text("utf-8"))}
    assert used - sys.stdlib_module_names <= {"chronoline"}


def test_imports_are_found_at_any_depth() -> None:
    source = "import a.b, c\nfrom d.e import f\nfrom . import g\ndef h():\n    import i\n"
    assert sorted(imported_packages(source)) == ["a", "c", "d", "i"]


def test_grpc_is_not_imported_before_the_client_is_used() -> None:
    program = (
        "import sys, chronoline\n"
        "assert 'grpc' not in sys.modules\n"
        "from chronoline import Client\n"
        "assert 'grpc' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_exported_name_exists() -> None:
    assert set(chronoline.__all__) >= LAZY
    assert all(hasattr(chronoline, name) for name in chronoline.__all__)
    assert set(dir(chronoline)) >= set(chronoline.__all__)
    assert all(getattr(chronoline, name) is getattr(chronoline.client, name) for name in LAZY)
    assert not hasattr(chronoline, "nothing")
