"""What nodes decide, in made-up time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import Plan
from chronoline.timers.replica import Attempts, Call
from tests.timers.simulated import WALL_CLOCKS_MS, Simulation

_ID = 7


def _plan(interval_ms: int = 10_000, pops: int = 1, factor: int = 2, label: str = "x") -> Plan:
    return Plan(
        interval_ms=interval_ms,
        repeat_for_ms=interval_ms * pops,
        uri="http://client/",
        opaque=label,
        factor=factor,
    )


def _cluster(
    plan: Plan, *, attempts: Attempts | None = None
) -> tuple[Simulation, tuple[str, ...], int]:
    """Three nodes, of which some keep the timer; the nodes in order, and when it was asked for."""
    cluster = Simulation("abc", attempts=attempts)
    asked_ms = cluster.now_ms
    assert cluster.change("a", _ID, plan, factor=plan.factor)
    return cluster, replicas_of(_ID, plan.factor, "abc"), asked_ms


def _run(cluster: Simulation, ms: int, *, every_ms: int = 1) -> None:
    """Lets time pass on a network that is quick."""
    end_ms = cluster.now_ms + ms
    while cluster.now_ms < end_ms:
        cluster.advance(min(end_ms, cluster.now_ms + every_ms))
        cluster.deliver_all()


def test_the_first_replica_pops_and_the_others_hear_of_it() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=3, factor=3))
    _run(cluster, 60_000, every_ms=10)
    assert [(pop.node, pop.sequence) for pop in cluster.pops] == [(nodes[0], n) for n in (1, 2, 3)]
    assert [pop.at_ms - asked_ms for pop in cluster.pops] == [10_000, 20_000, 30_000]
    assert all(cluster.nodes[node].replica.tally.waiting == 0 for node in nodes)


def test_a_backup_pops_after_its_skew_if_the_first_is_dead() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=2, factor=3))
    cluster.kill(nodes[0])
    _run(cluster, 60_000, every_ms=10)
    step_ms = 10_000 // 6
    assert [(pop.node, pop.sequence) for pop in cluster.pops] == [(nodes[1], 1), (nodes[1], 2)]
    for pop in cluster.pops:
        late_ms = pop.at_ms - asked_ms - pop.sequence * 10_000
        assert step_ms <= late_ms <= step_ms + 1


@given(
    interval_ms=st.integers(1, 20_000),
    factor=st.integers(1, 3),
    dead=st.integers(0, 2),
    clocks=st.permutations("abc"),
)
def test_it_pops_within_twice_its_interval_whoever_is_dead(
    interval_ms: int, factor: int, dead: int, clocks: list[str]
) -> None:
    """INVARIANT 32, for short ones as well, if one of its replicas lives."""
    plan = _plan(interval_ms, factor=factor)
    cluster, nodes, asked_ms = _cluster(plan)
    for node in nodes[: min(dead, factor - 1)]:
        cluster.kill(node)
    cluster.advance(asked_ms + 2 * interval_ms)
    assert cluster.pops
    assert all(interval_ms <= pop.at_ms - asked_ms <= 2 * interval_ms for pop in cluster.pops)
    assert {(pop.timer_id, pop.sequence) for pop in cluster.pops} == {(_ID, 1)}
    del clocks


def test_nobody_waits_for_a_node_that_stops_in_order() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=2, factor=3))
    cluster.leave(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[1], 10_000)]
    cluster.leave(nodes[1])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops[1:]] == [(nodes[2], 20_000)]


def test_one_that_stopped_in_order_and_is_back_pops_again_and_nobody_else_does() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(factor=3))
    cluster.leave(nodes[0])
    _run(cluster, 5_000, every_ms=10)
    cluster.start(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[0], 10_000)]


def test_one_that_dies_after_it_came_back_is_waited_for_as_any_other() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(factor=2))
    cluster.leave(nodes[0])
    cluster.start(nodes[0])
    cluster.kill(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[1], 12_000)]


def test_one_of_no_interval_pops_at_once_and_once() -> None:
    cluster, nodes, asked_ms = _cluster(
        Plan(interval_ms=0, repeat_for_ms=0, uri="u", opaque="x", factor=2)
    )
    _run(cluster, 30_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms, pop.sequence) for pop in cluster.pops] == [
        (nodes[0], 0, 1)
    ]


def test_one_that_ends_before_it_pops_never_does() -> None:
    plan = Plan(interval_ms=5_000, repeat_for_ms=4_999, uri="u", opaque="x", factor=2)
    cluster, _, _ = _cluster(plan)
    _run(cluster, 30_000, every_ms=100)
    assert cluster.pops == []


def test_a_replaced_timer_pops_as_the_new_one_says() -> None:
    cluster, _, asked_ms = _cluster(_plan(label="old"))
    cluster.advance(asked_ms + 4_000)
    assert cluster.change("b", _ID, _plan(20_000, label="new"), factor=2)
    _run(cluster, 60_000, every_ms=10)
    assert [(pop.opaque, pop.at_ms - asked_ms, pop.sequence) for pop in cluster.pops] == [
        ("new", 24_000, 1)
    ]


@pytest.mark.parametrize("away_ms", [1_000, 8_000, 15_000, 1_200_000, 8_000_000])
@pytest.mark.parametrize("place", [0, 1])
def test_what_was_deleted_while_a_replica_was_down_does_not_come_back(
    away_ms: int, place: int
) -> None:
    """INVARIANT 34. Also if the others have forgotten it meanwhile: they had confirmed it once."""
    cluster, nodes, _ = _cluster(_plan())
    cluster.kill(nodes[place])
    alive = nodes[1 - place]
    assert cluster.change(alive, _ID, None, factor=2)
    cluster.advance(cluster.now_ms + away_ms)
    cluster.start(nodes[place])
    _run(cluster, 60_000, every_ms=100)
    assert cluster.pops == []


def test_all_nodes_down_at_once_lose_nothing() -> None:
    cluster, _, asked_ms = _cluster(_plan(pops=2))
    for node in "abc":
        cluster.kill(node)
    cluster.advance(asked_ms + 3_600_000)
    for node in "abc":
        cluster.start(node)
    _run(cluster, 60_000, every_ms=10)
    assert {pop.sequence for pop in cluster.pops} == {1, 2}


def test_a_callback_that_fails_is_tried_again_by_one_node_at_a_time() -> None:
    cluster, nodes, asked_ms = _cluster(
        _plan(interval_ms=4_000), attempts=Attempts(first_wait_ms=500)
    )
    tried: list[tuple[str, int]] = []
    cluster.on_call = lambda node, call: tried.append((node, call.timer.attempts))
    cluster.answers = False
    _run(cluster, 4_000 + 3_600)
    assert tried == [(nodes[0], 0), (nodes[0], 1), (nodes[0], 2), (nodes[0], 3)]
    cluster.answers = True
    _run(cluster, 10_000)
    assert [(pop.node, pop.sequence) for pop in cluster.pops] == [(nodes[0], 1)]
    assert cluster.pops[0].at_ms == asked_ms + 4_000 + 500 + 1_000 + 2_000 + 4_000


def test_a_backup_goes_on_with_the_attempts_of_one_that_died() -> None:
    cluster, nodes, _ = _cluster(_plan(), attempts=Attempts(first_wait_ms=500))
    tried: list[tuple[str, int]] = []
    cluster.on_call = lambda node, call: tried.append((node, call.timer.attempts))
    cluster.answers = False
    _run(cluster, 10_000 + 600)
    cluster.kill(nodes[0])
    cluster.answers = True
    _run(cluster, 20_000)
    assert tried == [(nodes[0], 0), (nodes[0], 1), (nodes[1], 2)]


def test_after_the_last_attempt_it_is_given_up() -> None:
    cluster, nodes, _ = _cluster(_plan(), attempts=Attempts(most=3, first_wait_ms=10))
    cluster.answers = False
    _run(cluster, 30_000, every_ms=10)
    timer = cluster.nodes[nodes[0]].replica.get(_ID)
    assert timer is not None
    assert timer.is_over
    cluster.answers = True
    _run(cluster, 60_000, every_ms=100)
    assert cluster.pops == []


def test_backups_wait_for_a_callback_that_takes_its_time() -> None:
    cluster, nodes, asked_ms = _cluster(_plan())
    first, second = (cluster.nodes[node].replica for node in nodes)
    now_ms = asked_ms + 10_000 + cluster.nodes[nodes[0]].offset_ms
    (call,) = first.take_calls(now_ms, 10)
    first.still_calling(call, now_ms + 1_000)
    cluster.save(nodes[0])
    cluster.deliver_all()
    skew_ms = 2_000
    turn_ms = second.wake_at()
    assert turn_ms is not None
    assert (
        turn_ms - cluster.nodes[nodes[1]].offset_ms == asked_ms + 10_000 + 1_000 + 2_000 + skew_ms
    )
    first.called(call, now_ms + 1_500, succeeded=True)
    cluster.save(nodes[0])
    cluster.deliver_all()
    assert second.tally.waiting == 0


def test_a_timer_that_was_deleted_while_it_was_called_stays_deleted() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=5))
    first = cluster.nodes[nodes[0]].replica
    now_ms = asked_ms + 10_000 + cluster.nodes[nodes[0]].offset_ms
    calls: list[Call] = first.take_calls(now_ms, 10)
    assert cluster.change("b", _ID, None, factor=2)
    assert first.called(calls[0], now_ms + 5, succeeded=True) is None
    _run(cluster, 100_000, every_ms=100)
    assert cluster.pops == []


def test_the_later_of_two_changes_at_two_nodes_wins_everywhere() -> None:
    cluster, nodes, _ = _cluster(_plan(label="one"))
    assert cluster.change("c", _ID, _plan(label="two"), factor=2)
    assert cluster.change("b", _ID, _plan(label="three"), factor=2)
    held = {cluster.nodes[node].replica.get(_ID).plan.opaque for node in nodes}  # type: ignore[union-attr]  # it is held
    assert held == {"three"}


def test_deletion_by_joining_nodes_wins_over_keepers_that_were_away() -> None:
    """INVARIANT 34."""
    old, new = ("a", "b"), ("c", "d")
    after = tuple(sorted(old + new))
    moved = [
        timer_id
        for timer_id in range(100)
        if set(replicas_of(timer_id, 2, after)).isdisjoint(replicas_of(timer_id, 2, old))
    ]
    cluster = Simulation(old)
    for timer_id in moved:
        for _ in range(3):  # so that the old nodes have counted further than the new ones will
            assert cluster.change("a", timer_id, _plan(), factor=2) == "all"
    cluster.kill("a")
    cluster.kill("b")
    cluster.see(Membership(old, joining=new))
    cluster.advance(cluster.now_ms + WALL_CLOCKS_MS + 1)
    for timer_id in moved:
        assert cluster.change("c", timer_id, None, factor=2) == "all"
    cluster.start("a")
    cluster.start("b")
    cluster.catch_up()
    _run(cluster, 60_000, every_ms=500)
    assert moved
    assert cluster.pops == []
