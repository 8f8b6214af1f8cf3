"""Figures of dealers and selector, by simulation: no clock, no store.

`python -m chronoline_bench.cluster.placement` prints them as Markdown, as docs/design/placement.md has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from chronoline.core.dealer import Dealer, Share, pass_on
from chronoline.core.selector import BrokerState, ClientKind, preferred_brokers

BUCKETS = 1024
RACKS = {
    "2 + 2": (2, 2),
    "4 + 1 + 2": (4, 1, 2),
    "8": (8,),
    "4 + 4 + 4": (4, 4, 4),
    "32 + 32 + 32": (32, 32, 32),
}


def consumers_of(sizes: Sequence[int]) -> dict[str, str]:
    """Consumers by name, each with its rack."""
    return {
        f"{rack}-{number:03}": f"rack-{rack}"
        for rack, size in enumerate(sizes)
        for number in range(size)
    }


def owners(shares: Mapping[str, Share]) -> set[tuple[int, str]]:
    """All buckets with their owners."""
    return {
        (bucket, name)
        for name, share in shares.items()
        for each in share.own
        for bucket in range(*each)
    }


def backups(shares: Mapping[str, Share]) -> set[tuple[int, str]]:
    """All buckets with their backups."""
    return owners({name: Share(own=share.backups) for name, share in shares.items()})


@dataclass(frozen=True, slots=True)
class Changes:
    """The effect of one consumer that leaves, or joins: the same buckets move. In per cent."""

    moved: float
    """Buckets that get another owner, on average over all consumers."""
    worst: float
    """The same for the consumer with the most."""
    fewest: float
    """The share of one consumer, which has to move in any case."""
    backups: float
    """Backups of buckets that change, of all."""
    at_once: float
    """Buckets of a lost consumer that another one owns before the next window."""


def changes(dealer: Dealer, sizes: Sequence[int], buckets: int = BUCKETS) -> Changes:
    """Each consumer leaves once."""
    everybody = consumers_of(sizes)
    full = dealer.deal(everybody, buckets)
    owned, backed = owners(full), backups(full)
    moved, backups_moved, at_once = [], [], []
    for name in everybody:
        rest = {other: rack for other, rack in everybody.items() if other != name}
        left = dealer.deal(rest, buckets)
        moved.append(len(owned - owners(left)) / buckets)
        backups_moved.append(len(backed - backups(left)) / max(1, len(backed)))
        mine = sum(stop - start for start, stop in full[name].own)
        at_once.append(len(owned - owners(pass_on(full, {name}))) / mine)
    return Changes(
        moved=100 * fmean(moved),
        worst=100 * max(moved),
        fewest=100 / len(everybody),
        backups=100 * fmean(backups_moved),
        at_once=100 * fmean(at_once),
    )


def reading_brokers(consumers: int, brokers: int, *, selected: bool) -> int:
    """The brokers that read a topic: by the selector, or with consumers at each broker in turn."""
    states = {f"b{number}": BrokerState(broker=f"b{number}") for number in range(brokers)}
    for number in range(consumers):
        in_turn = f"b{number % brokers}"
        broker = preferred_brokers("t", states.values())[0] if selected else in_turn
        states[broker] = states[broker].with_clients(ClientKind.CONSUMER, "t", 1)
    return sum("t" in each.topics for each in states.values())


def lines() -> Iterator[str]:
    """The tables."""
    yield "| racks | dealer | buckets moved | at worst | the fewest | backups moved | served at once |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for racks, sizes in RACKS.items():
        for dealer in Dealer:
            found = changes(dealer, sizes)
            yield (
                f"| {racks} | {dealer} | {found.moved:.0f} % | {found.worst:.0f} % | {found.fewest:.0f} %"
                f" | {found.backups:.0f} % | {found.at_once:.0f} % |"
            )
    yield ""
    yield "| consumers of a topic | brokers | that read it | with consumers in turn |"
    yield "| ---: | ---: | ---: | ---: |"
    for consumers, brokers in ((4, 4), (8, 4), (8, 8), (16, 4), (28, 8)):
        selected = reading_brokers(consumers, brokers, selected=True)
        in_turn = reading_brokers(consumers, brokers, selected=False)
        yield f"| {consumers} | {brokers} | {selected} | {in_turn} |"


if __name__ == "__main__":
    print("\n".join(lines()))
