"""Faults under a load: when they are over, what they delayed, and how a plot marks them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from chronoline.core.errors import ChronolineError
from chronoline.runtime.process_family import kill_family
from chronoline_bench.harness.cores import CoreMeter, Part, family
from chronoline_bench.harness.passage import Arrivals, Passage
from chronoline_bench.pipe import faults
from chronoline_bench.pipe.faults import FAULTS, Incident, busiest_worker

BEGAN_S, OVER_S = 12, 20


def incident(late_ms: dict[int, float]) -> Incident:
    """A load from 0 to 30 s; a message every 50 ms, due 3 s after its sending; lateness by due time in ms."""
    due_ms = dict(enumerate(range(3_000, 33_000, 50)))
    arrivals = Arrivals()
    arrivals.add((n, round((due + late_ms.get(due, 1)) * 1_000)) for n, due in due_ms.items())
    passage = Passage(
        started_us=0,
        ended_us=30_000_000,
        steady_us=(3_000_000, 33_000_000),
        due_us={number: due * 1_000 for number, due in due_ms.items()},
        arrivals=arrivals,
    )
    return Incident(passage=passage, began_us=BEGAN_S * 1_000_000, over_us=OVER_S * 1_000_000)


def late(first_ms: int, last_ms: int, by_ms: float) -> dict[int, float]:
    return dict.fromkeys(range(first_ms, last_ms, 50), by_ms)


def test_undisturbed_output_is_on_time_at_once() -> None:
    found = incident({})
    assert found.recovered_s == found.takeover_s(found.passage.due_us) == 0


def test_output_is_on_time_after_its_last_late_slice() -> None:
    found = incident(late(12_000, 21_150, 4_000))
    assert found.recovered_s == 1.25
    assert found.p99_before_ms == found.p99_after_ms == 1
    assert found.worst_ms == 4_000


def test_late_slice_after_five_seconds_on_time_is_another_matter() -> None:
    delayed = late(12_000, 21_150, 4_000)
    assert incident(delayed | late(26_000, 26_250, 300)).recovered_s == 6.25
    found = incident(delayed | late(26_250, 26_500, 300))
    assert found.recovered_s == 1.25
    assert found.p99_after_ms == 300


def test_slice_is_late_by_a_share_of_its_messages() -> None:
    # One of five messages is more than a tenth, and one of a thousand is not.
    assert incident({24_000: 300}).recovered_s == 4.25
    due_us = dict.fromkeys(range(1_000), 25_000_000)
    arrivals = Arrivals()
    arrivals.add((number, due + 300_000 * (number < 100)) for number, due in due_us.items())
    passage = Passage(
        started_us=0, ended_us=1, steady_us=(0, 1 << 60), due_us=due_us, arrivals=arrivals
    )
    assert Incident(passage=passage, began_us=0, over_us=20_000_000).recovered_s == 0


def test_takeover_ends_with_the_last_delayed_message() -> None:
    """A message that came on time, or long after in a slice that is on time, does not count."""
    found = incident(late(12_000, 14_000, 5_000) | late(15_000, 17_000, 9_000))
    assert found.takeover_s(found.passage.due_us) == pytest.approx(16.95 + 9 - BEGAN_S)


def test_waiting_messages_are_told_from_those_published_later() -> None:
    # A message due by 13 s was sent two seconds before the fault, and one due from 15 s on after it.
    found = incident(late(12_000, 13_000, 4_000) | late(15_000, 16_000, 10_000))
    assert found.takeover_s(found.waiting) == pytest.approx(12.95 + 4 - BEGAN_S)
    assert found.takeover_s(found.sent_after) == pytest.approx(15.95 + 10 - BEGAN_S)


def test_fault_is_marked_from_its_beginning_to_its_end() -> None:
    mark = incident({}).mark("Kafka away")
    assert (mark.name, mark.first_s, mark.last_s) == ("Kafka away", BEGAN_S, OVER_S)


def test_every_fault_has_its_own_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len({fault.title for fault in FAULTS}) == 6


# A process with a child and a grandchild, of which the last has worked most.
DAEMON = """
import subprocess, sys
depth = int(sys.argv[1])
if depth:
    child = subprocess.Popen(
        [sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )
    child.stdout.readline()
else:
    sum(range(3_000_000))
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def processes() -> Iterator[list[int]]:
    """A process, its child and its grandchild."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, "2", DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout
        first.stdout.readline()
        yield [process.pid for process in family(first.pid)]
        kill_family(first.pid)


def test_worker_is_a_grandchild_of_the_jvm(
    processes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, worker = processes
    with pytest.raises(ChronolineError, match="no Python worker"):
        busiest_worker(first)
    monkeypatch.setattr(faults, "is_jvm", lambda name: name == psutil.Process(first).name())
    assert busiest_worker(first) == worker


def test_cores_are_those_of_a_whole_family(processes: list[int]) -> None:
    whole = Part(pids=processes[:1]).processor_s()
    assert whole >= Part(pids=processes[-1:]).processor_s() > 0
    assert Part(pids=processes[:1], wanted=lambda program: program == "java").processor_s() == 0


def test_cores_are_measured_from_the_start_of_the_meter(processes: list[int]) -> None:
    meter = CoreMeter({"idle": Part(pids=processes[:1]), "ended": Part(pids=[])})
    used = meter.read()
    assert used["ended"] == 0
    assert used["idle"] >= 0
