"""Ids at the edge."""

from chronoline import new_id
from chronoline.core.ids import id_time
from chronoline.testing import ManualClock


def test_new_ids_differ_and_sort_by_time() -> None:
    clock = ManualClock()
    first = new_id(clock)
    clock.advance(ms=1)
    assert first < new_id(clock)
    assert id_time(first) == clock.now_ms() - 1
    assert len({new_id(clock) for _ in range(100)}) == 100
