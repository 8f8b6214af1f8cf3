"""Membership: the nodes of the cluster, and the replicas of each timer.

Rendezvous hashing: every node has a number for every timer, the same wherever it is computed. The lowest is
the first replica; the highest, the second highest and so on are the others. A node that comes or goes
therefore moves timers to itself or away from itself only, and a first replica never becomes a later one.

While a cluster grows or shrinks, there are two lists: *before*, of the nodes that stay and leave, and
*after*, of those that stay and join. New timers go to the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

_FILTER_BITS = 64
_BITS_OF_A_NODE = 3


@dataclass(frozen=True, slots=True)
class Membership:
    """The addresses of the nodes, from the operator's file."""

    staying: tuple[str, ...]
    joining: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @property
    def before(self) -> tuple[str, ...]:
        return tuple(sorted(self.staying + self.leaving))

    @property
    def after(self) -> tuple[str, ...]:
        return tuple(sorted(self.staying + self.joining))

    @property
    def everybody(self) -> tuple[str, ...]:
        return tuple(sorted(self.staying + self.joining + self.leaving))

    @property
    def view(self) -> str:
        """Names the list of nodes that timers are to go to; the same wherever that list is the same.

        Joined nodes count as staying ones, so the end of a scaling changes nothing.
        """
        return blake2b(" ".join(self.after).encode(), digest_size=8).hexdigest()


def replicas_of(timer_id: int, factor: int, nodes: Sequence[str]) -> tuple[str, ...]:
    """The nodes that keep a timer, the first of them first; all nodes if there are not more than `factor`."""
    ranked = sorted(nodes, key=lambda node: (_rank(timer_id, node), node))
    return _one_copy((*ranked[:1], *reversed(ranked[1:]))[:factor])


@lru_cache(10_000)
def _one_copy(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Thousands of timers have the same list."""
    return nodes


def _rank(timer_id: int, node: str) -> bytes:
    return blake2b(timer_id.to_bytes(8, "big") + node.encode(), digest_size=8).digest()


def filter_of(nodes: Iterable[str]) -> int:
    """A Bloom filter of 64 bits that holds some nodes."""
    bits = 0
    for node in nodes:
        bits |= _bits_of(node)
    return bits


def matching(bits: int, nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes that a filter may hold: all that it does hold, and sometimes one more."""
    return tuple(node for node in nodes if bits & _bits_of(node) == _bits_of(node))


def _bits_of(node: str) -> int:
    bits = 0
    for byte in blake2b(node.encode(), digest_size=_BITS_OF_A_NODE).digest():
        bits |= 1 << byte % _FILTER_BITS
    return bits
