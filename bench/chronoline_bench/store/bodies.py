"""The bench `bodies`: the body size from which storing bodies apart from their rows is faster.

A lease rewrites its row. An inline body is rewritten too; a body apart costs a second read, a second write
at its creation and a second delete. The border is the size at which both cost the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from chronoline.core.topic import Topic
from chronoline.stores.contract import Store
from chronoline_bench.engines.contract import Database, Engine, Place
from chronoline_bench.engines.postgres import PostgresEngine
from chronoline_bench.engines.sqlite import SqliteEngine
from chronoline_bench.report import Row
from chronoline_bench.rounds import Stopwatch, in_turn
from chronoline_bench.session import Session
from chronoline_bench.tally import Served
from chronoline_bench.workload import CONSUMER, LEASE_MS, SERVE_BATCH, in_batches, make_due

KIB = 1024
BODY_SIZES = (256, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 64 * KIB)
_FASTER, _SLOWER = 1.15, 0.85
"""Ratios in this range count as equal: two figures of the same work on PostgreSQL differ by as much."""
PLACES: tuple[Place, ...] = ("inline", "apart")


@dataclass(frozen=True, slots=True)
class Life:
    """The durations of the operations on some messages, from create to ack."""

    create_s: float
    lease_s: float
    extend_s: float
    ack_s: float


METRICS: dict[str, Callable[[Life], float]] = {
    "create + lease + ack": lambda life: life.create_s + life.lease_s + life.ack_s,
    "lease + ack": lambda life: life.lease_s + life.ack_s,
    "extend": lambda life: life.extend_s,
}
"""An extend moves a row without reading the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySizes:
    rounds: int
    messages: int
    """Messages in each round; fewer if their bodies are large."""
    most_bytes: int
    sizes: Sequence[int] = BODY_SIZES

    def count(self, body_bytes: int) -> int:
        return max(1, min(self.messages, self.most_bytes // body_bytes))


FULL = BodySizes(rounds=9, messages=2_000, most_bytes=32 * KIB * KIB)
QUICK = BodySizes(rounds=3, messages=500, most_bytes=4 * KIB * KIB)
NOTE = (
    "PostgreSQL keeps bodies inline up to about 2 KiB and apart from about 8 KiB on, whatever the"
    " setting: below and above, both figures measure the same"
)


def measure(session: Session) -> None:
    sizes = QUICK if session.quick else FULL
    session.notes.append(NOTE)
    with PostgresEngine(session.folder) as postgres:
        engines: Sequence[Engine] = (SqliteEngine(session.folder), postgres)
        for engine in engines:
            measure_engine(session, engine, sizes)


def measure_engine(session: Session, engine: Engine, sizes: BodySizes) -> None:
    """Measures each size inline and apart in turn; then reports the border."""
    ratios: dict[str, dict[int, float]] = {metric: {} for metric in METRICS}
    # A database for each place, so that neither cleans up after the other.
    with engine.open("inline") as inline, engine.open("apart") as apart:
        databases: dict[Place, Database] = {"inline": inline, "apart": apart}
        for body_bytes in sizes.sizes:
            lives = _measure_size(session, databases, body_bytes, sizes)
            for metric, seconds in METRICS.items():
                row = _row(
                    engine,
                    body_bytes,
                    metric,
                    {
                        place: sizes.count(body_bytes)
                        / median(seconds(life) for life in lives[place])
                        for place in PLACES
                    },
                )
                session.rows.append(row)
                ratios[metric][body_bytes] = row.ratio or 0
    for metric, by_size in ratios.items():
        session.notes.append(f"{engine.name}, {metric}: {border(by_size)}")


def _measure_size(
    session: Session, databases: dict[Place, Database], body_bytes: int, sizes: BodySizes
) -> dict[str, list[Life]]:
    """Returns the durations for bodies of this size, one for each round."""
    load = _Load(session, sizes.count(body_bytes), body_bytes)
    measures: dict[str, Callable[[], Life]] = {
        place: _living(load, database, place) for place, database in databases.items()
    }
    lives = in_turn(session, f"bodies of {_size(body_bytes)}", sizes.rounds, measures)
    for database in databases.values():
        database.settle()
    return lives


@dataclass(frozen=True, slots=True)
class _Load:
    """The messages of each round."""

    session: Session
    count: int
    body_bytes: int


def _living(load: _Load, database: Database, place: Place) -> Callable[[], Life]:
    """Returns the measure of one place, on its own topic."""
    now_ms = load.session.clock.now_ms()
    topic = database.store.create_topic(f"bodies of {load.body_bytes}", now_ms=now_ms)

    def measure() -> Life:
        with database.keeping_bodies(place):
            return _live(load, database.store, topic)

    return measure


def _live(load: _Load, store: Store, topic: Topic) -> Life:
    """Creates due messages, and leases, extends and acks them in batches."""
    clock, tally = load.session.clock, load.session.tally
    now_ms = clock.now_ms()
    messages = make_due(load.count, now_ms, load.body_bytes)
    create, lease, extend, ack = (Stopwatch() for _ in range(4))
    gc.collect()
    for batch in in_batches(messages, SERVE_BATCH):
        with create.running():
            outcomes = store.create(topic.uid, batch, now_ms=now_ms)
        tally.expect_done(outcomes)
    served = Served(tally)
    while True:
        now_ms = clock.now_ms()
        with lease.running():
            grant = store.reserve(
                topic.uid,
                topic.all_buckets,
                consumer=CONSUMER,
                limit=SERVE_BATCH,
                lease_ms=LEASE_MS,
                now_ms=now_ms,
            )
        if not grant.leased:
            break
        longer = [(leased.lease, leased.lease.until + LEASE_MS) for leased in grant.leased]
        with extend.running():
            extended = store.extend(topic.uid, longer, now_ms=now_ms)
        tally.expect_done(extended)
        leases = [
            replace(leased.lease, version=outcome.version)
            for leased, outcome in zip(grant.leased, extended, strict=True)
        ]
        with ack.running():
            acked = store.ack(topic.uid, leases, now_ms=clock.now_ms())
        served.add(grant, acked, now_ms)
    served.expect({message.id for message in messages})
    return Life(create.seconds, lease.seconds, extend.seconds, ack.seconds)


def _row(engine: Engine, body_bytes: int, metric: str, rates: dict[Place, float]) -> Row:
    return Row(
        case=f"{engine.name}: bodies of {_size(body_bytes)}",
        metric=f"{metric}, body apart",
        value=rates["apart"],
        unit="messages/s",
        reference="body inline",
        reference_value=rates["inline"],
    )


def border(ratios: dict[int, float]) -> str:
    """Returns the smallest size at which apart was faster, and from which on it was never slower."""
    border = None
    for body_bytes, ratio in sorted(ratios.items(), reverse=True):
        if ratio < _SLOWER:
            break
        if ratio > _FASTER:
            border = body_bytes
    if border is None:
        return "apart was nowhere clearly faster"
    return f"apart was faster from {_size(border)} on"


def _size(body_bytes: int) -> str:
    return f"{body_bytes // KIB} KiB" if body_bytes >= KIB else f"{body_bytes} B"
