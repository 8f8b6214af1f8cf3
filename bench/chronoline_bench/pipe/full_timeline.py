"""The cases `waiting`, `forecast` and `bulk`: millions of waiting messages, and Spark jobs on timelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from chronoline_bench.harness.passage import Passage, wall_us
from chronoline_bench.pipe.jobs import TASKS
from chronoline_bench.pipe.sides import PipeSide
from chronoline_bench.pipe.stage import PipeStage
from chronoline_bench.report import Wanted, medians_of
from chronoline_bench.workload import DAY_MS

SAME = Wanted(at_most=1.3)
BULK_FLOOR = Wanted(at_least=0.5)
_RATE = 1_000
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSizes:
    waiting: int
    rounds: int
    steady_s: float
    forecasts: int
    """The number of runs of each forecast."""


def measure_waiting(
    stage: PipeStage, sizes: WaitingSizes, *, lateness: bool, forecast: bool
) -> None:
    """Measures both cases on one timeline, which takes long to fill."""
    with _filled(stage, sizes.waiting) as (side, start_ms):
        if forecast:
            _measure_forecast(stage, sizes, side, start_ms)
        if lateness:
            _measure_lateness(stage, sizes, side)


@contextmanager
def _filled(stage: PipeStage, waiting: int) -> Iterator[tuple[PipeSide, int]]:
    """Makes a timeline with messages that fall due during the day after tomorrow."""
    start_ms = (wall_us() // 1_000 // _MINUTE_MS) * _MINUTE_MS + 2 * DAY_MS
    with stage.postgres.open("waiting") as database:
        side = PipeSide("waiting", database.url)
        with stage.session.show.work("filling", waiting) as advance:
            side.fill(database, waiting, start_ms, DAY_MS, advance)
        stage.session.tally.expect(waiting, side.stored(start_ms))
        yield side, start_ms


def _measure_lateness(stage: PipeStage, sizes: WaitingSizes, side: PipeSide) -> None:
    case = f"{sizes.waiting:,} waiting, {_RATE:,}/s"
    found: dict[str, list[Passage]] = {"empty": [], "full": []}
    with (
        stage.session.show.work("waiting", 2 * sizes.rounds) as advance,
        stage.pipe("waiting_none", f"{case}: the empty one") as empty,
        stage.pipe("waiting", case, side=side) as full,
    ):
        for number in range(sizes.rounds):
            turns = [("empty", empty), ("full", full)]
            for name, scene in turns if number % 2 == 0 else reversed(turns):
                with scene.serving():
                    found[name].append(stage.steady(scene, _RATE, sizes.steady_s))
                advance(1)
    reference = medians_of([each.steady for each in found["empty"]])
    for name, value in medians_of([each.steady for each in found["full"]]).items():
        wanted = SAME if name == "p99" else None
        beside = ("with none waiting", reference[name])
        stage.session.add(case, f"late, {name}", value, "ms", beside=beside, wanted=wanted)


def _measure_forecast(stage: PipeStage, sizes: WaitingSizes, side: PipeSide, start_ms: int) -> None:
    case = f"the forecast of {sizes.waiting:,} waiting messages, by minute, in a Spark job"
    with stage.session.show.work("forecast", 1) as advance:
        figures = stage.job(
            "forecast",
            store=side.store,
            topic=side.topic,
            start_ms=start_ms,
            end_ms=start_ms + DAY_MS,
            rounds=sizes.forecasts,
        )
        advance(1)
    grouped = "rows without bodies, groupBy"
    counted_ms, grouped_ms = min(figures["counted_ms"]), min(figures["grouped_ms"])
    stage.session.add(case, "counted in the store", counted_ms, "ms", beside=(grouped, grouped_ms))
    rows = (figures["counted_steps"][0], float(sizes.waiting))
    stage.session.add(case, "rows that leave the store", rows[0], "rows", beside=(grouped, rows[1]))
    for name in ("counted", "grouped"):
        stage.session.tally.expect(sizes.waiting, round(figures[name][0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSizes:
    rounds: int
    messages: int


def measure_bulk(stage: PipeStage, sizes: BulkSizes) -> None:
    """Measures a DataFrame written to a timeline, beside COPY into a raw table with the same columns."""
    case = f"a DataFrame of {sizes.messages:,} messages, written by {TASKS} tasks"
    now_ms = stage.session.clock.now_ms()
    with (
        stage.session.show.work("bulk", 1) as advance,
        stage.postgres.open("bulk") as own,
        stage.postgres.open("bulk_raw") as raw,
    ):
        topic = own.store.create_topic("bulk", now_ms=now_ms)
        raw_topic = raw.store.create_topic("bulk", now_ms=now_ms)
        figures = stage.job(
            "bulk",
            store=own.url,
            topic=topic.name,
            raw=raw.url,
            raw_topic=raw_topic.name,
            messages=sizes.messages,
            rounds=sizes.rounds,
        )
        written = (sizes.rounds + 1) * sizes.messages
        stage.session.tally.expect(written, own.count(topic))
        advance(1)
    rate = median(figures["write"])
    for name, words in (("copy_1", "COPY by one connection"), ("copy_2", "COPY by two at once")):
        beside = (words, median(figures[name]))
        metric = f"written to the timeline by a warm session, beside {words}"
        stage.session.add(case, metric, rate, "messages/s", beside=beside, wanted=BULK_FLOOR)
        metric = f"written by the first job of a session, beside {words}"
        stage.session.add(case, metric, figures["cold"][0], "messages/s", beside=beside)
