"""What a quick run measures: one rate and two bursts, on one start of each side: Spark starts slowly."""

from __future__ import annotations

from chronoline_bench.cases.pipe_bursts import BurstSizes, burst_ours, burst_theirs, report_bursts
from chronoline_bench.cases.pipe_rates import COMPARED_RATE, report_rates
from chronoline_bench.pipes.stage import Stage


def measure_taste(stage: Stage, steady_s: float, bursts: BurstSizes) -> None:
    with stage.session.show.work("a taste", 2) as advance:
        with stage.published("taste_published") as published, published.serving():
            theirs = stage.steady(published, COMPARED_RATE, steady_s)
            their_bursts = burst_theirs(published, bursts)
        advance(1)
        with stage.pipe("taste", "a taste") as pipe, pipe.serving():
            ours = stage.steady(pipe, COMPARED_RATE, steady_s)
            our_bursts = burst_ours(pipe, bursts)
        advance(1)
    report_rates(stage, {COMPARED_RATE: [ours]}, [theirs])
    report_bursts(stage, bursts, our_bursts, their_bursts)
