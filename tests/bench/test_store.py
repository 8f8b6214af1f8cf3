"""A tiny run of each bench: that it works and finds nothing wrong. How fast it was is not asked."""

from collections.abc import Callable

from chronoline.bench import bodies
from chronoline.bench.cases.batches import BatchSizes
from chronoline.bench.cases.head import HeadSizes
from chronoline.bench.cases.large import LargeSizes
from chronoline.bench.cases.singles import SingleSizes
from chronoline.bench.engines.sqlite import SqliteEngine
from chronoline.bench.report import Report
from chronoline.bench.session import Session, run_bench
from chronoline.bench.store import FULL, QUICK, Sizes, measure_engine

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


def test_bodies_are_measured() -> None:
    sizes = bodies.BodySizes(rounds=1, messages=20, most_bytes=1_000_000, sizes=(256, 4_096))
    report = run(lambda session, engine: bodies.measure_engine(session, engine, sizes))
    check(report)
    assert len(report.rows) == 4
    assert len(report.notes) == 2


def test_the_rounds_of_a_lease_find_enough_that_is_due() -> None:
    for sizes in (*FULL.values(), *QUICK.values()):
        leased = (sizes.large.rounds + 2) * 500
        assert leased + 500 <= sizes.large.half
