"""A pipe in a line."""

from __future__ import annotations

from rich.text import Text

from chronoline.core.lateness import LatenessHistogram
from chronoline.pipe.counters import Counters
from chronoline.pipe.places import Place
from chronoline.pipe.settings import PipeSettings

_SECOND_MS = 1_000


def heading(settings: PipeSettings) -> Text:
    """Its name, from where to where, and where messages wait in between."""
    stops = [_place(settings.input), settings.store.partition(":")[0]]
    if "output" not in settings.left_out:
        stops.append(_place(settings.output))
    return Text.assemble((settings.name, "bold"), ": ", " → ".join(stops))


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
