"""Short runs of the scenes: every process is broken at least once, and every invariant holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import MissingExtra
from tests.conftest import miss
from tests.torture.__main__ import judge_scene, run_scene, table
from tests.torture.cluster.__main__ import find
from tests.torture.cluster.namespaces import PARTS
from tests.torture.cluster.planted import DEFECTS
from tests.torture.history import CALL, DELIVERY, FAULT, OUTCOME, read_history
from tests.torture.overload.program import NOT_EXTENDED
from tests.torture.overload.scene import play
from tests.torture.timers.injections import INJECTIONS, NoSuitableEvents

_SEED = 1


@pytest.mark.parametrize(
    ("scene", "seconds", "kinds"),
    [
        ("brokers", 6.0, {"row"}),
        ("log", 5.0, {"progress", "content", "rows"}),
        ("failover", 0.0, {"row", "standby"}),  # one
    ],
)
def test_invariants_hold_under_faults(
    tmp_path: Path, scene: str, seconds: float, kinds: set[str]
) -> None:
    try:
        events = run_scene(scene, tmp_path, seconds=seconds, seed=_SEED, report=print)
    except MissingExtra as error:
        miss("PostgreSQL", error)
    violations = judge_scene(scene, events)
    print(table(events, violations))  # pytest shows it after a failure
    assert {CALL, OUTCOME, DELIVERY, FAULT} | kinds <= {event.kind for event in events}
    assert violations == []


@pytest.mark.timeout(300)
def test_cluster_keeps_its_invariants(tmp_path: Path) -> None:
    try:
        events = run_scene("cluster", tmp_path, seconds=0, seed=_SEED, report=print)
    except MissingExtra as error:
        miss("A cluster", error)
    violations = judge_scene("cluster", events)
    print(table(events, violations))
    assert [f"{each.rule}: {each.detail}" for each in violations] == []
    assert {CALL, OUTCOME, DELIVERY, FAULT, "cut", "row"} <= {event.kind for event in events}
    faults = {event["fault"] for event in events if event.kind == FAULT}
    assert {"stop etcd", "freeze a broker past its session", "kill -9 a broker"} <= faults
    assert "drop a topic and create it again" in faults
    for part in PARTS:
        cut = f"cut a broker off from {part}"
        assert {cut, f"{cut}, silently"} & faults


def test_short_soak_loses_nothing(tmp_path: Path) -> None:
    """Whether it is flat, an hour tells: `python -m tests.torture soak --seconds 3600`.

    In seconds, a broker that starts late or takes over the consumers of another one looks like a leak.
    `test_judge` has the rule.
    """
    try:
        events = run_scene("soak", tmp_path, seconds=12, seed=_SEED, report=print)
    except MissingExtra as error:
        miss("A soak", error)
    violations = judge_scene("soak", events)
    print(table(events, violations))
    found = [f"{each.rule}: {each.detail}" for each in violations]
    assert [each for each in found if not each.startswith("37 ")] == []
    assert {"sample", "store", "flow", "scrape", FAULT, "end"} <= {event.kind for event in events}
    (end,) = (event for event in events if event.kind == "end")
    assert end["delivered"] > 1_000
    assert end["more"]["popped"] > 0
    assert all(end["more"][name] > 0 for name in ("called", "occurrences", "console"))


def test_planted_defect_is_found(tmp_path: Path) -> None:
    """One of them: `python -m tests.torture.cluster` has all."""
    try:
        finding = find("deliver-before-due", tmp_path)
    except MissingExtra as error:
        miss("A cluster", error)
    assert DEFECTS["deliver-before-due"].rule in finding.rules


def test_overload_doubles_nothing(tmp_path: Path) -> None:
    try:
        events = run_scene("overload", tmp_path, seconds=0, seed=_SEED, report=print)
    except MissingExtra as error:
        miss("An overload", error)
    violations = judge_scene("overload", events)
    print(table(events, violations))
    assert [f"{violation.rule}: {violation.detail}" for violation in violations] == []


def test_planted_defect_doubles_under_overload(tmp_path: Path) -> None:
    try:
        play(tmp_path, seconds=0, seed=_SEED, report=print, defect=NOT_EXTENDED)
    except MissingExtra as error:
        miss("An overload", error)
    found = judge_scene("overload", read_history(tmp_path))
    assert "48 load alone doubled a message" in {each.rule for each in found}


def test_timers_keep_their_invariants(tmp_path: Path) -> None:
    """Also finds violations that are injected into the recorded history; `test_judge` injects all kinds."""
    events = run_scene("timers", tmp_path, seconds=1, seed=_SEED, report=print)
    violations = judge_scene("timers", events)
    print(table(events, violations))
    assert [f"{each.rule}: {each.detail}" for each in violations] == []
    assert {event["fault"] for event in events if event.kind == FAULT} >= {"kill -9", "shrunk"}
    for inject, rule in INJECTIONS:
        try:
            broken = inject(events)
        except NoSuitableEvents:  # on a busy machine no stretch of the history may be calm enough
            continue
        assert rule in {each.rule for each in judge_scene("timers", broken)}, inject
