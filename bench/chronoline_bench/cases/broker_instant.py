"""Many that fall due at one instant, beside the hand-written queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from chronoline_bench.brokers.draining import (
    TAKES,
    drain_instant,
    draining_table,
    draining_topic,
    taking,
)
from chronoline_bench.brokers.stage import ENGINES, MOST_CONSUMERS, Stage, people
from chronoline_bench.report import Wanted

CEILING = Wanted(at_most=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantSizes:
    rounds: int
    messages: int
    takes: tuple[int, ...] = TAKES


def measure_instant(stage: Stage, sizes: InstantSizes) -> None:
    messages = sizes.messages
    with ExitStack() as opened:
        works: dict[str, Callable[[], float]] = {}
        for engine in ENGINES:
            broker = opened.enter_context(stage.broker(engine, f"instant_{engine}"))
            drain = draining_topic(stage, broker, messages, MOST_CONSUMERS)
            works[engine] = partial(drain_instant, drain, messages)
        table = opened.enter_context(stage.table("instant_table"))
        for take in sizes.takes:
            drain = draining_table(stage, table, messages, MOST_CONSUMERS, take)
            works[taking(take)] = partial(drain_instant, drain, messages)
        seconds = stage.in_turn(f"{messages:,} at one instant", sizes.rounds, works)
    for engine in ENGINES:
        for take in sizes.takes:
            stage.session.add(
                f"{engine}: {messages:,} due at one instant, {people(MOST_CONSUMERS)}",
                f"the last has come, beside {take} at a time",
                median(seconds[engine]),
                "s",
                beside=(taking(take), median(seconds[taking(take)])),
                wanted=CEILING if take == 1 else None,
            )
