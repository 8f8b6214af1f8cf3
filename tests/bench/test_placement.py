"""The simulated figures of dealers and selector."""

from __future__ import annotations

import pytest

from chronoline.core.dealer import Dealer
from chronoline_bench.cluster.lost_rack import simulate
from chronoline_bench.cluster.placement import changes, lines, reading_brokers


@pytest.mark.parametrize(("dealer", "at_once"), [(Dealer.SIMPLE, 0), (Dealer.RACK_AWARE, 100)])
def test_lost_buckets_are_served_at_once_by_other_racks(dealer: Dealer, at_once: float) -> None:
    found = changes(dealer, (2, 2), buckets=12)
    assert found.at_once == at_once
    assert found.fewest == 25


def test_half_of_the_buckets_move_when_the_first_of_many_leaves() -> None:
    found = changes(Dealer.SIMPLE, (100,), buckets=10_000)
    assert found.fewest <= found.moved <= found.worst
    assert 50 <= found.worst < 51


def test_selector_lets_two_brokers_read_for_eight_consumers() -> None:
    assert reading_brokers(8, 4, selected=True) == 2
    assert reading_brokers(8, 4, selected=False) == 4


def test_tables_have_the_same_number_of_cells_in_each_row() -> None:
    tables = "\n".join(lines()).split("\n\n")
    assert [len({line.count("|") for line in table.splitlines()}) for table in tables] == [1, 1]


def test_backups_take_nothing_from_the_living_and_serve_a_lost_rack() -> None:
    simple, rack_aware = (simulate(dealer, 10) for dealer in (Dealer.SIMPLE, Dealer.RACK_AWARE))
    assert simple.empty_looks == simple.by_backups == rack_aware.by_backups == 0
    assert max(rack_aware.late_ms.values()) < max(simple.late_ms.values())  # in simulated time
    assert rack_aware.late_ms.keys() == simple.late_ms.keys()
