"""Rules of scaling: how a node may move a timer while the cluster grows or shrinks.

A node that asks for its timers gets the lists of replicas before and after. Lower means nearer to the first
place, which is level 0; a node that was not in the list counts as higher than all. Three
rules keep one node at each level at every moment, whatever the order in which nodes get to work:

- it takes the timer if it moves down the list or stays where it is;
- it tells the nodes above its new level, unless their old level was below that;
- it dismisses the nodes that keep the timer no more, unless their old level was below its new one.
"""

from __future__ import annotations

from collections.abc import Sequence


def _level(replicas: Sequence[str], node: str) -> int:
    return replicas.index(node) if node in replicas else len(replicas) + 1_000_000


def may_take(node: str, old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether a node may hold the timer as the new list has it."""
    return node in new and new.index(node) <= _level(old, node)


def to_inform(node: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """The nodes that a node of the new list asks to hold the timer as well."""
    if node not in new:
        return ()
    level = new.index(node)
    return tuple(other for other in new[level + 1 :] if _level(old, other) >= level)


def to_dismiss(node: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """The nodes that a node of the new list dismisses."""
    if node not in new:
        return ()
    return tuple(other for other in old[new.index(node) :] if other not in new)


def known_from(level: int, replicas: int) -> frozenset[int]:
    """The levels that know a timer once this level has dealt with it: itself and all above."""
    return frozenset(range(level, replicas))
