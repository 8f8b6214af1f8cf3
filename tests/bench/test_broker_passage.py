"""What was put and what came, matched; and how flat memory was."""

import os
import time

import pytest

from chronoline.runtime.percentiles import Lateness
from chronoline_bench.brokers.draining import Drained
from chronoline_bench.brokers.memory import MemoryWatch, thirds
from chronoline_bench.brokers.passage import Came, Passage, count_up
from chronoline_bench.tally import Tally

DUE_US = {1: 1_000, 2: 2_000, 3: 3_000}


def came(*pairs: tuple[int, int], refused: int = 0, last_ack_us: int = 0) -> Came:
    found = Came()
    found.add(pairs, refused=refused, last_ack_us=last_ack_us)
    return found


def test_what_came_of_several_consumers() -> None:
    both = came((1, 1_500), (2, 2_100), last_ack_us=2_500)
    both.add([(3, 3_200)], refused=1, last_ack_us=2_400)
    assert (both.first_us, both.last_us) == (1_500, 3_200)
    assert (both.refused, both.last_ack_us) == (1, 2_500)
    assert (came().first_us, came().last_us) == (0, 0)


@pytest.mark.parametrize(
    ("found", "left", "tally"),
    [
        (came((1, 1_000), (2, 2_000), (3, 3_000)), 0, Tally()),
        (came((1, 1_000), (3, 3_000)), 0, Tally(lost=1)),
        (came((1, 1_000), (3, 3_000)), 1, Tally(lost=1)),
        (came((1, 1_000), (2, 2_000), (3, 3_000), (2, 2_500)), 0, Tally(duplicated=1)),
        (came((1, 1_000), (2, 2_000), (3, 3_000), (4, 2_500)), 0, Tally(duplicated=1)),
        (came((1, 999), (2, 2_000), (3, 3_000)), 0, Tally(early=1)),
        (came((1, 1_000), (2, 2_000), (3, 3_000), refused=1), 1, Tally(duplicated=1)),
        (came((1, 1_000), (2, 2_000), (3, 3_000)), 2, Tally(duplicated=2)),
    ],
)
def test_lost_twice_and_early_are_counted(found: Came, left: int, tally: Tally) -> None:
    assert count_up(DUE_US, found, left=left) == tally


def test_late_is_what_fell_due_while_as_much_was_put() -> None:
    second = 1_000_000
    passage = Passage(
        started_us=0,
        ended_us=3 * second,
        delay_s=1,
        due_us={1: second - 1, 2: second, 3: 2 * second, 4: 3 * second},
        came_us={1: 2 * second, 2: second + 500, 3: 2 * second + 2_000, 4: 5 * second},
        control=Lateness.of([]),
    )
    assert passage.steady.count == 2
    assert passage.steady.p50_ms == 0.5
    assert passage.steady.max_ms == 2


def test_how_fast_a_backlog_went() -> None:
    found = came(*((number, 10_000_000 + number) for number in range(1_000)))
    found.last_ack_us = 10_500_000
    drained = Drained(found, due_us=9_000_000, ready_us=0)
    assert drained.rate == 2_000
    assert drained.last_s == pytest.approx(1.000999)


def test_the_thirds_of_a_stretch_of_time() -> None:
    assert thirds([1, 2, 3, 9, 9, 9, 4, 5, 6, 7]) == (2, 6)
    assert thirds([5.0]) == (5, 5)


def test_memory_is_looked_at_again_and_again() -> None:
    with MemoryWatch(os.getpid(), 0.001) as watch:
        give_up = time.monotonic() + 30
        while len(watch.samples_mb) < 3:
            assert time.monotonic() < give_up
            time.sleep(0.001)  # the watch looks in a thread of its own, and tells nobody
    assert all(sample > 1 for sample in watch.samples_mb)
