"""Checks: bounded in time, in order, and an error is a finding."""

from __future__ import annotations

import threading

from chronoline.cli.doctor.checks import Check, Diagnosis, ok, run_checks
from chronoline.core.errors import InvalidInput, MissingExtra


def test_hanging_check_does_not_hang_the_others() -> None:
    never = threading.Event()

    def hang() -> Diagnosis:
        never.wait()
        return ok("in the end")

    found = dict(run_checks([Check("dead", hang), Check("alive", lambda: ok("here"))], 0.05))
    never.set()
    assert list(found) == ["dead", "alive"]
    assert (found["dead"].state, found["alive"]) == ("problem", ok("here"))
    assert "no answer within 0.05 s" in found["dead"].words


def test_error_is_a_problem_in_one_line() -> None:
    def raising(error: Exception) -> Check:
        def look() -> Diagnosis:
            raise error

        return Check("part", look)

    errors = InvalidInput("one\n- two"), MissingExtra("pip install x"), ZeroDivisionError("a\nb")
    refused, missing, failed = [found for _, found in run_checks([raising(e) for e in errors])]
    assert (refused.state, refused.words) == ("problem", "one - two")
    assert missing.words == "pip install x"
    assert failed.words == "the check itself failed: ZeroDivisionError: a b"
