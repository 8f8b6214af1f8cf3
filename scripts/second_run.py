"""Runs the failed tests of `make test` once more: `python -m scripts.second_run FOLDER CHECK…`.

The groups of tests run beside each other, so a test can fail because the machine is busy. When all groups
have ended, the failed tests run again with nothing beside them. If all of them pass, `make test` passes, and
its last line names them. It fails if one of them fails again, if too many tests failed, or if a check failed
for another reason.

`make` calls this after a failure. It leaves the exit code of each check in `FOLDER/CHECK.status`; pytest
leaves the names of failed tests in its cache, `FOLDER/CHECK.cache`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_TESTS = 5
"""More failures than these have a cause other than a busy machine."""

_TESTS_FAILED = 1  # pytest's exit code


@dataclass(frozen=True)
class FirstRun:
    """The result of the checks."""

    tests: tuple[str, ...]
    """The names of the failed tests."""
    broken: tuple[str, ...]
    """The checks that failed without naming a test, or did not end."""


def read_first_run(folder: Path, checks: Sequence[str]) -> FirstRun:
    """Reads the results that the checks left in the folder."""
    tests: list[str] = []
    broken: list[str] = []
    for check in checks:
        status = _status(folder / f"{check}.status")
        failed = _failed_tests(folder / f"{check}.cache") if status == _TESTS_FAILED else []
        tests += failed
        if status != 0 and not failed:
            broken.append(check)
    return FirstRun(tuple(tests), tuple(broken))


def why_not_again(first: FirstRun) -> str | None:
    """Returns why a second run cannot make the checks pass; None if it can."""
    if first.broken:
        return f"failed, and not only tests did: {', '.join(first.broken)}"
    if len(first.tests) > MOST_TESTS:
        return f"{len(first.tests)} tests failed; more than {MOST_TESTS} are not run again"
    return None if first.tests else "failed, and no check says why"


def second_run(first: FirstRun, run_tests: Callable[[Sequence[str]], int]) -> int:
    """Runs the failed tests again where that can help, and returns the exit code of all checks."""
    reason = why_not_again(first)
    if reason is not None:
        print(f"== {reason}")
        return 1
    print(f"== run again, alone: {', '.join(first.tests)}", flush=True)
    status = run_tests(first.tests)
    if status:
        print("== failed again")
        return status
    print(
        f"== passed only when run again, alone: {', '.join(first.tests)}; "
        "such a test is a bug, please report it"
    )
    return 0


def _status(path: Path) -> int | None:
    return int(path.read_text("ascii")) if path.exists() else None


def _failed_tests(cache: Path) -> list[str]:
    path = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(path.read_text("utf-8"))) if path.exists() else []


def _run_pytest(tests: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(second_run(read_first_run(Path(sys.argv[1]), sys.argv[2:]), _run_pytest))
