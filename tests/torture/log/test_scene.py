"""A short run of the scene: everything is broken once, and every invariant of the log holds."""

from __future__ import annotations

from pathlib import Path

from chronoline.core.errors import MissingExtra
from tests.conftest import miss
from tests.torture.__main__ import judge_scene, run_scene, table
from tests.torture.history import CALL, DELIVERY, FAULT, OUTCOME

_SECONDS = 5.0
_SEED = 1


def test_invariants_hold_while_everything_is_broken(tmp_path: Path) -> None:
    try:
        events = run_scene("log", tmp_path, seconds=_SECONDS, seed=_SEED, report=print)
    except MissingExtra as error:
        miss("PostgreSQL", error)
    violations = judge_scene("log", events)
    print(table(events, violations))  # pytest shows it if something is wrong
    kinds = {event.kind for event in events}
    assert {CALL, OUTCOME, DELIVERY, FAULT, "progress", "content", "rows"} <= kinds
    assert violations == []
