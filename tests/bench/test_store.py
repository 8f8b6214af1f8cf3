"""Tiny runs of the benches `store` and `bodies`: they work and find no fault. Speed is not checked."""

from collections.abc import Callable, Sequence

import pytest

from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline_bench.engines.sqlite import SqliteDatabase, SqliteEngine
from chronoline_bench.report import Report
from chronoline_bench.session import Session, run_bench
from chronoline_bench.store import bodies
from chronoline_bench.store.batches import BatchSizes, measure_batches
from chronoline_bench.store.bench import FULL, QUICK, Sizes, measure_engine
from chronoline_bench.store.head import HeadSizes
from chronoline_bench.store.large import WARM_UPS, LargeSizes
from chronoline_bench.store.singles import SingleSizes
from chronoline_bench.workload import SERVE_BATCH

TINY = Sizes(
    batches=BatchSizes(rounds=1, messages=1_200),
    singles=SingleSizes(rounds=1, seconds=0.05),
    head=HeadSizes(rounds=1, served=1_000),
    large=LargeSizes(rounds=1, small=5_000, large=7_000),
)


def run(measure: Callable[[Session, SqliteEngine], None]) -> Report:
    return run_bench("tiny", lambda session: measure(session, SqliteEngine(session.folder)))


def check(report: Report) -> None:
    assert report.tally.clean
    assert report.machine.control.count > 0
    for row in report.rows:
        assert row.case.startswith("sqlite: ")
        assert row.value > 0
        assert row.unit in ("messages/s", "ms", "bytes/message")
        assert row.reference
        assert row.ratio is not None
        assert row.ratio > 0
    assert len({(row.case, row.metric) for row in report.rows}) == len(report.rows)


def test_the_store_is_measured() -> None:
    report = run(lambda session, engine: measure_engine(session, engine, TINY))
    check(report)
    metrics = " ".join(row.metric for row in report.rows)
    for wanted in (
        "create, batches of 1,000",
        "lease + ack, batches of 500, dedupe",
        "lease + ack, batches of 500, no dedupe",
        "single creates, 64 threads",
        "fetch of the next due 500",
        "lease of 500",
        "look-up",
        "count over",
        "on disk",
        "forecast",
    ):
        assert wanted in metrics


class _Forgetful(SqliteEngine):
    """Its stores acknowledge every message, and keep all of a batch but the last."""

    def open(self, name: str) -> SqliteDatabase:
        database = super().open(name)
        create = database.store.create

        def forget(topic_uid: int, messages: Sequence[NewMessage], *, now_ms: int) -> list[Outcome]:
            last = Outcome(id=messages[-1].id, version=now_ms)
            return [*create(topic_uid, messages[:-1], now_ms=now_ms), last]

        setattr(database.store, "create", forget)  # noqa: B010  # mypy forbids the plain way
        return database


def test_lost_messages_of_a_store_are_found() -> None:
    def measure(session: Session) -> None:
        measure_batches(session, _Forgetful(session.folder), BatchSizes(rounds=1, messages=1_200))

    report = run_bench("tiny", measure)
    # Two batches by each of three measures, in a warm-up and a round.
    assert report.tally.lost == 2 * 3 * 2


def test_bodies_are_measured() -> None:
    sizes = bodies.BodySizes(rounds=1, messages=20, most_bytes=1_000_000, sizes=(256, 4_096))
    report = run(lambda session, engine: bodies.measure_engine(session, engine, sizes))
    check(report)
    assert len(report.rows) == 2 * 3
    assert len(report.notes) == 3


def test_lease_rounds_find_enough_due_messages() -> None:
    for sizes in (*FULL.values(), *QUICK.values()):
        leased = (sizes.large.rounds + WARM_UPS) * SERVE_BATCH
        assert leased + SERVE_BATCH <= sizes.large.half


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ({256: 0.8, 1024: 1.1, 2048: 1.2, 4096: 0.9, 8192: 1.5}, "apart was faster from 2 KiB on"),
        ({256: 1.2, 1024: 0.8, 2048: 1.0, 4096: 1.4}, "apart was faster from 4 KiB on"),
        ({256: 1.2, 1024: 1.0}, "apart was faster from 256 B on"),
        ({256: 1.2, 1024: 0.8}, "apart was nowhere clearly faster"),
    ],
)
def test_where_the_border_lies(ratios: dict[int, float], said: str) -> None:
    assert bodies.border(ratios) == said
