"""The parts of the gap that the consumers of a killed broker have, by the steps that their clients log."""

from __future__ import annotations

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

GAP_PARTS = (
    "until the client notices",
    "until another broker welcomes it",
    "until that one accepts the subscription",
    "until the next message is pushed and due",
)
_STEPS = ("stream_broken", "stream_open", "subscribed")


@dataclass(frozen=True, slots=True)
class Gap:
    """From the kill of its broker until a consumer has its next message."""

    whole_s: float
    parts_s: Mapping[str, float]
    """By the names of `GAP_PARTS`; together they are the whole."""


@dataclass
class Steps(logging.Handler):
    """The steps of all clients of this process, by the name of the client."""

    seen: defaultdict[str, list[tuple[float, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        super().__init__(logging.DEBUG)

    __hash__ = logging.Handler.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        if (action := getattr(record, "action", "")) in _STEPS:
            self.seen[record.__dict__["client"]].append((time.monotonic(), action))

    def resumed_s(self, name: str, killed_s: float) -> float | None:
        """When another broker accepted a consumer after the kill; None if none has yet."""
        moments = (at for at, step in self.seen[name] if step == _STEPS[-1] and at > killed_s)
        return next(moments, None)

    def gaps(self, whole_s: Mapping[str, float], killed_s: float) -> list[Gap]:
        """The gaps of consumers by their parts. A step that came later than the message took no time."""
        return [self._gap(name, gap_s, killed_s) for name, gap_s in whole_s.items()]

    def _gap(self, name: str, gap_s: float, killed_s: float) -> Gap:
        ends_s = killed_s + gap_s
        moments, at_s = [killed_s], killed_s
        for step in _STEPS:
            after = (at for at, action in self.seen[name] if action == step and at >= at_s)
            at_s = min(next(after, at_s), ends_s)
            moments.append(at_s)
        moments.append(ends_s)
        lengths = (end - begin for begin, end in itertools.pairwise(moments))
        return Gap(gap_s, dict(zip(GAP_PARTS, lengths, strict=True)))


@contextmanager
def recorded_steps() -> Iterator[Steps]:
    """Records the steps of clients within the block."""
    clients = logging.getLogger("chronoline.client")
    before, steps = clients.level, Steps()
    clients.addHandler(steps)
    clients.setLevel(logging.DEBUG)
    clients.propagate = False
    try:
        yield steps
    finally:
        clients.removeHandler(steps)
        clients.setLevel(before)
        clients.propagate = True
