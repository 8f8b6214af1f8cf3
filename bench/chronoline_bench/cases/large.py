"""The same work on a small and on a large timeline: it should take the same time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from chronoline_bench.cases.timeline import FORECAST_STEP_MS, Timeline
from chronoline_bench.engines.contract import Engine
from chronoline_bench.messages import DAY_MS
from chronoline_bench.report import Row, Wanted
from chronoline_bench.rounds import interleave, medians
from chronoline_bench.serving import SERVE_BATCH
from chronoline_bench.session import Session

SAME_TIME = Wanted(at_most=1.5)
WARM_UPS = 2
_FORECASTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeSizes:
    rounds: int
    small: int
    """Half of it is due, the other half is counted."""
    large: int

    @property
    def half(self) -> int:
        return self.small // 2


def measure_large(
    session: Session, engine: Engine, sizes: LargeSizes, *, shuffled: bool = True
) -> None:
    """Each kind of work on both, in turn; then what concerns the large one alone."""
    order = "shuffled" if shuffled else "in_order"
    case = f"{engine.name}: {sizes.large:,} waiting messages, written {order.replace('_', ' ')}"
    totals = {"small": sizes.small, "large": sizes.large}
    with ExitStack() as stack:
        timelines: dict[str, Timeline] = {}
        for name, total in totals.items():
            database = stack.enter_context(engine.open(f"{name}_{order}"))
            timeline = Timeline(session, database, total=total, due=sizes.half, shuffled=shuffled)
            with session.show.work(f"{engine.name}: filling, {order}", total) as advance:
                timeline.fill(advance)
            timelines[name] = timeline
        _report_size(session, case, timelines["large"])
        for kind in _kinds(sizes.half):
            _report_both(session, case, kind, timelines, sizes)
        _report_forecast(session, case, timelines["large"])


class _Kind(NamedTuple):
    """A kind of work that is measured on both timelines."""

    metric: str
    work: Callable[[Timeline], float]
    wanted: Wanted | None = SAME_TIME

    def on(self, timeline: Timeline) -> Callable[[], float]:
        return lambda: self.work(timeline)


def _kinds(half: int) -> tuple[_Kind, ...]:
    return (
        _Kind(f"fetch of the next due {SERVE_BATCH}", Timeline.fetch),
        _Kind(f"lease of {SERVE_BATCH} by range", Timeline.lease),
        _Kind("when the next falls due", Timeline.next_ts),
        _Kind("look-up of 1", lambda timeline: timeline.look_up(1)),
        # They lie anywhere: in a large table each is on a page of its own, which is mostly not at hand.
        _Kind(
            f"look-up of {SERVE_BATCH}", lambda timeline: timeline.look_up(SERVE_BATCH), wanted=None
        ),
        _Kind(f"count over {half:,}", lambda timeline: timeline.count(half, 2 * half)),
    )


def _report_both(
    session: Session, case: str, kind: _Kind, timelines: dict[str, Timeline], sizes: LargeSizes
) -> None:
    measures = {name: kind.on(timeline) for name, timeline in timelines.items()}
    total = (sizes.rounds + WARM_UPS) * len(measures)
    with session.show.work(kind.metric, total) as advance:
        figures = interleave(
            sizes.rounds, measures, warm_ups=WARM_UPS, after_each=lambda: advance(1)
        )
    ms = medians(figures)
    session.rows.append(
        Row(
            case=case,
            metric=kind.metric,
            value=ms["large"],
            unit="ms",
            reference=f"among {sizes.small:,}",
            reference_value=ms["small"],
            wanted=kind.wanted,
        )
    )


def _report_size(session: Session, case: str, large: Timeline) -> None:
    given = large.filling.body_bytes + len(large.filling.id(0))
    session.rows.append(
        Row(
            case=case,
            metric="on disk, with indexes",
            value=large.bytes_per_message,
            unit="bytes/message",
            reference="body and id",
            reference_value=given,
        )
    )


def _report_forecast(session: Session, case: str, large: Timeline) -> None:
    measures = {"forecast": large.forecast, "raw": large.raw_count}
    with session.show.work("forecast", _FORECASTS * len(measures)) as advance:
        ms = medians(interleave(_FORECASTS, measures, warm_ups=0, after_each=lambda: advance(1)))
    session.rows.append(
        Row(
            case=case,
            metric=f"forecast of the whole day, {DAY_MS // FORECAST_STEP_MS} steps",
            value=ms["forecast"],
            unit="ms",
            reference="raw count of all",
            reference_value=ms["raw"],
        )
    )
