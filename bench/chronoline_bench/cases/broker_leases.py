"""Lease and ack as fast as it goes, of what is due already, beside the hand-written queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median

from chronoline_bench.brokers.draining import (
    TAKES,
    drain_overdue,
    draining_table,
    draining_topic,
    taking,
)
from chronoline_bench.brokers.stage import ENGINES, Stage, people
from chronoline_bench.report import Wanted

FLOOR = Wanted(at_least=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSizes:
    rounds: int
    messages: int
    consumers: tuple[int, ...]
    takes: tuple[int, ...] = TAKES


def measure_leases(stage: Stage, sizes: LeaseSizes) -> None:
    with ExitStack() as opened:
        brokers = {
            engine: opened.enter_context(stage.broker(engine, f"leases_{engine}"))
            for engine in ENGINES
        }
        table = opened.enter_context(stage.table("leases_table"))
        for consumers in sizes.consumers:
            works: dict[str, Callable[[], float]] = {
                engine: partial(
                    drain_overdue, draining_topic(stage, broker, sizes.messages, consumers)
                )
                for engine, broker in brokers.items()
            }
            for take in sizes.takes:
                drain = draining_table(stage, table, sizes.messages, consumers, take)
                works[taking(take)] = partial(drain_overdue, drain)
            title = f"lease and ack, {people(consumers)}"
            rates = stage.in_turn(title, sizes.rounds, works)
            for engine in ENGINES:
                for take in sizes.takes:
                    stage.session.add(
                        f"{engine}: {title}, {sizes.messages:,} due",
                        f"through the broker, beside {take} at a time",
                        median(rates[engine]),
                        "messages/s",
                        beside=(taking(take), median(rates[taking(take)])),
                        wanted=FLOOR if take == 1 else None,
                    )
