"""No installation that our bounds allow has a library with a published hole that is known here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
FIRST_WITHOUT_HOLES = {
    # CVE-2026-54275: a connection of another TLS host; 2026-69243, 2026-69244: smuggling, the parser in C.
    "aiohttp": "3.14.3",
    # GHSA-537c-gmf6-5ccf: OpenSSL in the wheels; CVE-2026-69247, 2026-69248, 2026-69249.
    "cryptography": "50.0.0",
    # It allows the starlette below; 0.132 and older do not.
    "fastapi": "0.133.0",
    # CVE-2024-7246, CVE-2024-11407.
    "grpcio": "1.66.2",
    # CVE-2025-43859: chunks that another parser reads differently.
    "h11": "0.16.0",
    # CVE-2025-27516: a way out of the sandbox.
    "jinja2": "3.1.6",
    # CVE-2025-4565, CVE-2026-0994: recursion without a bound.
    "protobuf": "6.33.5",
    # CVE-2026-25087: use after free in the reader of IPC files.
    "pyarrow": "23.0.1",
    # CVE-2024-3772.
    "pydantic": "2.4.0",
    # CVE-2024-53861: a part of the issuer; CVE-2026-32597: unknown `crit`; CVE-2026-48522 to 48526.
    "pyjwt": "2.13.0",
    # CVE-2024-47874, 2025-54121, 2025-62727, 2026-48710 (Host), 2026-54282, 2026-54283 (forms).
    "starlette": "1.3.1",
    # CVE-2025-66418, 2025-66471, 2026-21441, 2026-44431, 2026-44432.
    "urllib3": "2.7.0",
}
"""From the advisories of PyPI and GitHub, as of 2026-11. A new one raises a version here, then the bound."""


def _declared() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from map(Requirement, group)


def _locked() -> dict[str, list[Version]]:
    found: dict[str, list[Version]] = {}
    text = (ROOT / "requirements.lock").read_text("utf-8")
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.M):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


def _least(requirement: Requirement) -> Version:
    (least,) = (each.version for each in requirement.specifier if each.operator == ">=")
    return Version(least)


@pytest.mark.parametrize("name", FIRST_WITHOUT_HOLES)
def test_bounds_and_lock_admit_no_known_hole(name: str) -> None:
    first = Version(FIRST_WITHOUT_HOLES[name])
    bounds = [_least(each) for each in _declared() if canonicalize_name(each.name) == name]
    assert bounds
    assert [bound for bound in bounds if bound < first] == []
    assert [each for each in _locked()[name] if each < first] == []


def test_lock_has_versions_that_the_bounds_admit() -> None:
    locked = _locked()
    wrong = {
        str(each): [str(version) for version in locked[canonicalize_name(each.name)]]
        for each in _declared()
        if not all(map(each.specifier.contains, locked[canonicalize_name(each.name)]))
    }
    assert wrong == {}
