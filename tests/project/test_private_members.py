"""Tests use what is public; a private member that a test needs has its reason beside it.

A comment at the first use of a name in a module is the reason for all uses of that name in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
_OWN = {"self", "cls"}
_PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe"}
"""Documented, of named tuples, `os` and `sys`."""
_PRIVATE = re.compile(r"_[A-Za-z]\w*")
_MODULES = sorted(
    path for path in TESTS.rglob("*.py") if not path.is_relative_to(TESTS / "project")
)


def _is_private(name: object) -> bool:
    return isinstance(name, str) and bool(_PRIVATE.fullmatch(name)) and name not in _PUBLIC


def _used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The private names of others that a module uses, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) if owner in _OWN:
                pass
            case ast.Attribute(attr=name) if _is_private(name):
                yield node.end_lineno or node.lineno, name
            case ast.ImportFrom(names=names, module=module):
                found = [each.name for each in names] + (module or "").split(".")
                yield from ((node.lineno, name) for name in found if _is_private(name))
            case ast.Call(func=ast.Attribute(attr="setattr") | ast.Name(id="setattr"), args=given):
                for each in given[:2]:  # an object and a name, or both in one
                    if isinstance(each, ast.Constant) and isinstance(each.value, str):
                        name = each.value.rpartition(".")[2]
                        if _is_private(name):
                            yield each.lineno, name


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module's own classes and functions have."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Store()):
                if owner in _OWN:
                    found.add(name)
    return found


def _without_reason(source: str) -> list[str]:
    tree, lines = ast.parse(source), source.splitlines()
    own, seen, found = _defined(tree), set(), []
    for line, name in sorted(_used(tree)):
        if name in own or name in seen:
            continue
        seen.add(name)
        above = lines[line - 2].strip() if line > 1 else ""
        if "  # " not in lines[line - 1] and not above.startswith("#"):
            found.append(f"line {line}: {name}")
    return found


def test_private_members_have_a_reason() -> None:
    found = {str(path.relative_to(TESTS)): _without_reason(path.read_text()) for path in _MODULES}
    assert {path: names for path, names in found.items() if names} == {}


def test_unexplained_private_member_is_found() -> None:
    source = "a._b\na._c  # it has no other name\na._c\n# no setting does it\na._d\n"
    assert _without_reason(source) == ["line 1: _b"]
    assert _without_reason('patch.setattr("x.y._Z", 1)\nfrom x import _y\nself._b\n') == [
        "line 1: _Z",
        "line 2: _y",
    ]


def test_aliases_are_nouns() -> None:
    """A module is known by its own name: not by the activity that it was named after once."""
    alias = re.compile(r"^(?:from \S+ )?import .* as (\w+ing(?:_module)?)$", re.MULTILINE)
    found = {str(path): alias.findall(path.read_text()) for path in _MODULES}
    assert {path: names for path, names in found.items() if names} == {}
