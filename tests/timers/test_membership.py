"""Which nodes keep a timer: the same everywhere, evenly, and with little that moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.timers.membership import Membership, filter_of, matching, replicas_of

_IDS = st.integers(0, 2**64 - 1)
_NODES = st.lists(
    st.text("abcdefgh0123456789.:", min_size=1, max_size=80), min_size=1, max_size=7, unique=True
)


@given(
    timer_id=_IDS, nodes=_NODES, factor=st.integers(1, 9), order=st.randoms(use_true_random=False)
)
def test_the_order_of_the_list_does_not_matter(timer_id, nodes, factor, order) -> None:  # type: ignore[no-untyped-def]  # by Hypothesis
    replicas = replicas_of(timer_id, factor, nodes)
    shuffled = list(nodes)
    order.shuffle(shuffled)
    assert replicas_of(timer_id, factor, shuffled) == replicas
    assert len(replicas) == len(set(replicas)) == min(factor, len(nodes))


@given(timer_id=_IDS, nodes=_NODES, factor=st.integers(1, 4))
def test_a_node_that_comes_moves_timers_to_itself_alone(
    timer_id: int, nodes: list[str], factor: int
) -> None:
    before = replicas_of(timer_id, factor, nodes)
    after = replicas_of(timer_id, factor, [*nodes, "new"])
    assert set(after) - set(before) <= {"new"}
    if after[0] != before[0]:
        assert after[0] == "new"


@given(timer_id=_IDS, nodes=_NODES, factor=st.integers(1, 4))
def test_a_first_replica_never_becomes_a_later_one(
    timer_id: int, nodes: list[str], factor: int
) -> None:
    """If there are more nodes than replicas: else everybody keeps it."""
    if len(nodes) <= factor:
        return
    first = replicas_of(timer_id, factor, nodes)[0]
    assert first not in replicas_of(timer_id, factor, [*nodes, "new"])[1:]


def test_timers_are_spread_evenly() -> None:
    nodes = [f"10.0.0.{number}:7253" for number in range(1, 6)]
    firsts = Counter(replicas_of(timer_id, 2, nodes)[0] for timer_id in range(10_000))
    seconds = Counter(replicas_of(timer_id, 2, nodes)[1] for timer_id in range(10_000))
    for counted in (firsts, seconds):
        assert set(counted) == set(nodes)
        assert min(counted.values()) > 1_700


@given(nodes=_NODES, others=_NODES)
def test_a_filter_holds_what_was_put_into_it(nodes: list[str], others: list[str]) -> None:
    assert set(nodes) <= set(matching(filter_of(nodes), {*nodes, *others}))
    assert 0 <= filter_of(nodes) < 2**64


@pytest.mark.parametrize(
    ("membership", "same_view"),
    [
        (Membership(("a", "b", "c")), True),
        (Membership(("c", "b"), joining=("a",)), True),
        (Membership(("a", "b", "c"), leaving=("d",)), True),
        (Membership(("a", "b")), False),
    ],
)
def test_a_view_is_the_list_that_timers_go_to(membership: Membership, same_view: bool) -> None:
    assert (membership.view == Membership(("a", "b"), joining=("c",)).view) is same_view
