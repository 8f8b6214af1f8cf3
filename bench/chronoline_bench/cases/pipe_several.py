"""One, two and three pipes on the same topics: how much goes through, and how late."""

from __future__ import annotations

import time
from dataclasses import dataclass

from chronoline.runtime.percentiles import PERCENTILES
from chronoline_bench.pipes.stage import Stage

_RATE = 1_000
_CASE = "several pipes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralSizes:
    pipes: tuple[int, ...]
    steady_s: float
    overdue: int
    """Messages that are due when they are published: through the whole pipe as fast as it goes."""


def measure_several(stage: Stage, sizes: SeveralSizes) -> None:
    first: dict[str, float] = {}
    rows: list[tuple[str, float, str]] = []
    with (
        stage.session.show.work(_CASE, len(sizes.pipes)) as advance,
        stage.pipe("several", _CASE) as scene,
    ):
        for pipes in sizes.pipes:
            with scene.serving(pipes):
                late = stage.steady(scene, _RATE, sizes.steady_s).steady
                rows += [
                    (f"late at {_RATE:,}/s, {name}", getattr(late, attribute), "ms")
                    for name, attribute in PERCENTILES.items()
                ]
                passage = scene.run(count=sizes.overdue, due_ms=time.time_ns() // 1_000_000)
                took_s = (passage.last_came_ms - passage.loaded.started_ms) / 1000
                metric = f"{sizes.overdue:,} overdue ones, through everything"
                rows.append((metric, sizes.overdue / took_s, "messages/s"))
            for metric, value, unit in rows:
                beside = ("with one pipe", first.setdefault(metric, value))
                stage.session.add(f"{_CASE}: {pipes}", metric, value, unit, beside=beside)
            rows.clear()
            advance(1)
