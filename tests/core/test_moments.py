"""Moments of many items: each is due at its own, and only those that changed are asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.moments import Moments


class Plan:
    """Items with moments that the test sets; `asked` records which were asked."""

    def __init__(self, **moments: int | None) -> None:
        self.at: dict[str, int | None] = dict(moments)
        self.asked: list[str] = []
        self.moments = Moments[str](self._moment_of)
        for name in moments:
            self.moments.touch(name)

    def _moment_of(self, name: str, now_ms: int) -> int | None:
        self.asked.append(name)
        return self.at[name]

    def move(self, name: str, moment: int | None) -> None:
        self.at[name] = moment
        self.moments.touch(name)


def test_items_are_due_in_the_order_of_their_moments() -> None:
    plan = Plan(a=30, b=10, c=20, d=None)
    assert plan.moments.next_at(0) == 10
    assert plan.moments.due(9) == []
    assert plan.moments.due(25) == ["b", "c"]


def test_only_changed_items_are_asked() -> None:
    plan = Plan(a=30, b=10)
    assert plan.moments.next_at(0) == 10
    plan.asked.clear()
    assert plan.moments.next_at(1) == 10
    assert plan.asked == []
    plan.move("a", 5)
    assert plan.moments.next_at(1) == 5
    assert plan.asked == ["a"]


def test_due_item_is_asked_again() -> None:
    plan = Plan(a=10)
    assert plan.moments.due(10) == ["a"]
    plan.at["a"] = 40
    assert plan.moments.next_at(10) == 40
    assert plan.moments.due(39) == []


def test_moved_item_is_not_due_at_its_old_moment() -> None:
    plan = Plan(a=10, b=15)
    plan.moments.next_at(0)
    plan.move("a", 20)
    assert plan.moments.due(10) == []
    plan.move("b", None)
    assert plan.moments.next_at(10) == 20


def test_items_beyond_the_limit_come_before_later_ones() -> None:
    plan = Plan(a=10, b=11, c=12)
    assert plan.moments.due(15, limit=1) == ["a"]
    plan.at["a"] = 15
    assert plan.moments.due(15, limit=2) == ["b", "c"]


def test_waiting_item_that_wants_to_be_served_at_once_keeps_its_place() -> None:
    now = [10]
    moments = Moments[str](lambda name, now_ms: now_ms if name == "at once" else now[0])
    moments.touch("at once")
    assert moments.due(10, limit=0) == []
    now[0] = 11
    moments.touch("later")
    moments.touch("at once")
    assert moments.due(12, limit=1) == ["at once"]


def test_forgotten_item_is_not_due() -> None:
    plan = Plan(a=10, b=12)
    plan.moments.next_at(0)
    plan.moments.forget("a")
    assert plan.moments.due(50) == ["b"]
    plan.moments.forget("b")
    assert plan.moments.next_at(50) is None


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.none() | st.integers(0, 50), st.integers(0, 3)),
        max_size=60,
    )
)
def test_any_history_equals_asking_all_items(steps: list[tuple[str, int | None, int]]) -> None:
    plan = Plan(**dict.fromkeys("abcde"))
    now_ms = 0
    for name, moment, passed_ms in steps:
        plan.move(name, moment)
        now_ms += passed_ms
        wanted = [(at, each) for each, at in plan.at.items() if at is not None]
        assert plan.moments.next_at(now_ms) == min((at for at, _ in wanted), default=None)
        due = plan.moments.due(now_ms)
        assert set(due) == {each for at, each in wanted if at <= now_ms}
        assert [plan.at[each] for each in due] == sorted(at for at, _ in wanted if at <= now_ms)


def test_stale_moments_take_bounded_room() -> None:
    plan = Plan(a=10**9, b=10**9)
    for moment in range(10_000):
        plan.move("a", 10**8 - moment)
        assert plan.moments.next_at(0) == 10**8 - moment
    # The room is private: nothing else shows whether stale moments are kept.
    assert len(plan.moments._heap) < 200
