"""The bench `cluster`: its rows. `chronoline bench cluster --quick` runs its cases on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.core.lateness import Lateness
from chronoline_bench.cluster.bench import (
    QUICK,
    ConnectedSizes,
    KillSizes,
    Steady,
    report_connected,
    report_kill,
    report_lateness,
)
from chronoline_bench.registry import find_bench
from chronoline_bench.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(folder=tmp_path)


def steady(late_ms: float, cores: float) -> Steady:
    return Steady(Lateness.of([late_ms] * 10), {"brokers": cores, "etcd": 0.1}, 200.0)


def test_longest_gap_is_bounded(session: Session) -> None:
    sizes = KillSizes(kills=2, rate=120)
    report_kill(session, sizes, [0.2, 0.4, 4.5], 3)
    rows = {row.metric: row for row in session.rows}
    assert rows["gap of its consumers, p50"].value == 0.4
    assert rows["gap of its consumers, max"].holds is False
    assert rows["of it: mean time between two messages of a consumer"].value == 0.1
    assert rows["messages delivered again, whose ack was lost"].value == 3


def test_kills_without_consumers_fail(session: Session) -> None:
    with pytest.raises(ChronolineError, match="had consumers"):
        report_kill(session, QUICK.kill, [], 0)


@pytest.mark.parametrize(("three_ms", "holds"), [(12.0, True), (20.0, False)])
def test_three_brokers_stand_beside_one(session: Session, three_ms: float, holds: bool) -> None:
    report_lateness(session, QUICK.lateness, steady(three_ms, 1.5), steady(10.0, 0.5))
    rows = {row.metric: row for row in session.rows}
    assert rows["late, p99"].holds is holds
    assert (rows["brokers"].value, rows["brokers"].reference_value) == (1.5, 0.5)


def test_memory_stands_beside_that_without_clients(session: Session) -> None:
    sizes = ConnectedSizes(consumers=1_000, clients=20, rate=1_000, seconds=1)
    report_connected(session, sizes, steady(5.0, 0.9), 80.0)
    memory = next(row for row in session.rows if row.unit == "MiB")
    assert (memory.value, memory.reference_value) == (200.0, 80.0)


def test_registered_cases_are_those_of_the_bench() -> None:
    assert find_bench("cluster").cases == ("kill", "lateness", "connected")
