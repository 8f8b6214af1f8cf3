"""The cases `leases` and `instant`: consumers work off a backlog, beside the hand-written queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from chronoline.core.errors import ChronolineError
from chronoline_bench.broker.stage import ENGINES, MOST_CONSUMERS, TABLE, BrokerStage, people
from chronoline_bench.broker.targets import TAKE, Broker, BrokerTarget, Table, TableTarget
from chronoline_bench.harness.passage import Arrivals, wall_us
from chronoline_bench.report import Wanted

LEASE_FLOOR = Wanted(at_least=2)
INSTANT_CEILING = Wanted(at_most=0.5)
PREFETCH = 1_000
"""The most leases that a consumer holds at a time."""
TAKES = (1, TAKE)
"""The jobs that a consumer of the hand-written queue takes at a time.

Taken one at a time, each has its own lease and ack, as with a broker; taken together, they share them.
"""
_FILLED_A_SECOND = 20_000
_LEAD_MS = 1_500
_OVERDUE_MS = 10_000
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSizes:
    rounds: int
    messages: int
    consumers: tuple[int, ...]
    takes: tuple[int, ...] = TAKES


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantSizes:
    rounds: int
    messages: int
    takes: tuple[int, ...] = TAKES


def measure_leases(stage: BrokerStage, sizes: LeaseSizes) -> None:
    """Measures lease and ack of messages that are already due."""
    with _places(stage, "leases") as (brokers, table):
        for consumers in sizes.consumers:
            title = f"lease and ack, {people(consumers)}"
            drains = _drains(
                stage,
                brokers,
                table,
                messages=sizes.messages,
                consumers=consumers,
                takes=sizes.takes,
            )
            works = {name: partial(drain_overdue, drain) for name, drain in drains.items()}
            rates = stage.in_turn(title, sizes.rounds, works)
            for engine in ENGINES:
                for take in sizes.takes:
                    stage.session.add(
                        f"{engine}: {title}, {sizes.messages:,} due",
                        f"through the broker, beside {take} at a time",
                        median(rates[engine]),
                        "messages/s",
                        beside=(taking(take), median(rates[taking(take)])),
                        wanted=LEASE_FLOOR if take == 1 else None,
                    )


def measure_instant(stage: BrokerStage, sizes: InstantSizes) -> None:
    """Measures many messages that fall due at one instant."""
    messages = sizes.messages
    with _places(stage, "instant") as (brokers, table):
        drains = _drains(
            stage, brokers, table, messages=messages, consumers=MOST_CONSUMERS, takes=sizes.takes
        )
        works = {name: partial(drain_instant, drain, messages) for name, drain in drains.items()}
        seconds = stage.in_turn(f"{messages:,} at one instant", sizes.rounds, works)
    for engine in ENGINES:
        for take in sizes.takes:
            stage.session.add(
                f"{engine}: {messages:,} due at one instant, {people(MOST_CONSUMERS)}",
                f"the last has come, beside {take} at a time",
                median(seconds[engine]),
                "s",
                beside=(taking(take), median(seconds[taking(take)])),
                wanted=INSTANT_CEILING if take == 1 else None,
            )


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of consuming a backlog."""

    arrivals: Arrivals
    due_us: int
    ready_us: int
    """When the consumers were ready."""

    @property
    def rate(self) -> float:
        """Messages per second, from the first arrival to the last ack."""
        took_us = max(1, self.arrivals.last_ack_us - self.arrivals.earliest_us)
        return len(self.arrivals.first_us) * 1_000_000 / took_us

    @property
    def last_s(self) -> float:
        """Seconds from the due time to the last arrival."""
        return (self.arrivals.latest_us - self.due_us) / 1_000_000


Drain = Callable[[int], Drained]
"""Writes messages that are due at one moment, and consumes them."""


@contextmanager
def _places(stage: BrokerStage, case: str) -> Iterator[tuple[dict[str, Broker], Table]]:
    """A broker on each engine, and a table."""
    with ExitStack() as opened:
        brokers = {
            engine: opened.enter_context(stage.broker(engine, f"{case}_{engine}"))
            for engine in ENGINES
        }
        yield brokers, opened.enter_context(stage.table(f"{case}_table"))


def _drains(
    stage: BrokerStage,
    brokers: dict[str, Broker],
    table: Table,
    *,
    messages: int,
    consumers: int,
    takes: tuple[int, ...],
) -> dict[str, Drain]:
    def drain_table(take: int, due_ms: int) -> Drained:
        target = table.open()
        target.fill(messages, due_ms)
        return _drain(stage, target, consumers, due_ms, take=take)

    return {
        **{
            engine: partial(drain_topic, stage, broker.open, messages, consumers)
            for engine, broker in brokers.items()
        },
        **{taking(take): partial(drain_table, take) for take in takes},
    }


def drain_topic(
    stage: BrokerStage,
    open_topic: Callable[[], BrokerTarget],
    messages: int,
    consumers: int,
    due_ms: int,
) -> Drained:
    """Fills a new topic and consumes it."""
    target = open_topic()
    target.fill(messages, due_ms, 0, lambda _: None)
    return _drain(stage, target, consumers, due_ms, prefetch=PREFETCH)


def _drain(
    stage: BrokerStage, target: BrokerTarget | TableTarget, consumers: int, due_ms: int, **line: int
) -> Drained:
    messages = target.reserve(0)
    with stage.crowd(target, consumers, **line) as crowd:
        ready_us = wall_us()
        due_us = due_ms * 1_000
        time.sleep(max(0, due_us - ready_us) / 1_000_000)  # until they are due
        crowd.await_settled(messages)
    stage.check(target, dict.fromkeys(range(messages), due_us), crowd.arrivals)
    return Drained(crowd.arrivals, due_us, ready_us)


def taking(take: int) -> str:
    return f"{TABLE}, {take} at a time"


def drain_overdue(drain: Drain) -> float:
    """Returns the messages per second for an overdue backlog."""
    return drain(wall_us() // 1_000 - _OVERDUE_MS).rate


def drain_instant(drain: Drain, messages: int) -> float:
    """Returns the seconds from the instant to the last arrival; all messages are written before it."""
    lead_ms = _LEAD_MS + messages * 1_000 // _FILLED_A_SECOND
    for _ in range(_TRIES):
        drained = drain(wall_us() // 1_000 + lead_ms)
        if drained.ready_us <= drained.due_us:
            return drained.last_s
        lead_ms *= 2
    raise ChronolineError(f"{messages} messages could not be written before they were due")
