"""Due times and arrivals, matched."""

from pathlib import Path

import pytest

from chronoline.core.lateness import Lateness
from chronoline_bench.broker.backlog import Drained
from chronoline_bench.harness.passage import (
    Arrivals,
    Notes,
    Passage,
    count_up,
    take_pairs,
    write_pairs,
)
from chronoline_bench.harness.stage import await_count
from chronoline_bench.tally import Tally

DUE_US = {1: 1_000, 2: 2_000, 3: 3_000}
ALL = [(1, 1_000), (2, 2_000), (3, 3_000)]


def came(*pairs: tuple[int, int], refused: int = 0, last_ack_us: int = 0) -> Arrivals:
    found = Arrivals()
    found.add(pairs, refused=refused, last_ack_us=last_ack_us)
    return found


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    pairs = [(1, 1_700_000_000_123), (-1, 0), (2**40, 5)]
    write_pairs(path, pairs)
    assert list(take_pairs(path)) == pairs
    assert not path.exists()


def test_notes_are_taken_once() -> None:
    notes = Notes()
    for number in (5, 5, 6):
        notes.came(number, 10 * number)
    assert notes.untaken == 2
    assert list(notes.take()) == [(5, 50), (5, 50), (6, 60)]
    notes.came(7, 70)
    assert notes.untaken == 1
    assert list(notes.take()) == [(7, 70)]
    assert list(notes.numbers) == [5, 5, 6, 7]


def test_arrivals_of_several_receivers_are_added() -> None:
    both = came((1, 1_500), (2, 2_100), last_ack_us=2_500)
    both.add([(3, 3_200)], refused=1, last_ack_us=2_400)
    assert (both.earliest_us, both.latest_us) == (1_500, 3_200)
    assert (both.refused, both.last_ack_us) == (1, 2_500)
    assert (came().earliest_us, came().latest_us) == (0, 0)


def test_first_arrival_counts() -> None:
    arrivals = came((1, 5_000), (1, 9_000), (2, 6_000))
    assert arrivals.first_us == {1: 5_000, 2: 6_000}
    alone = arrivals.of([1, 3])
    assert alone.first_us == {1: 5_000}
    assert alone.times == {1: 2}


@pytest.mark.parametrize(
    ("found", "left", "tally"),
    [
        (came(*ALL), 0, Tally()),
        (came((1, 1_000), (3, 3_000)), 0, Tally(lost=1)),
        (came((1, 1_000), (3, 3_000)), 1, Tally(lost=1)),
        (came(*ALL, (2, 2_500)), 0, Tally(duplicated=1)),
        # An arrival that was not sent belongs to another or an earlier load.
        (came(*ALL, (4, 2_500)), 0, Tally(duplicated=1)),
        (came((1, 999), (2, 2_000), (3, 3_000)), 0, Tally(early=1)),
        (came(*ALL, refused=1), 1, Tally(duplicated=1)),
        (came(*ALL), 2, Tally(duplicated=2)),
    ],
)
def test_lost_duplicated_and_early_are_counted(found: Arrivals, left: int, tally: Tally) -> None:
    assert count_up(DUE_US, found, left=left) == tally


def passage(late_ms: dict[int, float], *, ended_ms: int = 20_000) -> Passage:
    """A load from 0 on, with delays of 3 to 10 s; lateness by due time, in ms."""
    due_ms = dict(enumerate(late_ms))
    return Passage(
        started_us=0,
        ended_us=ended_ms * 1_000,
        steady_us=(10_000_000, (ended_ms + 3_000) * 1_000),
        due_us={number: due * 1_000 for number, due in due_ms.items()},
        arrivals=came(*((n, round((due + late_ms[due]) * 1_000)) for n, due in due_ms.items())),
    )


def test_steady_span_alone_is_judged() -> None:
    found = passage({3_000: 900, 9_999: 800, 10_000: 1, 15_000: 2, 22_999: 3, 23_000: 700})
    assert found.steady == Lateness.of([1, 2, 3])
    assert found.whole.max_ms == 900
    assert found.arrivals.latest_us == 23_700_000
    assert found.tally == Tally()


def test_passage_has_a_rate() -> None:
    assert passage({3_000: 0, 4_000: 0}, ended_ms=500).rate == 4


def test_lost_message_has_no_lateness() -> None:
    found = Passage(
        started_us=0, ended_us=1, steady_us=(0, 1), due_us=DUE_US, arrivals=came((2, 2_500))
    )
    assert found.late_ms() == {2: 0.5}
    assert found.tally == Tally(lost=2)


def test_every_kind_of_fault_is_counted_together() -> None:
    found = Passage(
        started_us=0,
        ended_us=1,
        steady_us=(0, 1),
        due_us={number: 1_000 * number for number in range(1, 5)},
        arrivals=came((1, 1_500), (2, 1_999), (3, 3_000), (3, 9_000), (7, 1)),
    )
    assert found.tally == Tally(lost=1, duplicated=2, early=1)
    assert list(found.late_ms().values()) == [0.5, -0.001, 0.0]
    assert found.between(1_000, 2_000).count == 1


def test_messages_are_found_by_the_time_of_their_sending() -> None:
    found = passage(dict.fromkeys(range(3_000, 13_000, 1_000), 1.0), ended_ms=10_000)
    assert found.sent_between(0, 2_000_000) == {0, 1}
    assert found.sent_between(8_000_000, 1 << 62) == {8, 9}


def test_two_loads_are_joined() -> None:
    first = passage({3_000: 1.0, 4_000: 2.0})
    second = Passage(
        started_us=5_000_000,
        ended_us=6_000_000,
        steady_us=(0, 1),
        due_us={7: 8_000_000},
        arrivals=came((7, 8_005_000), (7, 8_006_000)),
    )
    both = first.joined(second)
    assert both.whole == Lateness.of([1, 2, 5])
    assert both.tally == Tally(duplicated=1)
    assert (both.started_us, both.steady_us) == (first.started_us, first.steady_us)
    assert sorted(both.points) == [(3_000_000, 1.0), (4_000_000, 2.0), (8_000_000, 5.0)]


def test_rate_of_a_backlog_ends_with_the_last_ack() -> None:
    found = came(*((number, 10_000_000 + number) for number in range(1_000)))
    found.last_ack_us = 10_500_000
    drained = Drained(found, due_us=9_000_000, ready_us=0)
    assert drained.rate == 2_000
    assert drained.last_s == pytest.approx(1.000999)


def test_count_is_awaited_until_it_stays_the_same() -> None:
    counts = iter([0, 1, 3, 3, 3])
    assert await_count(lambda: next(counts), 3)
    assert list(counts) == [3, 3]
    assert not await_count(lambda: 2, 3, quiet_s=0)
