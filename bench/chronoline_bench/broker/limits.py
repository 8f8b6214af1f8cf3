"""The case `limits`: what the limits of a topic cost, beside a topic without any, at the same broker.

The limits are so wide that they hold nothing up: what is measured is their bookkeeping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from chronoline.core.topic import TopicSettings
from chronoline_bench.broker.backlog import drain_overdue, drain_topic
from chronoline_bench.broker.creates import create_batches
from chronoline_bench.broker.stage import ENGINES, MOST_CONSUMERS, BrokerStage, people
from chronoline_bench.broker.targets import SETTINGS, Broker, BrokerTarget
from chronoline_bench.rounds import medians

NONE = "no limits"
_WIDE = 1_000_000
CREATE_LIMITS: Mapping[str, TopicSettings] = {
    NONE: SETTINGS,
    "quotas of the group": replace(SETTINGS, group_waiting=_WIDE, group_creates_per_s=_WIDE),
    "spread": replace(SETTINGS, spread_ms=60_000),
    "a rate, which warns of full seconds": replace(SETTINGS, most_per_s=_WIDE),
}
DELIVERY_LIMITS: Mapping[str, TopicSettings] = {
    NONE: SETTINGS,
    "a rate": replace(SETTINGS, most_per_s=_WIDE),
    "most in flight": replace(SETTINGS, most_in_flight=_WIDE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSizes:
    rounds: int
    creates: int
    """Messages created in batches, in each round."""
    leases: int
    """Messages that are leased and acked, in each round."""
    engines: tuple[str, ...] = ENGINES


def measure_limits(stage: BrokerStage, sizes: LimitSizes) -> None:
    for engine in sizes.engines:
        with stage.broker(engine, f"limits_{engine}") as broker:
            _measure_creates(stage, broker, engine, sizes)
            _measure_deliveries(stage, broker, engine, sizes)


def _measure_creates(stage: BrokerStage, broker: Broker, engine: str, sizes: LimitSizes) -> None:
    targets = {name: broker.open(settings) for name, settings in CREATE_LIMITS.items()}
    found = stage.in_turn(
        f"{engine}: creates within limits",
        sizes.rounds,
        {
            name: partial(create_batches, stage, target, sizes.creates)
            for name, target in targets.items()
        },
    )
    for target in targets.values():
        stage.session.tally.expect(target.waiting, target.count())
    _add(stage, f"{engine}: durable creates in batches", medians(found))


def _measure_deliveries(stage: BrokerStage, broker: Broker, engine: str, sizes: LimitSizes) -> None:
    title = f"{engine}: lease and ack, {people(MOST_CONSUMERS)}"

    def drain(settings: TopicSettings) -> float:
        def open_topic() -> BrokerTarget:
            return broker.open(settings)

        return drain_overdue(partial(drain_topic, stage, open_topic, sizes.leases, MOST_CONSUMERS))

    works = {name: partial(drain, settings) for name, settings in DELIVERY_LIMITS.items()}
    rates = stage.in_turn(f"{title} within limits", sizes.rounds, works)
    _add(stage, title, {name: median(each) for name, each in rates.items()})


def _add(stage: BrokerStage, case: str, rates: Mapping[str, float]) -> None:
    for name, rate in rates.items():
        if name != NONE:
            stage.session.add(case, name, rate, "messages/s", beside=(NONE, rates[NONE]))
