"""The bench `cluster`: its rows. `chronoline bench cluster --quick` runs its cases on real brokers."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline.core.lateness import Lateness
from chronoline_bench.cluster.bench import (
    QUICK,
    ConnectedSizes,
    KillSizes,
    Reserving,
    Steady,
    report_connected,
    report_kill,
    report_lateness,
    report_overlap,
)
from chronoline_bench.cluster.deletion import Deletion, DeletionSizes, report_deletion
from chronoline_bench.cluster.fail_over import GAP_PARTS, Gap, Steps, recorded_steps
from chronoline_bench.registry import find_bench
from chronoline_bench.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(folder=tmp_path)


def steady(late_ms: float, cores: float) -> Steady:
    return Steady(Lateness.of([late_ms] * 10), {"brokers": cores, "etcd": 0.1}, 200.0)


def test_longest_gap_is_bounded(session: Session) -> None:
    sizes = KillSizes(kills=2, rate=120)
    gaps = [Gap(whole_s, dict.fromkeys(GAP_PARTS, whole_s / 4)) for whole_s in (0.2, 0.4, 4.5)]
    report_kill(session, sizes, gaps, 3)
    rows = {row.metric: row for row in session.rows}
    assert rows["of it: until the client notices, p50"].value == 0.1
    assert rows["gap of its consumers, p50"].value == 0.4
    assert rows["gap of its consumers, max"].holds is False
    assert rows["mean time between two messages of a consumer"].value == 0.1
    assert rows["messages delivered again, whose ack was lost"].value == 3


def test_gap_is_divided_by_the_steps_of_the_client() -> None:
    steps = Steps()
    at = {"stream_broken": 1.5, "stream_open": 2.0, "subscribed": 3.5}
    steps.seen["a"] = [(0.5, "stream_open"), *((moment, step) for step, moment in at.items())]
    (gap,) = steps.gaps({"a": 3.0}, 1.0)
    assert list(gap.parts_s.values()) == [0.5, 0.5, 1.5, 0.5]
    (early,) = steps.gaps({"a": 1.2}, 1.0)
    assert list(early.parts_s.values()) == pytest.approx([0.5, 0.5, 0.2, 0.0])


def test_message_that_the_killed_broker_had_pushed_ends_no_gap() -> None:
    steps = Steps()
    assert steps.resumed_s("a", 1.0) is None
    steps.seen["a"] = [(0.5, "subscribed"), (1.4, "stream_open"), (1.6, "subscribed")]
    assert steps.resumed_s("a", 1.0) == 1.6


def test_clients_log_the_steps_of_a_fail_over() -> None:
    with recorded_steps() as steps:
        logging.getLogger("chronoline.client.stream").debug(
            "open", extra={"action": "stream_open", "client": "c"}
        )
    assert [step for _, step in steps.seen["c"]] == ["stream_open"]


def test_name_of_a_deleted_topic_is_free_in_time(session: Session) -> None:
    report_deletion(session, DeletionSizes(messages=10), Deletion(0.002, 31.0, 0.2))
    rows = {row.metric: row for row in session.rows}
    assert rows["its name is free after"].holds is False
    assert rows["the user is answered after"].value == 2.0


def test_two_racks_stand_beside_one(session: Session) -> None:
    found = {
        "simple ranges": (steady(10.0, 0.5), Reserving(40.0, 4.0, 0.0)),
        "rack-aware": (steady(11.0, 0.5), Reserving(60.0, 24.0, 1.0)),
    }
    report_overlap(session, QUICK.overlap, found)
    rows = {row.metric: row for row in session.rows}
    assert (rows["reservations in vain"].value, rows["reservations in vain"].reference_value) == (
        24.0,
        4.0,
    )
    assert rows["leases refused"].value == 1.0


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
    assert find_bench("cluster").cases == (
        "kill",
        "lateness",
        "overlap",
        "connected",
        "deletion",
    )
