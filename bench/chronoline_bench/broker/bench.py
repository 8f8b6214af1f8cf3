"""The bench `broker`: from a producer through a broker to consumers, beside two other queues.

The broker, the peers, the producer and every consumer run on this machine, each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chronoline_bench.broker.backlog import (
    InstantSizes,
    LeaseSizes,
    measure_instant,
    measure_leases,
)
from chronoline_bench.broker.creates import CreateSizes, measure_creates
from chronoline_bench.broker.full_timeline import WaitingSizes, measure_waiting
from chronoline_bench.broker.lateness import LatenessSizes, measure_lateness
from chronoline_bench.broker.limits import LimitSizes, measure_limits
from chronoline_bench.broker.lines import POLL_S
from chronoline_bench.broker.over_time import OverTimeSizes, measure_over_time
from chronoline_bench.broker.schedules import ScheduleSizes, measure_schedules
from chronoline_bench.broker.stage import BrokerStage
from chronoline_bench.engines.postgres import shared_buffers_mb
from chronoline_bench.session import Session
from chronoline_bench.workload import BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    lateness: LatenessSizes
    over_time: OverTimeSizes
    creates: CreateSizes
    leases: LeaseSizes
    instant: InstantSizes
    waiting: WaitingSizes
    schedules: ScheduleSizes
    limits: LimitSizes


FULL = Sizes(
    lateness=LatenessSizes(
        rounds=3, loads=((100, 1), (100, 4), (1_000, 1), (1_000, 4)), steady_s=8, delay_s=2
    ),
    over_time=OverTimeSizes(rate=1_000, consumers=1, steady_s=60, delay_s=2),
    creates=CreateSizes(rounds=5, messages=50_000, seconds=3),
    leases=LeaseSizes(rounds=3, messages=20_000, consumers=(1, 4)),
    instant=InstantSizes(rounds=3, messages=100_000),
    waiting=WaitingSizes(
        waiting=1_000_000, rounds=3, steady_s=8, delay_s=2, soak_s=600, look_every_s=10
    ),
    schedules=ScheduleSizes(schedules=10_000, every_ms=60_000),
    limits=LimitSizes(rounds=5, creates=20_000, leases=10_000),
)
QUICK = Sizes(
    lateness=LatenessSizes(rounds=1, loads=((1_000, 4),), steady_s=2, delay_s=1, with_table=False),
    over_time=OverTimeSizes(rate=1_000, consumers=1, steady_s=3, delay_s=1),
    creates=CreateSizes(rounds=1, messages=10_000, seconds=0.5),
    leases=LeaseSizes(rounds=1, messages=4_000, consumers=(4,)),
    instant=InstantSizes(rounds=1, messages=5_000),
    waiting=WaitingSizes(
        waiting=50_000,
        rounds=1,
        steady_s=1.5,
        delay_s=1,
        soak_s=3,
        look_every_s=0.25,
        engines=("sqlite",),
    ),
    schedules=ScheduleSizes(schedules=500, every_ms=3_000, engines=("sqlite",)),
    limits=LimitSizes(rounds=1, creates=5_000, leases=2_000, engines=("sqlite",)),
)


def measure(session: Session) -> None:
    measure_sizes(session, QUICK if session.quick else FULL)


def measure_sizes(session: Session, sizes: Sizes) -> None:
    """Measures the chosen cases in this order; all if none is chosen."""
    session.notes += _notes()
    with BrokerStage(session) as stage:
        cases: dict[str, Callable[[], None]] = {
            "lateness": lambda: measure_lateness(stage, sizes.lateness),
            "over_time": lambda: measure_over_time(stage, sizes.over_time),
            "creates": lambda: measure_creates(stage, sizes.creates),
            "leases": lambda: measure_leases(stage, sizes.leases),
            "instant": lambda: measure_instant(stage, sizes.instant),
            "waiting": lambda: measure_waiting(stage, sizes.waiting),
            "schedules": lambda: measure_schedules(stage, sizes.schedules),
            "limits": lambda: measure_limits(stage, sizes.limits),
        }
        session.measure_cases(cases, after_failure=stage.end_agents)
        theirs = stage.peers
    session.notes.append(
        f"of the peers' messages {theirs.lost:,} were lost, {theirs.duplicated:,} came twice,"
        f" {theirs.early:,} early; these are not in the counts"
    )


def _notes() -> tuple[str, ...]:
    return (
        f"bodies of {BODY_BYTES} bytes; everything runs on the same cores, producers and consumers included",
        "late: from when a message is due until a consumer has it; for messages due in the"
        " steady span of the load; medians of the rounds",
        "beanstalkd flushes every write. Its delays are whole seconds, counted from its receipt of a job:"
        " so all messages have the same delay, and are spread by the times of their puts, on all systems",
        "the hand-written queue: one table with an index on due; SELECT … FOR UPDATE SKIP LOCKED, DELETE, in"
        f" one transaction; polled each {POLL_S * 1000:g} ms, at once while there is more",
        f"PostgreSQL's settings are its defaults, but shared_buffers: {shared_buffers_mb()} MB",
    )
