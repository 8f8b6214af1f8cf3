"""Generations: the members of a topic at all its brokers, numbered, each in force from a numbered window on.

Windows have the same numbers everywhere: the time divided by the topic's `window_ms`. A generation names the
members in force from its window on, and those before it. So all brokers change to new shares at the same
moment, and one that starts in between knows which shares are in force. Every broker computes the shares from
the generation by itself (`core.dealer`).

Any broker may make the next generation when the members that it observes differ; the coordination service
accepts one of them for each number. The rules of `next_generation`:

- A new consumer, a lost one, and one that turns busy or free, change the shares from the next window on.
  Until then the change may be amended. So the shares change once a window, however many come and go.
- While no living consumer has a share, there is nothing to rebalance: the change is in force at once.
- A lost consumer is named at once. Its backups own its buckets until the next window (`dealer.pass_on`).
- A consumer that returns under its name before the shares changed keeps its share, at another broker too.
- Busy consumers are members without a share. They stay members so that others know of them.

A change needs notice: a broker that learns of it after its window has begun serves by the members before,
and buckets can be without a consumer meanwhile. So a change within `notice_ms` of a window's begin takes
effect one window later (`first_window`), and a change that is as near is not amended any more.

Views that differ are safe: the store gives each message to one consumer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from chronoline.core.dealer import Dealer, Share, pass_on


class TopicMember(NamedTuple):
    """A consumer of a topic, and where it is connected."""

    consumer: str
    broker: str = ""
    rack: str = ""
    busy: bool = False
    """It takes no messages for now, so it has no share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The members of a topic, in order of their names."""

    number: int = 0
    window: int = 0
    """The first window of `members`."""
    members: tuple[TopicMember, ...] = ()
    before: tuple[TopicMember, ...] = ()
    """In force until that window begins."""
    lost: frozenset[str] = frozenset()
    """Members that are not connected any more."""

    def members_in(self, window: int) -> tuple[TopicMember, ...]:
        """The members in force."""
        return self.members if window >= self.window else self.before

    def shares_in(self, window: int, *, buckets: int, dealer: Dealer) -> dict[str, Share]:
        """The shares in force, of all consumers that are not busy."""
        racks = {each.consumer: each.rack for each in self.members_in(window) if not each.busy}
        return pass_on(dealer.deal(racks, buckets), self.lost)

    def served_by(
        self, broker: str, window: int, *, buckets: int, dealer: Dealer
    ) -> dict[str, Share]:
        """The shares in force of the consumers that are connected to one broker."""
        shares = self.shares_in(window, buckets=buckets, dealer=dealer)
        there = {each.consumer for each in self.members_in(window) if each.broker == broker}
        return {name: shares[name] for name in shares if name in there - self.lost}


NO_MEMBERS = Generation()


def window_at(now_ms: int, window_ms: int) -> int:
    """The number of the current window."""
    return now_ms // window_ms


def first_window(now_ms: int, window_ms: int, *, notice_ms: int = 0) -> int:
    """The first window that begins after a notice."""
    return (now_ms + notice_ms) // window_ms + 1


def next_generation(
    present: Generation,
    observed: Iterable[TopicMember],
    *,
    window: int,
    from_window: int | None = None,
) -> Generation | None:
    """The generation after the present one; None if the observed members need none.

    `window` is the current window. A change takes effect in `from_window`, the next one if not given.
    """
    start = window + 1 if from_window is None else from_window
    seen = {each.consumer: each for each in sorted(observed)}
    in_force = present.members_in(window)
    wanted = tuple(seen.values())
    if not any(each.consumer in seen and not each.busy for each in in_force):
        return _at_once(present, wanted, window)
    current = _reconnected(in_force, seen)
    if present.window > window and start > present.window:  # too near to be amended
        return _planned(present, current, _reconnected(present.members, seen), present.window, seen)
    if [_dealt(each) for each in wanted] == [_dealt(each) for each in in_force]:
        is_known = window >= present.window and current == in_force
        if is_known and present.lost.isdisjoint(seen):
            return None
        return _at_once(present, current, window)
    # A window further ahead was numbered before the clock was put back.
    is_planned = start <= present.window <= start + 1
    return _planned(present, current, wanted, present.window if is_planned else start, seen)


def _at_once(
    present: Generation, members: tuple[TopicMember, ...], window: int
) -> Generation | None:
    """In force for brokers whose clocks are a little behind, too: the members before are the same."""
    if present.members == present.before == members and not present.lost:
        return None
    return Generation(number=present.number + 1, window=window, members=members, before=members)


def _planned(
    present: Generation,
    before: tuple[TopicMember, ...],
    members: tuple[TopicMember, ...],
    window: int,
    seen: dict[str, TopicMember],
) -> Generation | None:
    lost = frozenset(each.consumer for each in (*before, *members) if each.consumer not in seen)
    planned = replace(present, window=window, members=members, before=before, lost=lost)
    return None if planned == present else replace(planned, number=present.number + 1)


def _reconnected(
    members: tuple[TopicMember, ...], seen: dict[str, TopicMember]
) -> tuple[TopicMember, ...]:
    """The members, each at the broker where it is now. Racks and busyness are of the window."""
    return tuple(
        each._replace(broker=seen[each.consumer].broker) if each.consumer in seen else each
        for each in members
    )


def _dealt(member: TopicMember) -> tuple[str, str, bool]:
    """All that its share depends on."""
    return member.consumer, member.rack, member.busy
