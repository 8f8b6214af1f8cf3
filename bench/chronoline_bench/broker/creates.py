"""The case `creates`: batches beside the raw engine, single creates from many tasks beside beanstalkd."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from chronoline_bench.broker.stage import BEANSTALKD, ENGINES, BrokerStage
from chronoline_bench.broker.targets import Target
from chronoline_bench.engines.contract import insert_batches
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import medians
from chronoline_bench.workload import BODY_BYTES

BATCH = 1_000
UNDER_WAY = 4
"""The batches that one client has in flight."""
TASKS = 64
BATCH_FLOORS = {"sqlite": Wanted(value_at_least=30_000), "postgresql": Wanted(at_least=0.4)}
SINGLES_FLOOR = Wanted(at_least=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSizes:
    rounds: int
    messages: int
    """Messages created in batches, in each round."""
    seconds: float
    """The duration of single creates in each round."""


def measure_creates(stage: BrokerStage, sizes: CreateSizes) -> None:
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
    stage: BrokerStage, engine: str, sizes: CreateSizes
) -> tuple[float, tuple[str, float]]:
    """Returns the rate, and the name and rate of the raw engine."""
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
                "sdk": partial(create_batches, stage, target, sizes.messages),
                "raw": partial(insert_batches, raw, topic, sizes.messages, BATCH),
            },
        )
        _expect_created(stage, target)
    rates = medians(found)
    return rates["sdk"], (raw.bulk_name, rates["raw"])


def create_batches(stage: BrokerStage, target: Target, messages: int) -> float:
    """Creates messages in batches; returns the rate."""
    first = target.reserve(messages)
    figures = stage.producer.ask(
        "batches",
        line=target.line(),
        first=first,
        messages=messages,
        batch=BATCH,
        under_way=UNDER_WAY,
    )
    target.waiting += int(figures["created"])
    return float(figures["rate"])


def _measure_singles(stage: BrokerStage, sizes: CreateSizes) -> dict[str, float]:
    """Returns the rates of both engines, and of beanstalkd if it is available."""
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


def _create_singles(stage: BrokerStage, target: Target, seconds: float) -> float:
    first = target.reserve(0)
    figures = stage.producer.ask(
        "singles",
        line=target.line(connections=TASKS),
        first=first,
        tasks=TASKS,
        seconds=seconds,
    )
    created = int(figures["created"])
    target.reserve(created)
    target.waiting += created
    return float(figures["rate"])


def _expect_created(stage: BrokerStage, target: Target) -> None:
    """Counts acknowledged messages that are missing, and surplus ones."""
    tally = stage.session.tally if target.ours else stage.peers
    tally.expect(target.waiting, target.count())
