"""Random histories of networks, disks and operators: nothing is lost, early, or revived."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import TimerPlan
from chronoline.timers.replica import Attempts, Callback
from tests.timers.simulated import WALL_CLOCKS_MS, Simulation

_NAMES = ("a", "b", "c", "d", "e")
_IDS = st.integers(1, 6)
_INDEX = st.integers(0, 50)


class Histories(RuleBasedStateMachine):
    """A cluster of three to five nodes and a client that remembers its answers."""

    @initialize()
    def begin(self) -> None:
        attempts = Attempts(most=10_000, longest_wait_ms=2_000)
        self.cluster = Simulation(_NAMES[:3], attempts=attempts, calls_at_once=1)
        self.cluster.on_call = self._call_begins
        # The possible states of each timer: the last change that all keepers took and the later ones that
        # only some took. None is a deletion. Sides of a split network do not agree on which came last.
        self.wanted: dict[int, list[tuple[TimerPlan | None, int]]] = {}
        # The labels that were replaced or deleted everywhere and may not pop again.
        self.gone: set[str] = set()
        # By label, the nodes that answered that it was replaced or deleted.
        self.gone_at: dict[str, set[str]] = {}
        # Calls that were begun: labels and sequence numbers.
        self.tried: set[tuple[str, int]] = set()
        self.factors: dict[int, int] = {}
        self.labels = 0

    @rule(
        name=st.sampled_from(_NAMES),
        timer_id=_IDS,
        factor=st.integers(1, 3),
        interval_ms=st.sampled_from([50, 400, 1_000, 5_000, 30_000]),
        pops=st.integers(1, 3),
    )
    def create_or_replace(
        self, name: str, timer_id: int, factor: int, interval_ms: int, pops: int
    ) -> None:
        if name not in self.cluster.nodes:
            return
        factor = self.factors.setdefault(timer_id, factor)
        self.labels += 1
        plan = TimerPlan(
            interval_ms=interval_ms,
            repeat_for_ms=interval_ms * pops,
            uri="http://client/",
            opaque=f"{timer_id}/{self.labels}",
            factor=factor,
        )
        self._change(name, timer_id, plan)

    @rule(name=st.sampled_from(_NAMES), timer_id=_IDS)
    def delete(self, name: str, timer_id: int) -> None:
        if name in self.cluster.nodes and timer_id in self.factors:
            self._change(name, timer_id, None)

    def _change(self, name: str, timer_id: int, plan: TimerPlan | None) -> None:
        # Of two changes that nodes make without hearing of each other the later one wins, if it is later by
        # more than their clocks differ.
        self.cluster.advance(self.cluster.now_ms + WALL_CLOCKS_MS + 1)
        asked_ms = self.cluster.now_ms
        taken = self.cluster.change(name, timer_id, plan, factor=self.factors[timer_id])
        self._note_gone(timer_id, plan)
        if taken == "all":
            for old, _ in self.wanted.get(timer_id, []):
                if old is not None:
                    self.gone.add(old.opaque)
            self.wanted[timer_id] = []
        if taken:
            self.wanted.setdefault(timer_id, [(None, 0)]).append((plan, asked_ms))

    def _note_gone(self, timer_id: int, plan: TimerPlan | None) -> None:
        """The holders of the new timer have answered that the old ones are gone."""
        held = {
            name: timer
            for name, node in self.cluster.nodes.items()
            if node.is_up and (timer := node.replica.get(timer_id)) is not None
        }
        for old, _ in self.wanted.get(timer_id, []):
            if old is not None:
                knows = {name for name, timer in held.items() if timer.plan == plan}
                self.gone_at.setdefault(old.opaque, set()).update(knows)

    def _call_begins(self, name: str, call: Callback) -> None:
        """Once a change is answered, the old timer is not called, whatever waited in a queue."""
        assert name not in self.gone_at.get(call.plan.opaque, ()), f"{call} was changed"
        self.tried.add((call.plan.opaque, call.sequence))
        end_ms = call.timer.start_ms + call.plan.repeat_for_ms + max(call.plan.interval_ms, 10_000)
        if self.cluster.now_of(name) > end_ms:
            assert (call.plan.pops, call.timer.attempts) == (1, 0), f"{call} is past its end"

    @rule(name=st.sampled_from(_NAMES), pops=st.integers(1, 3))
    def all_are_due_at_once(self, name: str, pops: int) -> None:
        """At a client that is slow: most of them wait in queues."""
        self.cluster.takes_ms = 1_500
        for timer_id in range(1, 7):
            self.create_or_replace(name, timer_id, 2, 1_000, pops)
        self.cluster.advance(self.cluster.now_ms + 1_100)

    @rule(takes_ms=st.sampled_from([0, 30, 1_500]))
    def client_is_slow(self, takes_ms: int) -> None:
        self.cluster.takes_ms = takes_ms

    @rule(one=st.sampled_from(_NAMES), other=st.sampled_from(_NAMES), answers=st.booleans())
    def queue_is_shared(self, one: str, other: str, answers: bool) -> None:
        if one != other and self.cluster.reachable(one, other):
            self.cluster.cede(one, other, answers=answers)

    @rule(ms=st.sampled_from([1, 100, 700, 3_000, 20_000]))
    def time_passes(self, ms: int) -> None:
        self.cluster.advance(self.cluster.now_ms + ms)

    @precondition(lambda self: self.cluster.letters)
    @rule(index=_INDEX, twice=st.booleans())
    def letter_comes(self, index: int, twice: bool) -> None:
        self.cluster.deliver(index, twice=twice)

    @precondition(lambda self: self.cluster.letters)
    @rule(index=_INDEX)
    def letter_is_lost(self, index: int) -> None:
        self.cluster.lose(index)

    @rule()
    def links_catch_up(self) -> None:
        self.cluster.catch_up()

    @rule(one=st.sampled_from(_NAMES), other=st.sampled_from(_NAMES))
    def link_is_cut(self, one: str, other: str) -> None:
        if one != other:
            self.cluster.cut.add(frozenset((one, other)))

    @rule()
    def links_heal(self) -> None:
        self.cluster.cut.clear()
        self.cluster.catch_up()

    @rule(name=st.sampled_from(_NAMES))
    def node_is_killed(self, name: str) -> None:
        if name in self.cluster.nodes:
            self.cluster.kill(name)

    @rule(name=st.sampled_from(_NAMES))
    def node_leaves(self, name: str) -> None:
        if name in self.cluster.nodes and self.cluster.nodes[name].is_up:
            self.cluster.leave(name)

    @rule(name=st.sampled_from(_NAMES))
    def node_starts(self, name: str) -> None:
        if name in self.cluster.nodes and not self.cluster.nodes[name].is_up:
            self.cluster.start(name)

    @rule(answers=st.booleans())
    def client_answers(self, answers: bool) -> None:
        self.cluster.answers = answers

    @rule(size=st.integers(1, 2))
    def cluster_begins_to_grow(self, size: int) -> None:
        """New nodes are named as joining, and take changes while others are away."""
        names = self.cluster.membership.staying
        new = tuple(name for name in _NAMES if name not in names)[:size]
        if not self.cluster.membership.joining:
            self.cluster.see(Membership(names, joining=new))

    @rule(joins=st.booleans())
    def cluster_is_scaled(self, joins: bool) -> None:
        """As an operator does it: all are up, every node that stays resyncs, then the lists are made one."""
        self._all_is_well()
        names = self.cluster.membership.staying
        new = next((name for name in _NAMES if name not in names), None)
        if begun := self.cluster.membership.joining:
            after = (*names, *begun)
        elif joins and new is not None:
            self.cluster.see(Membership(names, joining=(new,)))
            after = (*names, new)
        elif len(names) > 1:
            self.cluster.see(Membership(names[1:], leaving=names[:1]))
            after = names[1:]
        else:
            return
        for name in after:
            self.cluster.resync(name)
            self._one_on_each_level()
        self.cluster.deliver_all()
        self.cluster.see(Membership(tuple(sorted(after))))
        for name in set(names) - set(after):
            self._holds_nothing(name)
            self.cluster.remove(name)
        for timer_id, factor in self.factors.items():
            expected = replicas_of(timer_id, factor, self.cluster.membership.after)
            holders = self._holders(timer_id)
            assert holders in (list(expected), [])
            for name in holders:
                timer = self.cluster.nodes[name].replica.get(timer_id)
                assert timer is not None
                assert timer.replicas == expected

    def _all_is_well(self) -> None:
        self.cluster.cut.clear()
        for name, node in self.cluster.nodes.items():
            if not node.is_up:
                self.cluster.start(name)
        self.cluster.catch_up()
        self.cluster.deliver_all()
        self.cluster.catch_up()

    def _holders(self, timer_id: int) -> list[str]:
        """Returns the nodes that would pop a timer, by level."""
        holders = []
        for name, node in self.cluster.nodes.items():
            timer = node.replica.get(timer_id)
            if timer is not None and not timer.is_over and name in timer.replicas:
                holders.append((timer.replicas.index(name), name))
        return [name for _, name in sorted(holders)]

    def _one_on_each_level(self) -> None:
        """Checks that a moving timer always has exactly one node of the first level."""
        self.cluster.deliver_all()
        for timer_id in self.factors:
            levels = []
            for name in self._holders(timer_id):
                timer = self.cluster.nodes[name].replica.get(timer_id)
                assert timer is not None
                levels.append(timer.replicas.index(name))
            assert not levels or (levels[0] == 0 and levels.count(0) == 1), (timer_id, levels)

    def _holds_nothing(self, name: str) -> None:
        for timer_id in self.cluster.nodes[name].replica.ids():
            timer = self.cluster.nodes[name].replica.get(timer_id)
            assert timer is not None
            assert timer.is_over or name not in timer.replicas

    @invariant()
    def nothing_is_early(self) -> None:
        for pop in self.cluster.pops:
            for plan, asked_ms in self.wanted.get(pop.timer_id, []):
                if plan is not None and plan.opaque == pop.opaque:
                    assert pop.at_ms >= asked_ms + pop.sequence * plan.interval_ms

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self._all_is_well()
        well_since_ms = self.cluster.now_ms
        self.cluster.answers = True
        self.cluster.takes_ms = 0
        for _ in range(400):
            self.cluster.advance(self.cluster.now_ms + 500)
            self.cluster.deliver_all()
            self.cluster.catch_up()
        settled = self.tried | self.cluster.missed
        for timer_id, candidates in self.wanted.items():
            assert any(
                plan is None or all((plan.opaque, n) in settled for n in range(1, plan.pops + 1))
                for plan, _ in candidates
            ), f"{timer_id} was lost"
        for pop in self.cluster.pops:
            assert pop.opaque not in self.gone or pop.at_ms <= well_since_ms, f"{pop} came back"


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
