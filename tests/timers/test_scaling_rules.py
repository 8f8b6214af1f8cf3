"""The rules for a timer that moves, for each pair of old and new replicas."""

from __future__ import annotations

import pytest

from chronoline.timers.scaling_rules import known_from, may_take, to_dismiss, to_inform


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("CA", "BA", "BA"),  # the new first one, and the backup that stays where it is
        ("AB", "CA", "C"),  # A would move up, and waits until C tells it
        ("AB", "BA", "B"),  # a first one that becomes a backup hears it from the new first one
        ("ABC", "ABC", "ABC"),
        ("AB", "AC", "AC"),
        ("AB", "ABC", "ABC"),
        ("A", "B", "B"),
    ],
)
def test_nodes_that_may_take_a_timer(old: str, new: str, may: str) -> None:
    assert [node for node in "ABCD" if may_take(node, old, new)] == sorted(may)


@pytest.mark.parametrize(
    ("node", "old", "new", "told"),
    [
        ("B", "CA", "BA", "A"),
        ("A", "CA", "BA", ""),  # no node is above it
        ("C", "AB", "CA", "A"),  # A was level 0 and is informed by level 0
        ("B", "AB", "CBA", ""),  # A was below B's new level: B may not touch it
        ("C", "AB", "CBA", "BA"),
        ("D", "ABC", "DBC", "BC"),
        ("B", "ABC", "DBC", "C"),
        ("X", "ABC", "DBC", ""),
    ],
)
def test_nodes_that_a_timer_informs(node: str, old: str, new: str, told: str) -> None:
    assert to_inform(node, old, new) == tuple(told)


@pytest.mark.parametrize(
    ("node", "old", "new", "dismissed"),
    [
        ("B", "CA", "BA", "C"),
        ("A", "CA", "BA", ""),  # C was below it
        ("D", "ABC", "DBC", "A"),
        ("B", "ABC", "DBC", ""),
        ("C", "ADB", "BC", "D"),  # a new level 1 dismisses the old level 1, not the old level 0
        ("B", "ADB", "BC", "AD"),
        ("X", "ADB", "BC", ""),
    ],
)
def test_nodes_that_a_timer_dismisses(node: str, old: str, new: str, dismissed: str) -> None:
    assert to_dismiss(node, old, new) == tuple(dismissed)


def test_settled_node_has_informed_all_above() -> None:
    assert known_from(0, 3) == {0, 1, 2}
    assert known_from(2, 3) == {2}
