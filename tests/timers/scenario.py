"""Scenarios as text: commands, each with what is to be seen after it.

    ask B C
    ----
    C offers 1: C A -> B A
    B holds 1 as 0 of B A

Nodes are letters. A timer is named by a number in the text; its real id is one that hashing places as the
text says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import TimerPlan
from chronoline.timers.replica import Replica
from chronoline.timers.timer import Timer

Step = tuple[str, list[str]]
_NOW_MS = 1_000_000


def read_scenario(path: Path) -> list[Step]:
    """Commands with the lines that are expected after each."""
    steps: list[Step] = []
    blocks = path.read_text("utf-8").split("\n\n")
    for block in blocks:
        lines = [line for line in block.strip().splitlines() if not line.startswith("#")]
        if lines:
            assert lines[1] == "----", f"{path.name}: no ---- after {lines[0]!r}"
            steps.append((lines[0], lines[2:]))
    return steps


class Scenario:
    """Runs the commands of a text; each answers the lines to be seen."""

    def __init__(self) -> None:
        self._nodes: dict[str, Replica] = {}
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._letters: dict[tuple[str, str], list[Timer]] = {}
        # Timers that a node has settled and not yet reported to leaving nodes.
        self._taken: dict[str, list[tuple[int, int]]] = {}

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        does: Callable[..., Iterator[str]] = getattr(self, f"_do_{verb}")
        return list(does(*words))

    # Commands

    def _do_cluster(self, *words: str) -> Iterator[str]:
        """`cluster staying=A,B leaving=C`: the list that every node gets."""
        lists = {
            name: tuple(members.split(",")) for name, members in (each.split("=") for each in words)
        }
        membership = Membership(**lists)
        for node in membership.everybody:
            if node in self._nodes:
                self._nodes[node].see(membership)
            else:
                self._nodes[node] = Replica(node, membership, life="")
        yield f"before {' '.join(membership.before)}, after {' '.join(membership.after)}"

    def _do_timer(self, name: str, old: str, new: str) -> Iterator[str]:
        """`timer 1 C,A B,A`: one that is kept by the first list, and by the second from now on."""
        membership = next(iter(self._nodes.values())).membership
        before, after = tuple(old.split(",")), tuple(new.split(","))
        factor = len(before)
        timer_id = next(
            each
            for each in count(1)
            if replicas_of(each, factor, membership.before) == before
            and replicas_of(each, factor, membership.after) == after
        )
        self._ids[name], self._names[timer_id] = timer_id, name
        plan = TimerPlan(
            interval_ms=60_000, repeat_for_ms=60_000, uri="http://x/", opaque=name, factor=factor
        )
        earlier = Membership(membership.before)
        for node in before:
            replica = Replica(node, earlier, life="")
            change = replica.change(
                timer_id, plan, factor=factor, at=(), now_ms=_NOW_MS, wall_ms=_NOW_MS
            )
            timer = replace(change.timer, version=change.timer.version._replace(giver=before[0]))
            self._nodes[node].receive(timer, _NOW_MS)
            yield self._state(node, name)

    def _do_ask(self, asker: str, asked: str) -> Iterator[str]:
        """A GET: one node asks another what it is to keep, and does what the rules allow."""
        replica, other = self._nodes[asker], self._nodes[asked]
        offers = list(other.offers(asker, other.ids()))
        if not offers:
            yield f"{asked} offers nothing"
        for offer in offers:
            name = self._names[offer.timer.id]
            yield f"{asked} offers {name}: {' '.join(offer.old)} -> {' '.join(offer.timer.replicas)}"
            before = replica.get(offer.timer.id)
            level = replica.take_offer(offer, _NOW_MS)
            replica.dismiss(offer)
            if replica.get(offer.timer.id) is not before:
                yield self._state(asker, name)
            if level is not None:
                self._taken.setdefault(asker, []).append((offer.timer.id, level))
        yield from self._post(asker)

    def _do_references(self, sender: str, leaver: str) -> Iterator[str]:
        """A DELETE: a node that leaves learns what another has dealt with."""
        for timer_id, level in self._taken.get(sender, []):
            self._nodes[leaver].known_by(timer_id, level, _NOW_MS)
            name = self._names[timer_id]
            yield f"{leaver} hears that {level} and above have {name}"
            yield self._state(leaver, name)

    def _do_deliver(self, sender: str, to: str) -> Iterator[str]:
        """Brings what one node has to tell another."""
        for timer in self._letters.pop((sender, to), []):
            self._nodes[to].receive(timer, _NOW_MS)
            yield self._state(to, self._names[timer.id])

    def _do_update(self, node: str, name: str, *at: str) -> Iterator[str]:
        """A client's PUT at a node; `at` are the nodes of the filter in the id that the client has."""
        replica = self._nodes[node]
        timer_id = self._ids[name]
        factor = int(next(word for word in at if word.isdecimal()))
        plan = TimerPlan(
            interval_ms=60_000, repeat_for_ms=60_000, uri="http://x/", opaque=name, factor=factor
        )
        nodes = [word for word in at if not word.isdecimal()]
        change = replica.change(
            timer_id, plan, factor=factor, at=nodes, now_ms=_NOW_MS, wall_ms=_NOW_MS
        )
        replica.receive(change.timer, _NOW_MS)
        told = change.keepers + change.others
        yield f"{name} goes to {' '.join(change.timer.replicas)}; told are {' '.join(sorted(told))}"
        for other in told:
            self._letters.setdefault((node, other), []).append(change.timer)

    def _do_holders(self, name: str) -> Iterator[str]:
        """Returns the nodes that would pop it, by level."""
        levels = []
        for node, replica in sorted(self._nodes.items()):
            timer = replica.get(self._ids[name])
            if timer is not None and not timer.is_over and node in timer.replicas:
                levels.append((timer.replicas.index(node), node))
        yield " ".join(f"{level}:{node}" for level, node in sorted(levels))

    # Expected lines

    def _post(self, sender: str) -> Iterator[str]:
        for to, timers in sorted(self._nodes[sender].take_messages().items()):
            self._letters.setdefault((sender, to), []).extend(timers)
            for timer in timers:
                word = "tells" if to in timer.replicas else "dismisses"
                yield f"{sender} {word} {to}: {self._names[timer.id]}"

    def _state(self, node: str, name: str) -> str:
        timer = self._nodes[node].get(self._ids[name])
        if timer is None:
            return f"{node} does not know {name}"
        if node not in timer.replicas:
            return f"{node} holds {name} no more"
        return f"{node} holds {name} as {timer.replicas.index(node)} of {' '.join(timer.replicas)}"
