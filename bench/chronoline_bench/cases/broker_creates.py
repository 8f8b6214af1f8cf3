"""Durable creates: batches beside the raw engine, and single ones from many tasks beside beanstalkd."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from chronoline.core.topic import Topic
from chronoline_bench.brokers.producing import Figures
from chronoline_bench.brokers.stage import BEANSTALKD, ENGINES, Stage
from chronoline_bench.brokers.targets import Target
from chronoline_bench.engines.contract import Database, raw_row
from chronoline_bench.messages import BODY_BYTES, in_batches, make_waiting
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import Stopwatch, medians

BATCH = 1_000
UNDER_WAY = 4
"""So many batches one client has on their way."""
TASKS = 64
BATCH_FLOORS = {"sqlite": Wanted(value_at_least=30_000), "postgresql": Wanted(at_least=0.4)}
SINGLES_FLOOR = Wanted(at_least=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSizes:
    rounds: int
    messages: int
    """In batches, in each round."""
    seconds: float
    """For so long single ones are created, in each round."""


def measure_creates(stage: Stage, sizes: CreateSizes) -> None:
    batches = {engine: _measure_batches(stage, engine, sizes) for engine in ENGINES}
    singles = _measure_singles(stage, sizes)
    for engine in ENGINES:
        case = f"{engine}: durable creates through the SDK"
        rate, beside = batches[engine]
        stage.session.add(
            case,
            f"batches of {BATCH:,}, {UNDER_WAY} under way, bodies of {BODY_BYTES} bytes",
            rate,
            "messages/s",
            beside=beside,
            wanted=BATCH_FLOORS[engine],
        )
        stage.session.add(
            case,
            f"single ones, {TASKS} tasks in one client, each waits for its answer",
            singles[engine],
            "messages/s",
            beside=(f"{BEANSTALKD}, {TASKS} connections", singles.get(BEANSTALKD)),
            wanted=SINGLES_FLOOR,
        )


def _measure_batches(
    stage: Stage, engine: str, sizes: CreateSizes
) -> tuple[float, tuple[str, float]]:
    """The rate, and that of the raw engine, with its name."""
    with (
        stage.broker(engine, f"batches_{engine}") as broker,
        stage.database(engine, f"batches_{engine}_raw") as raw,
    ):
        target = broker.open()
        topic = raw.store.create_topic("batches", now_ms=stage.session.clock.now_ms())
        found = stage.in_turn(
            f"{engine}: creates in batches",
            sizes.rounds,
            {
                "sdk": partial(_create, stage, target, sizes.messages),
                "raw": partial(_insert, stage, raw, topic, sizes.messages),
            },
        )
        _expect_created(stage, target)
    rates = medians(found)
    return rates["sdk"], (raw.bulk_name, rates["raw"])


def _create(stage: Stage, target: Target, messages: int) -> float:
    first = target.reserve(messages)
    figures: Figures = stage.producer.ask(
        "batches",
        line=target.line(),
        first=first,
        messages=messages,
        batch=BATCH,
        under_way=UNDER_WAY,
    )
    target.waiting += int(figures["created"])
    return figures["rate"]


def _insert(stage: Stage, raw: Database, topic: Topic, messages: int) -> float:
    now_ms = stage.session.clock.now_ms()
    rows = [
        [raw_row(topic, message, now_ms) for message in batch]
        for batch in in_batches(make_waiting(messages, now_ms), BATCH)
    ]
    watch = Stopwatch()
    gc.collect()
    for batch in rows:
        with watch.running():
            raw.insert_many(batch)
    return messages / watch.seconds


def _measure_singles(stage: Stage, sizes: CreateSizes) -> dict[str, float]:
    """The rates of both engines, and that of beanstalkd where it can be had."""
    with ExitStack() as opened:
        targets: dict[str, Target] = {
            engine: opened.enter_context(stage.broker(engine, f"singles_{engine}")).open()
            for engine in ENGINES
        }
        new_tube = opened.enter_context(stage.tubes("singles_beanstalkd"))
        if new_tube is not None:
            targets[BEANSTALKD] = new_tube()
        found = stage.in_turn(
            "single creates",
            sizes.rounds,
            {
                name: partial(_create_singles, stage, target, sizes.seconds)
                for name, target in targets.items()
            },
        )
        for target in targets.values():
            _expect_created(stage, target)
    return medians(found)


def _create_singles(stage: Stage, target: Target, seconds: float) -> float:
    first = target.reserve(0)
    figures: Figures = stage.producer.ask(
        "singles",
        line=target.line(connections=TASKS),
        first=first,
        tasks=TASKS,
        seconds=seconds,
    )
    created = int(figures["created"])
    target.reserve(created)
    target.waiting += created
    return figures["rate"]


def _expect_created(stage: Stage, target: Target) -> None:
    """What was answered as created is there, and nothing else."""
    tally = stage.session.tally if target.ours else stage.peers
    tally.expect(target.waiting, target.count())
