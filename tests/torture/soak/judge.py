"""The judge of a soak: nothing is lost, and nothing grows.

A pure function. It compares the last third of the samples with the first, after a warm-up: a process that
leaks memory, descriptors or threads, a store whose rows or bytes grow, and messages that come later and
later. Only a process that lives long can show a leak: one that was started again warms up, and has another
name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.torture.history import FAULT, Event, Violation

SAMPLE = "sample"
"""Of a process: `who`, and a figure for each of its `LIMITS`."""
STORE = "store"
FLOW = "flow"
"""The lateness of the deliveries since the last sample."""
END = "end"

_WARM_UP = 0.25
"""The part of a run in which caches fill and ids stay taken."""
_LIFE = 0.5
"""The part of the time after the warm-up that a process has to live, to be judged."""
_LEAST_SAMPLES = 3
"""In each third; with fewer nothing is proved."""
_OUTAGE_S = 10.0
"""Messages that fell due from a fault until then may be late."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The growth that is allowed: a part of the figure itself, and a number that counts in short runs."""

    part: float
    number: float
    unit: str


LIMITS: Mapping[str, Mapping[str, Limit]] = {
    SAMPLE: {
        "rss_mb": Limit(0.10, 16, "MB"),
        "descriptors": Limit(0.0, 12, "descriptors"),
        "threads": Limit(0.0, 6, "threads"),
    },
    STORE: {"rows": Limit(0.25, 1_000, "rows"), "disk_mb": Limit(0.35, 24, "MB")},
    FLOW: {"p50_ms": Limit(0.5, 8, "ms")},
}


def judge(events: Sequence[Event]) -> list[Violation]:
    """The violations in a recorded run."""
    return [*_growth(events), *_losses(events)]


@dataclass(frozen=True, slots=True)
class Growth:
    """The medians of the first and the last third of one figure."""

    who: str
    figure: str
    first: float
    last: float
    samples: int

    @property
    def limit(self) -> Limit:
        return next(found[self.figure] for found in LIMITS.values() if self.figure in found)

    @property
    def most(self) -> float:
        return self.first * (1 + self.limit.part) + self.limit.number


def growths(events: Sequence[Event]) -> list[Growth]:
    """The growth of each figure that was sampled often enough."""
    found = []
    for (who, figure), points in _series(events).items():
        third = len(points) // 3
        if third >= _LEAST_SAMPLES:
            first, last = median(points[:third]), median(points[-third:])
            found.append(Growth(who, figure, first, last, len(points)))
    return found


def _series(events: Sequence[Event]) -> dict[tuple[str, str], list[float]]:
    """The values after the warm-up, by process and figure. Lateness in an outage is left out."""
    if not events:
        return {}
    begin, end = events[0].mono_ns, events[-1].mono_ns
    warm = begin + (end - begin) * _WARM_UP
    outages = [event.mono_ns for event in events if event.kind == FAULT]
    lives: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event.kind in LIMITS:
            lives[_who(event)].append(event.mono_ns)
    judged = {
        who for who, at in lives.items() if at[0] <= warm and at[-1] - warm >= _LIFE * (end - warm)
    }
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.mono_ns < warm or event.kind not in LIMITS or _who(event) not in judged:
            continue
        if event.kind == FLOW and _is_within(event.mono_ns, outages):
            continue
        for figure in LIMITS[event.kind]:
            value = event.get(figure)
            if value is not None:
                found[_who(event), figure].append(float(value))
    return found


def _who(event: Event) -> str:
    return str(event.get("who", event.kind))


def _is_within(moment_ns: int, outages: Sequence[int]) -> bool:
    return any(0 <= moment_ns - each < _OUTAGE_S * 1e9 for each in outages)


def _growth(events: Sequence[Event]) -> Iterator[Violation]:
    found = growths(events)
    for each in found:
        if each.last > each.most:
            yield Violation(
                f"37 {each.figure} grows",
                f"{each.who}: {each.first:,.1f} → {each.last:,.1f} {each.limit.unit} in {each.samples} "
                f"samples, at most {each.most:,.1f}",
            )
    judged = {each.figure for each in found}
    # In a short run lateness has no calm samples.
    for figure in (name for kind in (SAMPLE, STORE) for name in LIMITS[kind]):
        if figure not in judged:
            yield Violation(f"37 {figure} was not judged", "there are too few samples")


def _losses(events: Sequence[Event]) -> Iterator[Violation]:
    ends = [event for event in events if event.kind == END]
    if not ends:
        yield Violation("the run did not end", "its last event is missing")
        return
    rules = {
        "lost": "6 acknowledged message lost",
        "early": "10 handed over before its due",
        "double": "7 acked message served again",
        "uncalled": "13 due message not served, by its target",
        "unpopped": "32 timer not popped",
        "unscheduled": "13 occurrence of a schedule is missing",
        "unfired": "31 input of the pipe not fired",
    }
    for field, rule in rules.items():
        if ends[-1][field]:
            yield Violation(rule, f"{ends[-1][field]:,} of {ends[-1]['sent']:,}")
    if not ends[-1]["delivered"]:
        yield Violation("13 due message not served", "none was delivered")
