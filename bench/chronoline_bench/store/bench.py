"""The bench `store`: the timeline in SQLite and PostgreSQL, beside the raw engines in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chronoline_bench.engines.contract import Engine
from chronoline_bench.engines.postgres import PostgresEngine, shared_buffers_mb
from chronoline_bench.engines.sqlite import SqliteEngine
from chronoline_bench.session import Session
from chronoline_bench.store.batches import BatchSizes, measure_batches
from chronoline_bench.store.head import HeadSizes, measure_head
from chronoline_bench.store.large import LargeSizes, measure_large
from chronoline_bench.store.singles import SingleSizes, measure_singles


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    batches: BatchSizes
    singles: SingleSizes
    head: HeadSizes
    large: LargeSizes


FULL = {
    "sqlite": Sizes(
        batches=BatchSizes(rounds=9, messages=20_000),
        singles=SingleSizes(rounds=5, seconds=2),
        head=HeadSizes(rounds=15, served=200_000),
        large=LargeSizes(rounds=15, small=20_000, large=1_000_000),
    ),
    "postgresql": Sizes(
        batches=BatchSizes(rounds=9, messages=20_000),
        singles=SingleSizes(rounds=5, seconds=2),
        head=HeadSizes(rounds=15, served=200_000),
        large=LargeSizes(rounds=15, small=20_000, large=10_000_000),
    ),
}
QUICK = {
    "sqlite": Sizes(
        batches=BatchSizes(rounds=3, messages=4_000),
        singles=SingleSizes(rounds=3, seconds=0.4),
        head=HeadSizes(rounds=9, served=10_000),
        large=LargeSizes(rounds=5, small=20_000, large=100_000),
    ),
    "postgresql": Sizes(
        batches=BatchSizes(rounds=3, messages=4_000),
        singles=SingleSizes(rounds=3, seconds=0.4),
        head=HeadSizes(rounds=9, served=10_000),
        large=LargeSizes(rounds=5, small=20_000, large=200_000),
    ),
}
NOTES = (
    "the raw engine writes into the same table in a database of its own: same columns, indexes and settings",
    "rates are of messages; times are medians, and a time holds its bound also if it is less than 2 ms over",
    "waiting messages were written by bulk statements, then VACUUM ANALYZE and a checkpoint (PostgreSQL),"
    " a checkpoint (SQLite)",
    f"PostgreSQL's settings are its defaults, but shared_buffers: {shared_buffers_mb()} MB",
)


def measure(session: Session) -> None:
    sizes = QUICK if session.quick else FULL
    session.notes += NOTES
    with PostgresEngine(session.folder) as postgres:
        engines: Sequence[Engine] = (SqliteEngine(session.folder), postgres)
        for engine in engines:
            measure_engine(session, engine, sizes[engine.name])


def measure_engine(session: Session, engine: Engine, sizes: Sizes) -> None:
    """Measures all cases on one engine."""
    measure_batches(session, engine, sizes.batches)
    measure_singles(session, engine, sizes.singles)
    measure_head(session, engine, sizes.head)
    for shuffled in (False, True):
        measure_large(session, engine, sizes.large, shuffled=shuffled)
