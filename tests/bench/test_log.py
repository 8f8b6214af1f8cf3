"""A tiny run of the bench `log`: it works and finds faults. Speed is not checked."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.log import Event, Log, NewEvent, Position
from chronoline.log.objects.local import LocalObjects
from chronoline_bench.log import appender
from chronoline_bench.log.appends import WRITERS, AppendSizes, measure_appends
from chronoline_bench.log.bench import FULL, QUICK, Sizes, measure_sizes
from chronoline_bench.log.reads import ReadSizes, measure_reads
from chronoline_bench.log.wakeups import WakeupSizes, measure_wakeups
from chronoline_bench.report import Report, Row
from chronoline_bench.session import Session, run_bench

TINY = Sizes(
    appends=AppendSizes(rounds=1, later=640, many=640, single=128, reference=64),
    reads=ReadSizes(rounds=1, many=640, single=128, reference=64),
    wakeups=WakeupSizes(rounds=1, events=3),
)
TIMES = 2
"""The number of measurements: a warm-up and a round."""


def run(measure: Callable[[Session], None]) -> Report:
    return run_bench("tiny", measure)


@pytest.fixture(scope="module")
def report() -> Report:
    """Runs all cases once."""
    return run(lambda session: measure_sizes(session, TINY))


def test_the_log_is_measured(report: Report) -> None:
    assert report.tally.clean
    assert len({(row.case, row.metric) for row in report.rows}) == len(report.rows)
    for row in report.rows:
        assert row.value >= 0
        assert row.reference
        assert row.ratio is not None
    assert bounds(report, "events/s") == {
        "append_later, one event each, 100 under way": "≥ 20",
        "append_many, batches of 100": "≥ 20",
        "append, each waits for its answer": "≥ 5",
        "what append_many in batches of 100 left": "≥ 10",
        "what single appends left": "≥ 10",
        "what compaction left": "≥ 10",
    }
    assert bounds(report, "ms") == {
        "appended in the same process, p99": "≤ 2",
        "appended in the same process, median": "≤ 2",
        "appended in another process, p99": "≤ 1",
        "appended in another process, median": "≤ 1",
    }


def bounds(report: Report, unit: str) -> dict[str, str]:
    return {row.metric: str(row.wanted) for row in report.rows if row.unit == unit}


def rows_of(report: Report, case: str) -> list[Row]:
    return [row for row in report.rows if row.case == case]


def test_operations_of_appends_are_counted(report: Report) -> None:
    objects = rows_of(report, "objects for a million appended events")
    transactions = rows_of(report, "index transactions for a million appended events")
    in_an_object = rows_of(report, "events in an object")
    assert len(objects) == len(transactions) == len(in_an_object) == 3
    for row in (*objects, *transactions):
        assert row.reference_value == 1_000_000
        assert row.value < 1_000_000
    for row, each in zip(objects, in_an_object, strict=True):
        assert each.reference_value == 1
        assert each.value == pytest.approx(1_000_000 / row.value)


def test_operations_of_reads_are_counted(report: Report) -> None:
    reads = rows_of(report, "object reads for a million events read back")
    transactions = rows_of(report, "index transactions for a million events read back")
    assert len(reads) == len(transactions) == 3
    for row in (*reads, *transactions):
        assert row.reference_value is not None
        assert row.value < 1_000_000 < row.reference_value


def test_events_that_the_log_loses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log acknowledges every event, and stores all of a batch but the last."""
    append_many = Log.append_many

    def forget(self: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
        if len(events) == 1:
            return append_many(self, topic, events)
        places = append_many(self, topic, events[:-1])
        return [*places, places[-1]]

    monkeypatch.setattr(Log, "append_many", forget)
    report = run(lambda session: measure_appends(session, TINY.appends))
    assert report.tally.lost == WRITERS * TIMES
    assert report.tally.duplicated == 0


def test_lost_and_repeated_events_of_reads_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference's producer dies after it took the sequence number; the log gives one event twice."""
    put, read = LocalObjects.put, Log.read

    def die(self: LocalObjects, name: str, data: bytes) -> None:
        if name != "00003-1":
            put(self, name, data)

    def stutter(self: Log, topic: str, **options: Any) -> Iterator[Event]:
        for number, event in enumerate(read(self, topic, **options)):
            yield event
            if number == 0:
                yield event

    monkeypatch.setattr(LocalObjects, "put", die)
    monkeypatch.setattr(Log, "read", stutter)
    report = run(lambda session: measure_reads(session, TINY.reads))
    assert report.tally.lost == TIMES
    assert report.tally.duplicated == 3 * TIMES


def test_failed_appender_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "__name__", "chronoline_bench.no_such_appender")
    with pytest.raises(ChronolineError, match="no_such_appender"):
        run(lambda session: measure_wakeups(session, TINY.wakeups))


@pytest.mark.parametrize("sizes", [FULL, QUICK, TINY])
def test_every_writer_has_the_same_share(sizes: Sizes) -> None:
    appends, reading = sizes.appends, sizes.reads
    for events in (appends.later, appends.many, appends.single, appends.reference):
        assert events % WRITERS == 0
    for events in (reading.many, reading.single, reading.reference):
        assert events % WRITERS == 0
