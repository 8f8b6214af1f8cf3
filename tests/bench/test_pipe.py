"""The bench `pipe`: its cases can be chosen, and the smallest of them runs. Speed is not checked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from chronoline_bench.pipe import bench as pipe
from chronoline_bench.pipe.bench import FULL, QUICK, measure_sizes
from chronoline_bench.pipe.stage import Delays
from chronoline_bench.registry import BENCHES
from chronoline_bench.session import Session, run_bench
from tests.bench.cases import fail_one, fake_stage
from tests.spark.environment import python_of_workers


def test_every_case_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured: list[str] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_, **asked: measured.extend([n for n in asked if asked[n]] or [name])

    for name in set(BENCHES["pipe"].cases) - {"forecast"}:
        monkeypatch.setattr(pipe, f"measure_{name}", note(name))
    monkeypatch.setattr(pipe, "measure_taste", note("taste"))
    fake_stage(pipe, monkeypatch)
    known = BENCHES["pipe"].choose(BENCHES["pipe"].cases)
    for name in known:
        measure_sizes(Session(folder=tmp_path, cases=(name,)), FULL)
    assert [name.replace("lateness", "waiting") for name in measured] == list(known)
    measured.clear()
    measure_sizes(Session(folder=tmp_path), FULL)
    assert len(measured) == len(known)
    measured.clear()
    measure_sizes(Session(folder=tmp_path, quick=True), QUICK)
    assert measured == ["taste"]


def test_failed_case_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fail_one(pipe, ("rates", "bursts"), tmp_path, monkeypatch)


@pytest.mark.timeout(600)
def test_pipe_is_measured_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs servers, Spark, load and watcher once, and the polling queue before and after."""
    monkeypatch.setenv("PYSPARK_PYTHON", python_of_workers(tmp_path))
    sizes = replace(
        QUICK,
        delays=Delays(shortest_ms=1_000, longest_ms=2_000),
        outside=replace(QUICK.outside, seconds=2, reference_s=1),
    )

    def measure(session: Session) -> None:
        session.cases = ("outside",)
        measure_sizes(session, sizes)

    report = run_bench("tiny", measure, plots=tmp_path / "plots")
    assert report.tally.clean
    rows = {(row.case, row.metric): row for row in report.rows}
    assert len(rows) == len(report.rows)
    case = "from outside: 1,000/s for 2 s, cold, delays 1–2 s, 4 partitions"
    assert rows[case, "lost or early"].holds
    assert rows[case, "runs after"].value > 0
    for name in ("p50", "p99", "p99.9", "max"):
        assert rows[case, f"late, {name} of all"].reference_value
        beside = rows[f"{case}, beside a polling queue before and after", f"late, {name}"]
        assert beside.reference_value
    parts = ("Kafka", "PostgreSQL", "the pipe's Python", "load and watcher")
    cores = [rows[case, f"processor, {part}"].value for part in parts]
    assert min(cores) > 0
    # The JVM may work for less than a tick of the system's accounts in two seconds.
    jvm = rows[case, "processor, Spark's JVM"].value
    assert jvm >= 0
    assert rows[case, "processor, all of these"].value == pytest.approx(sum(cores) + jvm)
    assert (f"{case}, each 10 s", "0–10 s, p99") in rows
    ET.parse(tmp_path / "plots" / "pipe-outside-1000.svg")
