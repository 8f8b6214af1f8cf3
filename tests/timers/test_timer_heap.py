"""The heap returns its timers in order of time, after any number of moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.timers.timer_heap import TimerHeap

_MOVES = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 50))), max_size=60
)


@given(moves=_MOVES, now_ms=st.integers(0, 60), limit=st.integers(0, 10))
def test_it_is_a_sorted_dictionary(
    moves: list[tuple[int, int | None]], now_ms: int, limit: int
) -> None:
    wheel = TimerHeap()
    model: dict[int, int] = {}
    for timer_id, at_ms in moves:
        if at_ms is None:
            wheel.remove(timer_id)
            model.pop(timer_id, None)
        else:
            wheel.put(timer_id, at_ms)
            model[timer_id] = at_ms
    assert len(wheel) == len(model)
    assert wheel.next_at() == min(model.values(), default=None)
    due = sorted((at_ms, timer_id) for timer_id, at_ms in model.items() if at_ms <= now_ms)
    assert wheel.take(now_ms, limit) == [timer_id for _, timer_id in due][:limit]


def test_leftovers_do_not_pile_up() -> None:
    wheel = TimerHeap()
    for at_ms in range(100_000):
        wheel.put(1, at_ms)
    assert wheel.take(10**9, 10) == [1]
    assert wheel.held < 3_000
