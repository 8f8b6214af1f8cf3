"""A short run of the scene: every rule holds, and violations of all kinds are found in what it recorded."""

from __future__ import annotations

from pathlib import Path

from tests.torture.__main__ import judge_scene, run_scene, table
from tests.torture.history import FAULT
from tests.torture.timers.injections import INJECTIONS

_SECONDS = 15


def test_timers_keep_their_invariants(tmp_path: Path) -> None:
    """INVARIANTS 32 to 36 and 42."""
    events = run_scene("timers", tmp_path, seconds=_SECONDS, seed=1, report=print)
    violations = judge_scene("timers", events)
    print(table(events, violations))
    assert [f"{each.rule}: {each.detail}" for each in violations] == []
    assert {event["fault"] for event in events if event.kind == FAULT} >= {"kill -9", "shrunk"}
    for inject, rule in INJECTIONS:
        assert rule in {each.rule for each in judge_scene("timers", inject(events))}, inject
