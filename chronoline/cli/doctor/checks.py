"""Checks, each bounded in time, and their findings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from chronoline.core.errors import ChronolineError
from chronoline.runtime.extras import beside_imports

CHECK_S = 15.0
"""A check that takes longer is given up. Kafka's library needs ten seconds to say why it is not answered."""
REACH = "see that it runs, that the address is right, and that no firewall is in between"
"""The remedy for a server that does not answer."""
State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check."""

    state: State
    words: str
    remedy: str = ""
    """The cure, in words; empty if all is well, or if `words` say it."""


def ok(words: str) -> Diagnosis:
    return Diagnosis("ok", words)


def warning(words: str, remedy: str) -> Diagnosis:
    return Diagnosis("warning", words, remedy)


def problem(words: str, remedy: str = "") -> Diagnosis:
    return Diagnosis("problem", words, remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """One look at one part of a set-up. It changes nothing."""

    part: str
    look: Callable[[], Diagnosis]
    """An error of Chronoline that it raises is a problem, too."""


def run_checks(
    checks: Sequence[Check], timeout_s: float = CHECK_S
) -> Iterator[tuple[str, Diagnosis]]:
    """Runs the checks beside each other, and yields their findings in order.

    A check whose server hangs is reported after `timeout_s`, counted from the start of all: none can hang
    the others. Its thread is left behind, and ends with the process.
    """
    begun = time.monotonic()
    runs = [_Run(check) for check in checks]
    for run in runs:
        yield run.check.part, run.finding(begun + timeout_s, timeout_s)


class _Run:
    """One check in a thread."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self._found: Diagnosis | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finding(self, give_up: float, timeout_s: float) -> Diagnosis:
        self._thread.join(max(0.0, give_up - time.monotonic()))
        found = self._found
        if found is not None:
            return found
        return problem(f"no answer within {timeout_s:g} s", REACH)

    def _run(self) -> None:
        try:
            found = beside_imports(self.check.look)
        except ChronolineError as error:
            found = problem(_one_line(error))
        except Exception as error:  # a defect of a check must not hide what the others found
            found = problem(
                f"the check itself failed: {type(error).__name__}: {_one_line(error)}",
                "please report it",
            )
        self._found = found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
