"""The bench `broker`: all of its cases run once, at a small size. Speed is not checked."""

import os
import time
from pathlib import Path

import pytest

from chronoline.core.errors import MissingExtra
from chronoline.core.lateness import Lateness
from chronoline_bench.broker import bench as broker
from chronoline_bench.broker import stage as stage_module
from chronoline_bench.broker.backlog import InstantSizes, LeaseSizes
from chronoline_bench.broker.bench import FULL, QUICK, Sizes, measure_sizes
from chronoline_bench.broker.creates import CreateSizes
from chronoline_bench.broker.full_timeline import MemoryWatch, WaitingSizes, thirds
from chronoline_bench.broker.lateness import LatenessSizes, over, report_lateness
from chronoline_bench.broker.limits import LimitSizes
from chronoline_bench.broker.over_time import OverTimeSizes, plot_of
from chronoline_bench.broker.schedules import ScheduleSizes
from chronoline_bench.broker.stage import BrokerStage, find_beanstalkd
from chronoline_bench.broker.targets import SETTINGS
from chronoline_bench.harness.passage import Arrivals, Passage
from chronoline_bench.report import Report, Wanted
from chronoline_bench.servers.beanstalkd import find_program
from chronoline_bench.session import Session, run_bench
from tests.bench.cases import choose_each, fail_one
from tests.conftest import miss

TINY = Sizes(
    lateness=LatenessSizes(rounds=1, loads=((50, 2),), steady_s=0.5, delay_s=1),
    over_time=OverTimeSizes(rate=50, consumers=1, steady_s=1, delay_s=1),
    creates=CreateSizes(rounds=1, messages=300, seconds=0.1),
    leases=LeaseSizes(rounds=1, messages=100, consumers=(2,)),
    instant=InstantSizes(rounds=1, messages=100),
    limits=LimitSizes(rounds=1, creates=100, leases=50, engines=("sqlite",)),
    waiting=WaitingSizes(
        waiting=300,
        rounds=1,
        steady_s=0.5,
        delay_s=1,
        soak_s=0.5,
        look_every_s=0.1,
        engines=("sqlite",),
        rate=100,
    ),
    schedules=ScheduleSizes(schedules=20, every_ms=1_000, engines=("sqlite",)),
)


def test_every_case_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    choose_each(broker, tmp_path, monkeypatch)


def test_failed_case_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = fail_one(broker, ("lateness", "leases"), tmp_path, monkeypatch)
    assert "agents ended 1 times" in session.notes


def test_missing_beanstalkd_is_reported_on_stderr(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def find() -> Path:
        raise MissingExtra("it is nowhere")

    monkeypatch.setattr(stage_module, "find_program", find)
    session = Session(folder=tmp_path)
    assert not find_beanstalkd(session)
    assert session.notes == [capsys.readouterr().err.strip()]
    assert "beanstalkd is NOT measured" in session.notes[0]
    assert "it is nowhere" in session.notes[0]


def test_unavailable_reference_has_no_verdict(tmp_path: Path) -> None:
    session = Session(folder=tmp_path)
    wanted = Wanted(at_least=2)
    session.add("c", "m", 4, "messages/s", beside=("beanstalkd", None), wanted=wanted)
    session.add("c", "n", 4, "messages/s", beside=("beanstalkd", 1), wanted=wanted)
    missing, there = session.rows
    assert missing.reference == "beanstalkd (not available)"
    assert (missing.holds, missing.ratio) == (None, None)
    assert there.holds


@pytest.mark.parametrize(("late_ms", "judged"), [(3, 2), (150, 1)])
def test_beanstalkd_that_falls_behind_is_no_reference(
    tmp_path: Path, late_ms: int, judged: int
) -> None:
    stage = BrokerStage(Session(folder=tmp_path))
    found = {"sqlite": [passage(1)], "postgresql": [passage(2)], "beanstalkd": [passage(late_ms)]}
    report_lateness(stage, found, 1_000, 1)
    for engine in ("sqlite", "postgresql"):
        rows = [row for row in stage.session.rows if row.case.startswith(engine)]
        assert [row.metric for row in rows[:2]] == ["p50", "p99"]
        assert rows[0].holds is not None
        assert sum(row.holds is not None for row in rows) == judged
    assert len(stage.session.notes) == 2 - judged


def passage(late_ms: int) -> Passage:
    """The passage of one message."""
    return Passage(
        started_us=0,
        ended_us=3_000_000,
        steady_us=(1_000_000, 3_000_000),
        due_us={1: 2_000_000},
        arrivals=Arrivals({1: 2_000_000 + late_ms * 1_000}),
        control=Lateness.of([0.1]),
    )


def test_plot_has_a_line_for_each_system() -> None:
    found = {"sqlite": passage(1), "beanstalkd": passage(3)}
    sizes = OverTimeSizes(rate=1_000, consumers=1, steady_s=60, delay_s=2)
    ours, peer = plot_of(found, sizes, 60).lines
    assert (ours.name, ours.points) == ("broker on SQLite", [(1.5, 1.0)])
    assert (peer.name, peer.points) == ("beanstalkd", [(1.5, 3.0)])


def test_a_millisecond_over_is_allowed() -> None:
    assert over(None) is None
    assert over(2.9) == Wanted(value_at_most=3.9)


def test_shares_are_dealt_before_a_load_falls_due() -> None:
    for sizes in (FULL, QUICK, TINY):
        assert 2 * SETTINGS.window_ms < 1_000 * sizes.lateness.delay_s


def test_thirds_of_samples_have_medians() -> None:
    assert thirds([1, 2, 3, 9, 9, 9, 4, 5, 6, 7]) == (2, 6)
    assert thirds([5.0]) == (5, 5)


def test_memory_is_sampled_until_the_end() -> None:
    with MemoryWatch(os.getpid(), 0.001) as watch:
        give_up = time.monotonic() + 30
        while len(watch.samples_mb) < 3:
            assert time.monotonic() < give_up
            time.sleep(0.001)  # the watch samples in its own thread, without a signal
    assert all(sample > 1 for sample in watch.samples_mb)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Runs all cases once, as a quick run."""

    def measure(session: Session) -> None:
        session.quick = True
        try:
            find_program()
        except MissingExtra as error:
            miss("bench broker", error)
        measure_sizes(session, TINY)

    return run_bench("tiny", measure, plots=tmp_path_factory.mktemp("plots"))


@pytest.mark.timeout(300)
def test_a_broker_is_measured(report: Report) -> None:
    assert report.failures == ()
    assert report.tally.clean
    rows = {(row.case, row.metric): row for row in report.rows}
    assert len(rows) == len(report.rows)
    for row in report.rows:
        assert row.value > 0, row
        assert "not available" not in (row.reference or "")
    assert any(
        "of the peers' messages 0 were lost, 0 came twice, 0 early" in note for note in report.notes
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("case", "metrics", "judged"),
    [
        ("late at 50/s, 2 consumers, lease and ack each", 9, 1),
        ("50/s over time, one consumer", 8, 0),
        ("durable creates through the SDK", 2, 2),
        ("lease and ack, 2 consumers, 100 due", 2, 1),
        ("100 due at one instant, 4 consumers", 2, 1),
    ],
)
def test_both_engines_have_every_row(report: Report, case: str, metrics: int, judged: int) -> None:
    for engine in ("sqlite", "postgresql"):
        rows = [row for row in report.rows if row.case == f"{engine}: {case}"]
        assert len(rows) == metrics
        assert all(row.reference_value for row in rows)
        assert sum(row.holds is not None for row in rows) >= judged


@pytest.mark.timeout(300)
def test_full_timeline_and_memory_are_measured(report: Report) -> None:
    rows = {row.metric: row for row in report.rows if "300 waiting" in row.case}
    assert rows["late, p99"].holds is not None
    (memory,) = (row for name, row in rows.items() if name.startswith("memory of the broker"))
    assert memory.unit == "MB"
    assert memory.holds is not None
