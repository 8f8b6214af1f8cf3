"""A campaign: a DataFrame written to a timeline by two tasks, beside raw COPY into the same table."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from chronoline_bench.pipes.jobs import TASKS, WARM_UP
from chronoline_bench.pipes.stage import Stage
from chronoline_bench.report import Wanted

FLOOR = Wanted(at_least=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkSizes:
    rounds: int
    messages: int


def measure_bulk(stage: Stage, sizes: BulkSizes) -> None:
    """The raw table lies in a database of its own: same columns, indexes and settings."""
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
        written = sizes.rounds * sizes.messages + WARM_UP
        stage.session.tally.expect(written, own.count(topic))
        advance(1)
    rate = median(figures["write"])
    for name, words in (("copy_1", "COPY by one connection"), ("copy_2", "COPY by two at once")):
        metric = f"written to the timeline, beside {words}"
        beside = (words, median(figures[name]))
        stage.session.add(case, metric, rate, "messages/s", beside=beside, wanted=FLOOR)
