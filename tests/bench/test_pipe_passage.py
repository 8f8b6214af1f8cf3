"""What became of a load: files of both ends, matched."""

from pathlib import Path

import pytest

from chronoline.runtime.percentiles import Lateness
from chronoline_bench.arrivals import Arrivals
from chronoline_bench.cases.pipe_outages import Outage
from chronoline_bench.pipes.loader import Loaded
from chronoline_bench.pipes.passage import Passage, count_up
from chronoline_bench.pipes.records import PAIR, count_pairs, read_pairs, write_pairs
from chronoline_bench.tally import Tally

NO_CONTROL = Lateness.of([])


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    pairs = [(1, 1_700_000_000_123), (-1, 0), (2**40, 5)]
    write_pairs(path, pairs)
    assert list(read_pairs(path)) == pairs
    assert list(read_pairs(path, 2)) == pairs[2:]
    assert count_pairs(path) == 3


def test_half_a_pair_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    write_pairs(path, [(1, 2)])
    whole = PAIR.pack(3, 4)
    with path.open("ab") as file:
        file.write(whole[:7])
    assert list(read_pairs(path)) == [(1, 2)]
    with path.open("ab") as file:
        file.write(whole[7:])
    assert list(read_pairs(path, 1)) == [(3, 4)]


@pytest.mark.parametrize(
    ("came", "wanted"),
    [
        ([(1, 5_000), (2, 6_001)], Tally()),
        ([(1, 5_000)], Tally(lost=1)),
        ([(1, 4_999), (2, 6_000)], Tally(early=1)),
        ([(1, 5_000), (2, 6_000), (1, 7_000), (1, 8_000)], Tally(duplicated=2)),
        # What nobody sent came twice, too: it is another's, or from an earlier load.
        ([(1, 5_000), (2, 6_000), (3, 1)], Tally(duplicated=1)),
    ],
)
def test_what_was_lost_doubled_or_early_is_counted(
    came: list[tuple[int, int]], wanted: Tally
) -> None:
    arrivals = Arrivals()
    assert arrivals.add(came) == len(came)
    tally = Tally()
    count_up(tally, {1: 5, 2: 6}, arrivals)
    assert tally == wanted


def test_what_comes_again_is_late_by_its_first_coming() -> None:
    arrivals = Arrivals()
    arrivals.add([(1, 5_000), (1, 9_000), (2, 6_000)])
    assert arrivals.first_us == {1: 5_000, 2: 6_000}
    alone = arrivals.of([1, 3])
    assert alone.first_us == {1: 5_000}
    assert alone.times == {1: 2}


def passage(late_ms: dict[int, float], *, ended_ms: int = 20_000) -> Passage:
    """Published from 0 on, with delays of 3 to 10 s; lateness by due time, in ms."""
    due_ms = dict(enumerate(late_ms))
    return Passage(
        loaded=Loaded(started_ms=0, ended_ms=ended_ms, published=len(due_ms)),
        shortest_ms=3_000,
        longest_ms=10_000,
        due_ms=due_ms,
        came_us={number: round((due + late_ms[due]) * 1_000) for number, due in due_ms.items()},
        control=NO_CONTROL,
    )


def test_only_the_full_rate_is_measured() -> None:
    """From the longest delay after the start to the shortest after the end."""
    found = passage({3_000: 900, 9_999: 800, 10_000: 1, 15_000: 2, 22_999: 3, 23_000: 700})
    assert found.steady == Lateness.of([1, 2, 3])
    assert found.whole.max_ms == 900
    assert found.last_came_ms == 23_700


def test_a_load_has_a_rate() -> None:
    assert Loaded(started_ms=1_000, ended_ms=3_000, published=500).rate == 250


def outage(late_ms: dict[int, float]) -> Outage:
    return Outage(passage=passage(late_ms, ended_ms=30_000), away_ms=12_000, back_ms=20_000)


def test_the_output_is_on_time_again_after_the_last_late_slice() -> None:
    late = dict.fromkeys(range(10_000, 33_000, 50), 1.0)
    assert outage(late).recovered_s == 0
    late |= dict.fromkeys(range(12_000, 21_150, 50), 4_000.0)
    found = outage(late)
    assert found.recovered_s == 1.25
    assert found.p99_before_ms == found.p99_after_ms == 1
    assert found.worst_ms == 4_000


def test_a_few_late_ones_do_not_make_a_slice_late() -> None:
    late = dict.fromkeys(range(10_000, 33_000, 50), 1.0) | {30_000: 300.0}
    assert outage(late).recovered_s == 0
