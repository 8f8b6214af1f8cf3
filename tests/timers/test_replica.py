"""The decisions of replicas, in simulated time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import TimerPlan
from chronoline.timers.replica import Attempts, Callback, Replica
from tests.timers.simulated import WALL_CLOCKS_MS, Simulation

_ID = 7


def _plan(interval_ms: int = 10_000, pops: int = 1, factor: int = 2, label: str = "x") -> TimerPlan:
    return TimerPlan(
        interval_ms=interval_ms,
        repeat_for_ms=interval_ms * pops,
        uri="http://client/",
        opaque=label,
        factor=factor,
    )


def _cluster(
    plan: TimerPlan, *, attempts: Attempts | None = None
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


def _begun(replica: Replica, now_ms: int) -> Callback:
    """The call of the timer, whose turn has come."""
    (timer,) = replica.take_due(now_ms, 10)
    call = replica.begin(timer.id, now_ms)
    assert call is not None
    return call


def test_first_replica_pops_and_informs_the_others() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=3, factor=3))
    _run(cluster, 60_000, every_ms=10)
    assert [(pop.node, pop.sequence) for pop in cluster.pops] == [(nodes[0], n) for n in (1, 2, 3)]
    assert [pop.at_ms - asked_ms for pop in cluster.pops] == [10_000, 20_000, 30_000]
    assert all(cluster.nodes[node].replica.tally.waiting == 0 for node in nodes)


def test_backup_of_a_dead_replica_pops_after_its_skew() -> None:
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
def test_timer_pops_within_twice_its_interval(
    interval_ms: int, factor: int, dead: int, clocks: list[str]
) -> None:
    """A timer pops within twice its interval, a short one as well, if one of its replicas lives."""
    plan = _plan(interval_ms, factor=factor)
    cluster, nodes, asked_ms = _cluster(plan)
    for node in nodes[: min(dead, factor - 1)]:
        cluster.kill(node)
    cluster.advance(asked_ms + 2 * interval_ms)
    assert cluster.pops
    assert all(interval_ms <= pop.at_ms - asked_ms <= 2 * interval_ms for pop in cluster.pops)
    assert {(pop.timer_id, pop.sequence) for pop in cluster.pops} == {(_ID, 1)}
    del clocks


def test_repeatedly_frozen_backup_still_pops() -> None:
    cluster, nodes, asked_ms = _cluster(_plan())
    cluster.kill(nodes[0])
    backup = cluster.nodes[nodes[1]].replica
    for _ in range(40):
        _run(cluster, 500, every_ms=10)
        backup.awake(cluster.now_of(nodes[1]))
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[1], 12_000)]


def test_backups_do_not_wait_for_a_stopped_node() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=2, factor=3))
    cluster.leave(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[1], 10_000)]
    cluster.leave(nodes[1])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops[1:]] == [(nodes[2], 20_000)]


def test_restarted_node_pops_alone_again() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(factor=3))
    cluster.leave(nodes[0])
    _run(cluster, 5_000, every_ms=10)
    cluster.start(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[0], 10_000)]


def test_backup_waits_for_a_node_that_died_after_restart() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(factor=2))
    cluster.leave(nodes[0])
    cluster.start(nodes[0])
    cluster.kill(nodes[0])
    _run(cluster, 15_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms) for pop in cluster.pops] == [(nodes[1], 12_000)]


def test_timer_without_interval_pops_once_at_once() -> None:
    cluster, nodes, asked_ms = _cluster(
        TimerPlan(interval_ms=0, repeat_for_ms=0, uri="u", opaque="x", factor=2)
    )
    _run(cluster, 30_000, every_ms=10)
    assert [(pop.node, pop.at_ms - asked_ms, pop.sequence) for pop in cluster.pops] == [
        (nodes[0], 0, 1)
    ]


def test_timer_that_ends_before_its_pop_never_pops() -> None:
    plan = TimerPlan(interval_ms=5_000, repeat_for_ms=4_999, uri="u", opaque="x", factor=2)
    cluster, _, _ = _cluster(plan)
    _run(cluster, 30_000, every_ms=100)
    assert cluster.pops == []


def test_replaced_timer_pops_by_its_new_plan() -> None:
    cluster, _, asked_ms = _cluster(_plan(label="old"))
    cluster.advance(asked_ms + 4_000)
    assert cluster.change("b", _ID, _plan(20_000, label="new"), factor=2)
    _run(cluster, 60_000, every_ms=10)
    assert [(pop.opaque, pop.at_ms - asked_ms, pop.sequence) for pop in cluster.pops] == [
        ("new", 24_000, 1)
    ]


@pytest.mark.parametrize("away_ms", [1_000, 8_000, 15_000, 1_200_000, 8_000_000])
@pytest.mark.parametrize("place", [0, 1])
def test_deletion_during_an_outage_is_final(away_ms: int, place: int) -> None:
    """It does not come back, also if the others have forgotten it meanwhile: they had confirmed it once."""
    cluster, nodes, _ = _cluster(_plan())
    cluster.kill(nodes[place])
    alive = nodes[1 - place]
    assert cluster.change(alive, _ID, None, factor=2)
    cluster.advance(cluster.now_ms + away_ms)
    cluster.start(nodes[place])
    _run(cluster, 60_000, every_ms=100)
    assert cluster.pops == []


def _all_down_for(cluster: Simulation, ms: int) -> None:
    for node in "abc":
        cluster.kill(node)
    cluster.advance(cluster.now_ms + ms)
    for node in "abc":
        cluster.start(node)


def test_single_pop_missed_by_all_is_called_once() -> None:
    cluster, _, _ = _cluster(_plan())
    _all_down_for(cluster, 3_600_000)
    _run(cluster, 60_000, every_ms=10)
    assert {pop.sequence for pop in cluster.pops} == {1}


def test_single_pop_missed_by_all_is_not_retried() -> None:
    cluster, nodes, _ = _cluster(_plan())
    _all_down_for(cluster, 3_600_000)
    tried: list[str] = []
    cluster.on_call = lambda node, _: tried.append(node)
    cluster.answers = False
    _run(cluster, 60_000, every_ms=10)
    assert tried == [nodes[0]]


def test_repeated_timer_ends_during_a_full_outage() -> None:
    cluster, nodes, _ = _cluster(_plan(pops=2))
    _all_down_for(cluster, 3_600_000)
    _run(cluster, 60_000, every_ms=10)
    assert cluster.pops == []
    assert cluster.missed == {("x", 1), ("x", 2)}
    assert all(cluster.nodes[node].replica.tally.waiting == 0 for node in nodes)


def test_missed_pops_are_caught_up_with_one_call() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(interval_ms=1_000, pops=10))
    _run(cluster, 2_500, every_ms=10)
    _all_down_for(cluster, 4_000)
    _run(cluster, 10_000, every_ms=10)
    called = [(pop.node, pop.sequence, pop.at_ms - asked_ms) for pop in cluster.pops]
    at_ms = [(1, 1_000), (2, 2_000), (6, 6_500), *((n, n * 1_000) for n in (7, 8, 9, 10))]
    assert called == [(nodes[0], *each) for each in at_ms]
    assert cluster.missed == {("x", n) for n in (3, 4, 5)}


def test_missed_pops_are_skipped_where_that_is_set() -> None:
    attempts = Attempts(skip_missed=True)
    cluster, _, asked_ms = _cluster(_plan(interval_ms=1_000, pops=10), attempts=attempts)
    _run(cluster, 2_500, every_ms=10)
    _all_down_for(cluster, 4_000)
    _run(cluster, 10_000, every_ms=10)
    assert [pop.at_ms - asked_ms for pop in cluster.pops] == [
        n * 1_000 for n in (1, 2, 7, 8, 9, 10)
    ]
    assert cluster.missed == {("x", n) for n in (3, 4, 5, 6)}


@pytest.mark.parametrize("skip_missed", [False, True])
@pytest.mark.parametrize(("interval_ms", "pops"), [(1_000, 60), (30_000, 1), (20_000, 3), (10, 1)])
def test_dead_receiver_is_not_called_past_the_end(
    interval_ms: int, pops: int, skip_missed: bool
) -> None:
    """Once a deletion is answered, the old timer is not called, whatever retries wait."""
    cluster, nodes, asked_ms = _cluster(
        _plan(interval_ms, pops), attempts=Attempts(skip_missed=skip_missed)
    )
    tried_ms: list[int] = []
    cluster.on_call = lambda _, __: tried_ms.append(cluster.now_ms)
    cluster.answers = False
    end_ms = asked_ms + interval_ms * pops + max(interval_ms, 10_000)
    _run(cluster, 2 * (end_ms - asked_ms), every_ms=10)
    assert tried_ms
    assert max(tried_ms) <= end_ms
    assert all(cluster.nodes[node].replica.tally.waiting == 0 for node in nodes)


def test_receiver_that_recovers_does_not_get_a_burst() -> None:
    cluster, _, asked_ms = _cluster(_plan(interval_ms=1_000, pops=60))
    cluster.answers = False
    _run(cluster, 40_000, every_ms=10)
    cluster.answers = True
    _run(cluster, 60_000, every_ms=10)
    at_ms = [pop.at_ms - asked_ms for pop in cluster.pops]
    assert at_ms
    # One for the pop that was tried again, one for those that were missed meanwhile, then on the beat.
    assert all(later - earlier >= 500 for earlier, later in pairwise(at_ms[1:]))


def test_failing_callback_is_retried_by_one_node() -> None:
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


def test_backup_continues_the_attempts_of_a_dead_node() -> None:
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
    call = _begun(first, now_ms)
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


def test_timer_deleted_during_its_call_stays_deleted() -> None:
    cluster, nodes, asked_ms = _cluster(_plan(pops=5))
    first = cluster.nodes[nodes[0]].replica
    now_ms = asked_ms + 10_000 + cluster.nodes[nodes[0]].offset_ms
    call = _begun(first, now_ms)
    assert cluster.change("b", _ID, None, factor=2)
    assert first.called(call, now_ms + 5, succeeded=True) is None
    _run(cluster, 100_000, every_ms=100)
    assert cluster.pops == []


def test_later_of_two_changes_wins_everywhere() -> None:
    cluster, nodes, _ = _cluster(_plan(label="one"))
    assert cluster.change("c", _ID, _plan(label="two"), factor=2)
    assert cluster.change("b", _ID, _plan(label="three"), factor=2)
    held = {cluster.nodes[node].replica.get(_ID).plan.opaque for node in nodes}  # type: ignore[union-attr]  # it is held
    assert held == {"three"}


def test_deletion_by_joining_nodes_wins_over_absent_keepers() -> None:
    """A deleted timer does not come back."""
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


def _slow_cluster(timers: int, *, interval_ms: int = 10_000, takes_ms: int = 1_000) -> Simulation:
    """Three nodes with one call at a time to a receiver that is slow, and timers that are due together."""
    cluster = Simulation("abc", calls_at_once=1)
    cluster.takes_ms = takes_ms
    for number in range(timers):
        plan = _plan(interval_ms, label=str(number))
        assert cluster.change("a", number, plan, factor=2) == "all"
    return cluster


def _labels(cluster: Simulation) -> list[str]:
    return sorted(pop.opaque for pop in cluster.pops)


@pytest.mark.parametrize("interval_ms", [400, 1_000, 3_000, 20_000])
def test_queued_calls_are_made_once(interval_ms: int) -> None:
    cluster = _slow_cluster(20, interval_ms=interval_ms)
    _run(cluster, interval_ms + 15_000, every_ms=10)
    assert _labels(cluster) == sorted(map(str, range(20)))


def test_backups_wait_for_a_running_call() -> None:
    cluster = _slow_cluster(4, interval_ms=2_000, takes_ms=9_000)
    _run(cluster, 30_000, every_ms=10)
    assert len(set(_labels(cluster))) == len(cluster.pops)


def test_slow_receiver_is_not_called_past_the_end() -> None:
    """Once a deletion or a replacement is answered, the old timer is not called."""
    cluster = _slow_cluster(60, interval_ms=1_000)
    end_ms = cluster.now_ms + 1_000 + 10_000
    _run(cluster, 40_000, every_ms=10)
    assert max(pop.at_ms for pop in cluster.pops) <= end_ms
    assert len(cluster.pops) + len(cluster.missed) == 60
    assert len(cluster.missed) >= 20


def test_deleted_timer_is_not_called_when_its_turn_comes() -> None:
    """Once a deletion or a replacement is answered, the old timer is not called."""
    cluster = _slow_cluster(12)
    _run(cluster, 10_500, every_ms=10)
    begun = _labels(cluster)
    for number in range(12):
        assert cluster.change("b", number, None, factor=2) == "all"
    _run(cluster, 60_000, every_ms=10)
    assert _labels(cluster) == begun
    assert len(begun) <= 3


def test_queued_timer_is_called_by_its_new_plan() -> None:
    """Once a deletion or a replacement is answered, the old timer is not called."""
    cluster = _slow_cluster(12)
    _run(cluster, 10_500, every_ms=10)
    begun = _labels(cluster)
    cluster.takes_ms = 0
    for number in range(12):
        assert cluster.change("b", number, _plan(label=f"new {number}"), factor=2) == "all"
    _run(cluster, 60_000, every_ms=10)
    assert _labels(cluster) == sorted([*begun, *(f"new {number}" for number in range(12))])


def test_deleted_timer_is_not_retried() -> None:
    cluster = _slow_cluster(12)
    cluster.answers = False
    tried: list[str] = []
    cluster.on_call = lambda _, call: tried.append(call.plan.opaque)
    _run(cluster, 13_500, every_ms=10)
    for number in range(12):
        assert cluster.change("b", number, None, factor=2) == "all"
    before = len(tried)
    _run(cluster, 60_000, every_ms=10)
    assert len(tried) == before


def test_backups_take_over_the_queue_of_a_dead_node() -> None:
    cluster = _slow_cluster(9, takes_ms=200)
    _run(cluster, 10_100, every_ms=10)
    queued = {name: len(node.queue) for name, node in cluster.nodes.items()}
    dies = max(queued, key=lambda name: queued[name])
    assert queued[dies] > 1
    cluster.kill(dies)
    _run(cluster, 10_000, every_ms=10)
    assert set(_labels(cluster)) == set(map(str, range(9)))


def test_leaving_node_hands_over_its_queue() -> None:
    cluster = _slow_cluster(12)
    _run(cluster, 12_500, every_ms=10)
    leaves = max(cluster.nodes, key=lambda name: len(cluster.nodes[name].queue))
    assert len(cluster.nodes[leaves].queue) > 1
    cluster.leave(leaves)
    handed_over_ms = cluster.now_ms
    _run(cluster, 1_010, every_ms=10)
    waiting = {name: len(cluster.nodes[name].queue) for name in cluster.nodes if name != leaves}
    assert len(cluster.pops) + sum(waiting.values()) >= 12
    _run(cluster, 20_000, every_ms=10)
    assert set(_labels(cluster)) == set(map(str, range(12)))
    assert len(cluster.pops) == 12, handed_over_ms


def _cede_the_longest(cluster: Simulation, **options: bool) -> tuple[str, str]:
    """The node with the longest queue leaves what it may to the one that keeps most of it."""
    one = max(cluster.nodes, key=lambda name: len(cluster.nodes[name].queue))
    other = min(cluster.nodes, key=lambda name: len(cluster.nodes[name].queue))
    before = len(cluster.nodes[one].queue)
    cluster.cede(one, other, **options)
    assert len(cluster.nodes[one].queue) < before
    return one, other


@pytest.mark.parametrize("interval_ms", [400, 1_000, 3_000, 20_000])
def test_ceded_calls_are_made_once(interval_ms: int) -> None:
    cluster = _slow_cluster(20, interval_ms=interval_ms)
    _run(cluster, interval_ms + 1_500, every_ms=10)
    _cede_the_longest(cluster)
    _run(cluster, 2_000, every_ms=10)
    _cede_the_longest(cluster)
    _run(cluster, 15_000, every_ms=10)
    assert _labels(cluster) == sorted(map(str, range(20)))


def test_ceded_calls_come_back_when_the_taker_dies() -> None:
    cluster = _slow_cluster(12, interval_ms=3_000, takes_ms=300)
    _run(cluster, 3_500, every_ms=10)
    _, other = _cede_the_longest(cluster)
    cluster.kill(other)
    _run(cluster, 12_000, every_ms=10)
    assert set(_labels(cluster)) == set(map(str, range(12)))


def test_ceded_timer_that_is_deleted_is_not_called() -> None:
    """Once a deletion or a replacement is answered, the old timer is not called."""
    cluster = _slow_cluster(20)
    _run(cluster, 11_500, every_ms=10)
    _cede_the_longest(cluster)
    begun = _labels(cluster)
    for number in range(20):
        assert cluster.change("b", number, None, factor=2) == "all"
    _run(cluster, 60_000, every_ms=10)
    assert _labels(cluster) == begun


def test_renewal_of_a_queued_call_is_not_written() -> None:
    cluster, nodes, asked_ms = _cluster(_plan())
    first, second = (cluster.nodes[node].replica for node in nodes)
    now_ms = asked_ms + 10_000 + cluster.nodes[nodes[0]].offset_ms
    call = _begun(first, now_ms)
    cluster.save(nodes[0])
    first.still_calling(call, now_ms + 1_000)
    assert first.take_changes() == []
    ((_, (told,)),) = first.take_messages().items()
    second.receive(replace(told, start_ms=asked_ms + cluster.nodes[nodes[1]].offset_ms), now_ms)
    assert second.take_changes() == []
    held = second.get(_ID)
    assert held is not None
    assert held.renewed == 1
