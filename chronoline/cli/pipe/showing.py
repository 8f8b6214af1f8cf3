"""A pipe in a line."""

from __future__ import annotations

from rich.text import Text

from chronoline.pipe.counting import Counters
from chronoline.pipe.places import Place
from chronoline.pipe.receipts import LatenessHistogram
from chronoline.pipe.settings import PipeSettings

_SECOND_MS = 1_000


def place_line(settings: PipeSettings) -> str:
    """From where to where, and where messages wait in between."""
    kind = settings.store.partition(":")[0]
    return f"{_place(settings.input)} → {kind} → {_place(settings.output)}"


def _place(place: Place) -> str:
    where = place.bootstrap if place.kind == "kafka" else "log"
    return f"{place.topic} ({where})"


def progress_line(counters: Counters) -> Text:
    parts = [
        f"fired {counters.fired:,}",
        f"late p50 {bound(counters.lateness, 0.5)}, p99.9 {bound(counters.lateness, 0.999)}",
        f"input lag {counters.lag:,}",
        f"windows {counters.served:,}"
        + (f", skipped {counters.skipped:,}" * bool(counters.skipped)),
    ]
    if counters.redelivered:
        parts.append(f"redelivered {counters.redelivered:,}")
    if counters.restarts:
        parts.append(f"restarts {counters.restarts:,}")
    return Text(" · ".join(parts))


def bound(lateness: LatenessHistogram, part: float) -> str:
    """A percentile as a bound of the histogram."""
    found = lateness.percentile_ms(part)
    if found is None:
        return "–"
    if found == float("inf"):
        return "> 60 s"
    return f"≤ {found:g} ms" if found < _SECOND_MS else f"≤ {found / _SECOND_MS:g} s"
