"""The replica: all decisions of one timer node, without clock, network or disk.

The shell passes in events and the time, and acts on the answers: it saves `take_changes`, sends
`take_messages`, queues `take_due` for calls, and sleeps until `wake_at`. Nodes send each other records, each
with the list of nodes that keep the timer. A node in the list holds the timer and waits for its turn; a node
that is not in it has been dismissed, and only remembers that for a while.

A timer whose turn has come is queued until its host can be called; then `begin` decides whether the call is
still wanted. While it is queued or under way, the node repeats that to the other replicas, which wait. A
change of the record by another node removes a queued timer from the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from chronoline.runtime.backoff import Backoff
from chronoline.timers.hybrid_clock import DEFAULT_BOUND_MS, HybridClock
from chronoline.timers.ids import TimerName
from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import TimerPlan
from chronoline.timers.scaling_rules import known_from, may_take, to_dismiss, to_inform
from chronoline.timers.tag_statistics import TagStatistics
from chronoline.timers.timer import MOVED_KEPT_MS, UNKNOWN_KEPT_MS, Timer, Version, later
from chronoline.timers.timer_heap import TimerHeap
from chronoline.timers.turns import SURE_STEP_MS, AskedTurn, Doubts

_LEAST_STEP_MS = 10
"""The shortest wait for which a node asks another."""
_FOLLOWING = 1_000
"""A version at most this far above the one that a node has counts as its successor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """The number of attempts of a callback, its time-out, and the treatment of missed pops."""

    most: int = 10
    timeout_ms: int = 2_000
    first_wait_ms: int = 500
    longest_wait_ms: int = 60_000
    # Skip missed pops; otherwise one call stands for all of them.
    skip_missed: bool = False

    def wait_ms(self, failed: int, jitter: float) -> int:
        """The wait after this many failures; `jitter`, from 0 to 1, shortens it by up to half."""
        backoff = Backoff(self.first_wait_ms, self.longest_wait_ms, spread=0.5)
        return int(backoff.wait(failed, jitter))


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback that is to be made, or made again."""

    timer: Timer
    plan: TimerPlan
    due_ms: int

    @property
    def name(self) -> str:
        """The name by which clients know the timer."""
        return str(TimerName(self.timer.id, factor=self.plan.factor))

    @property
    def sequence(self) -> int:
        """The number of the pop; the first is 1."""
        return self.timer.popped + 1


@dataclass(frozen=True, slots=True)
class Missed:
    """Pops of a timer that came too late to be called."""

    timer: Timer
    # The numbers of the first and the last one.
    first: int
    last: int


class SetAside(NamedTuple):
    """A timer that raised an error of its own: this node calls it no more until its record changes."""

    timer_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class TimerChange:
    """A client's change that no node holds yet, and the nodes that get it besides this one."""

    timer: Timer
    # The nodes that keep it from now on. If none of them takes it, nothing has changed.
    keepers: tuple[str, ...]
    # The nodes that kept it, or may have.
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer of a resync: a record with the new list of replicas, and the list before."""

    timer: Timer
    old: tuple[str, ...]


class Replica:
    """The timers of one node."""

    def __init__(
        self,
        me: str,
        membership: Membership,
        *,
        life: str,
        attempts: Attempts | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
        is_owed: Callable[[int], bool] = lambda _: False,
        may_ask: Callable[[str], bool] = lambda _: True,
        clock_bound_ms: int = DEFAULT_BOUND_MS,
    ) -> None:
        """`is_owed` says whether a node still lacks a record: until it has it, a deletion is remembered.

        `may_ask` says whether a node may answer questions about its turns.
        """
        self.me = me
        self._may_ask = may_ask
        self._doubts = Doubts()
        self._is_owed = is_owed
        self._clock = HybridClock(f"{me}/{life}", bound_ms=clock_bound_ms)
        self.attempts = attempts or Attempts()
        self._jitter = jitter
        self._timers: dict[int, Timer] = {}
        self._heap = TimerHeap()
        # Calls queued for their host, by the record that this node sent last. The heap has the moment at
        # which the others must hear that they are still queued.
        self._queued: dict[int, Timer] = {}
        # Calls under way: version and pop. The heap has the same kind of moment.
        self._calling: dict[int, tuple[Version, int]] = {}
        # The start of the node, and the end of its last downtime or standstill.
        self._started_ms = 0
        self._awake_ms = 0
        self._missed: list[Missed] = []
        self._set_aside: list[SetAside] = []
        # Timers that this node kept and has handed over.
        self._handed_over: set[int] = set()
        # Levels of the new list that know of a timer which this node is to give up.
        self._known: dict[int, frozenset[int]] = {}
        self._changed: dict[int, None] = {}
        self._messages: dict[str, dict[int, Timer]] = {}
        # Nodes that announced that they stop: this node does not wait for them.
        self._absent: frozenset[str] = frozenset()
        self._counts = TimerCounts(me)
        self.see(membership)

    def see(self, membership: Membership) -> None:
        """Takes a new list of nodes. Timers move when they pop, are changed or are requested."""
        self.membership = membership
        self._absent &= frozenset(membership.everybody)
        self._view = membership.view
        self._after = membership.after
        self._known.clear()

    # Held records.

    def __len__(self) -> int:
        return len(self._timers)

    def get(self, timer_id: int) -> Timer | None:
        return self._timers.get(timer_id)

    def ids(self) -> list[int]:
        """The ids of all held records, in order of arrival."""
        return list(self._timers)

    def some(self, before: int, number: int) -> Iterator[Timer]:
        """The newest `number` records among the `before` oldest ones, newest first."""
        newer = max(0, len(self._timers) - before)
        return islice(reversed(self._timers.values()), newer, newer + number)

    @property
    def tally(self) -> TimerCounts:
        return self._counts

    # Changes by clients.

    def change(
        self,
        timer_id: int,
        plan: TimerPlan | None,
        *,
        factor: int,
        at: Iterable[str],
        now_ms: int,
        wall_ms: int,
        above: int = 0,
    ) -> TimerChange:
        """A new version of a timer, or its deletion; `at` names further nodes that may have it.

        The version is higher than that of the record here, and higher than `above`.
        """
        mine = self._timers.get(timer_id)
        above = max(above, mine.version.number if mine else 0)
        new = replicas_of(timer_id, factor, self._after)
        timer = Timer(
            id=timer_id,
            version=self._clock.next(wall_ms, above=above),
            plan=plan,
            start_ms=now_ms,
            replicas=new,
            view=self._view,
            kept_ms=0 if plan else UNKNOWN_KEPT_MS,
        )
        old = replicas_of(timer_id, factor, self.membership.before)
        others = {*old, *at, *(mine.replicas if mine else ())} - {*new, self.me}
        keepers = tuple(node for node in new if node != self.me)
        return TimerChange(timer, keepers, tuple(sorted(others)))

    def saw(self, version: Version) -> None:
        """Notes a version of another node: the next one here is higher, if it is within the bound."""
        self._clock.saw(version)

    def problem(self, theirs: Timer, wall_ms: int) -> str | None:
        """The reason to refuse a record of another node: its version is too far ahead of the clock.

        One that follows the record here is taken: clocks that were ahead may have been set back since.
        """
        mine = self._timers.get(theirs.id)
        if mine is not None and theirs.version.number <= mine.version.number + _FOLLOWING:
            return None
        return self._clock.problem(theirs.version.number, wall_ms)

    def receive(self, theirs: Timer, now_ms: int) -> Timer:
        """Takes in a record of a client or another node; returns the record that is held after that."""
        self.saw(theirs.version)
        mine = self._timers.get(theirs.id)
        held = theirs if mine is None else later(mine, theirs, self._view)
        if held is not mine and not (
            mine is None and held.is_over and held.forgotten_ms() <= now_ms
        ):
            self._hold(held, now_ms)
            if mine is not None and mine.version != held.version and not mine.is_over:
                # The node that changed it may have known fewer nodes that keep it.
                for node in set(mine.replicas) - set(held.replicas):
                    self._message(node, held)
        return held

    # Due timers.

    def wake_at(self) -> int | None:
        """The next moment with something to do; None if there is nothing."""
        return self._heap.next_at()

    def started(self, now_ms: int) -> None:
        """The node was down until now."""
        self._started_ms = self._awake_ms = now_ms
        self._counts.tags.begin(now_ms)

    def awake(self, now_ms: int) -> None:
        """The node stood still until now, and has asked the others what they did meanwhile."""
        self._awake_ms = now_ms

    def take_due(self, now_ms: int, limit: int) -> list[Timer]:
        """Timers whose turn has come: to be queued, and given to `begin` when their host can be called.

        The others learn of calls that are not over, and records that are no longer needed are forgotten.
        """
        due: list[Timer] = []
        for timer_id in self._heap.take(now_ms, limit):
            try:
                timer = self._take_turn(timer_id, now_ms)
            except Exception as error:  # of one timer: the others pop
                self.set_aside(timer_id, error)
            else:
                due += () if timer is None else (timer,)
        return due

    def _take_turn(self, timer_id: int, now_ms: int) -> Timer | None:
        """The record of a timer that is to be queued now; None if there is nothing to call."""
        timer = self._timers[timer_id]
        if timer.plan is None and self._is_owed(timer_id):
            self._heap.put(timer_id, now_ms + UNKNOWN_KEPT_MS)
        elif timer.plan is None or timer.is_over or self.me not in timer.replicas:
            self._forget(timer_id, now_ms)
        elif self._is_ours(timer):
            self._renew(timer, timer.plan, now_ms)
        elif (turn_ms := self._turn_ms(timer)) > now_ms:
            self._heap.put(timer_id, turn_ms)  # an absent node is back
        elif (until_ms := self._in_doubt_until(timer, timer.plan, now_ms)) is not None:
            self._heap.put(timer_id, until_ms)
        elif (wanted := self._wanted(timer, timer.plan, now_ms)) is not None:
            self._queued[timer_id] = wanted
            self._look_after(wanted, timer.plan, now_ms)
            return wanted
        return None

    def set_aside(self, timer_id: int, error: Exception) -> None:
        """Leaves a timer that raised an error to its other nodes; its record and its file stay."""
        self._queued.pop(timer_id, None)
        self._calling.pop(timer_id, None)
        self._heap.remove(timer_id)
        self._set_aside.append(SetAside(timer_id, error))

    def take_set_aside(self) -> list[SetAside]:
        """The timers that were set aside since the last call."""
        taken, self._set_aside = self._set_aside, []
        return taken

    # Turns in doubt.

    def take_questions(self) -> dict[str, list[AskedTurn]]:
        """The turns to ask other nodes for since the last call, by node; see `turn_answered`."""
        return self._doubts.take_questions()

    def turn_answered(self, node: str, turn: AskedTurn, wait_ms: int | None, now_ms: int) -> None:
        """Notes the answer of a node: how long it asks for, or None if it does not make the call."""
        timer = self._timers.get(turn.timer_id)
        if (
            timer is None
            or timer.plan is None
            or timer.id not in self._heap
            or self._is_ours(timer)
        ):
            return
        limit_ms = self._doubt_limit_ms(timer, timer.plan)
        if wait_ms is None or now_ms >= limit_ms:
            if self._doubts.leaves_it(turn, node):
                self._heap.put(timer.id, now_ms)
        elif self._doubts.is_about(turn):
            self._doubts.end(timer.id)  # it is asked again
            self._heap.put(timer.id, min(now_ms + wait_ms, limit_ms))

    def answer_turn(self, asker: str, turn: AskedTurn, now_ms: int) -> Timer | int | None:
        """The answer to another node: the later record here, or how long it is to wait for this node.

        None if this node does not make the call. A timer that it does not know may be on its way.
        """
        timer = self._timers.get(turn.timer_id)
        if timer is None:
            return _LEAST_STEP_MS
        if (
            timer.plan is not None
            and timer.progress[:2] == turn.progress[:2]
            and self._is_ours(timer)
        ):
            self._renew(timer, timer.plan, now_ms)
            return self._timers[timer.id]
        if timer.progress > turn.progress:
            return timer
        if timer.plan is None or timer.is_over or not self._comes_before(asker, timer):
            return None
        step_ms = timer.plan.skew_ms(1, len(timer.replicas))
        return max(self._turn_ms(timer) - now_ms, 0) + max(step_ms, _LEAST_STEP_MS)

    def _comes_before(self, other: str, timer: Timer) -> bool:
        """Whether this node makes the next call of a timer before another; not if it was set aside here."""
        order = timer.replicas
        if timer.id not in self._heap or self.me not in order or other not in order:
            return False
        return order.index(self.me) < order.index(other)

    def _in_doubt_until(self, timer: Timer, plan: TimerPlan, now_ms: int) -> int | None:
        """The moment until which a turn waits for answers of the nodes before; None if there is no doubt."""
        if plan.skew_ms(1, len(timer.replicas)) >= SURE_STEP_MS:
            return None
        before = timer.replicas[: timer.replicas.index(self.me)]
        asked = [each for each in before if each not in self._absent and self._may_ask(each)]
        limit_ms = self._doubt_limit_ms(timer, plan)
        return self._doubts.open_until(timer, asked, limit_ms=limit_ms, now_ms=now_ms)

    def _doubt_limit_ms(self, timer: Timer, plan: TimerPlan) -> int:
        """Until then this node waits for those before it as they ask for it; after it, for calls alone."""
        level = timer.replicas.index(self.me) if self.me in timer.replicas else 0
        return timer.due_ms + timer.wait_ms + plan.doubt_ms(level, len(timer.replicas))

    # Calls.

    def begin(self, timer_id: int, now_ms: int) -> Callback | None:
        """The call of a queued timer whose host has a free place, or None if it is no longer wanted."""
        queued = self._queued.pop(timer_id, None)
        if queued is None or queued.plan is None:
            return None
        held = self._timers[timer_id]
        timer = self._wanted(held, queued.plan, now_ms, was_queued=True)
        if timer is None:
            return None
        self._calling[timer_id] = (timer.version, timer.popped)
        if timer is not held:
            self._look_after(timer, queued.plan, now_ms)
        return Callback(timer, queued.plan, timer.due_ms)

    def is_wanted(self, call: Callback, now_ms: int) -> bool:
        """Whether a call that is about to begin is still wanted."""
        timer = self._timers.get(call.timer.id)
        return (
            timer is not None
            and (timer.version, timer.popped) == (call.timer.version, call.timer.popped)
            and self.me in timer.replicas
            and not self._has_ended(timer, call.plan, now_ms)
        )

    def withdraw(self, call: Callback, now_ms: int) -> None:
        """Notes that a call was not made."""
        if self._is_calling(call):
            del self._calling[call.timer.id]
            if (timer := self._timers.get(call.timer.id)) is not None:
                self._hold(timer, now_ms)

    def leave_to_others(self, ids: Iterable[int], now_ms: int) -> None:
        """Gives up the calls that this node has not begun: the others need not wait for it."""
        for timer_id in ids:
            timer = self._timers.get(timer_id)
            if timer is not None and self._is_ours(timer):
                self._queued.pop(timer_id, None)
                self._calling.pop(timer_id, None)
                late_ms = max(now_ms - timer.due_ms, 0)
                left = timer.renew(step=2 * timer.attempts, wait_ms=late_ms)
                self._tell(left, left.replicas, now_ms)

    def may_cede(self, timer_id: int, node: str) -> bool:
        """Whether a queued timer may be ceded to a node: it keeps it too, and knows that it is queued."""
        timer = self._queued.get(timer_id)
        return (
            timer is not None
            and timer.renewed > 0
            and node in timer.replicas
            and node not in self._absent
        )

    def cede(self, ids: Iterable[int], now_ms: int) -> list[Timer]:
        """Removes timers from the queue, for another node to `take_over`. Returns their records.

        If no node does, this one's turn comes again after the wait that the records name.
        """
        ceded: list[Timer] = []
        for timer_id in ids:
            timer = self._queued.pop(timer_id, None)
            if timer is not None and timer.plan is not None:
                renewed, _ = self._renewed(self._timers[timer_id], timer.plan, now_ms)
                self._hold(renewed, now_ms)
                ceded.append(renewed)
        return ceded

    def take_over(self, timer: Timer, now_ms: int) -> bool:
        """Queues a ceded timer, if no newer record is known, and informs the others."""
        held = self.receive(timer, now_ms)
        if (
            held.plan is None
            or held.is_over
            or held.progress != timer.progress
            or self.me not in held.replicas
            or self._is_ours(held)
        ):
            return False
        self._queued[held.id] = held
        self._renew(held, held.plan, now_ms)
        return True

    def still_calling(self, call: Callback, now_ms: int) -> None:
        """Notes a callback that takes long: the others wait."""
        timer = self._timers.get(call.timer.id)
        if timer is not None and self._is_calling(call) and self._is_ours(timer):
            self._renew(timer, call.plan, now_ms)

    def called(self, call: Callback, now_ms: int, *, succeeded: bool) -> Timer | None:
        """Notes the end of a callback; returns the record after it, or None if the timer was changed."""
        timer_id = call.timer.id
        is_ours = self._is_calling(call)
        if is_ours:
            del self._calling[timer_id]
        timer = self._timers.get(timer_id)
        if timer is None or (timer.version, timer.popped) != (
            call.timer.version,
            call.timer.popped,
        ):
            if timer is not None and is_ours:
                self._hold(timer, now_ms)
            return None
        failed = max(timer.attempts, call.timer.attempts) + 1
        wait_ms = self.attempts.wait_ms(failed, self._jitter())
        is_last = now_ms + wait_ms > call.plan.last_call_ms(timer.start_ms)
        if succeeded or is_last or failed >= self.attempts.most:
            timer = timer.with_popped(timer.popped + 1)
        else:
            wait_ms += max(now_ms - timer.due_ms, 0)
            timer = replace(timer, step=2 * failed, wait_ms=wait_ms, renewed=0)
        old = timer.replicas
        if timer.view != self._view:
            timer = self._placed(timer, call.plan)
        self._tell(timer, (*old, *timer.replicas), now_ms)
        return timer

    def take_missed(self) -> list[Missed]:
        """The missed pops since the last call."""
        missed, self._missed = self._missed, []
        return missed

    def _wanted(
        self, timer: Timer, plan: TimerPlan, now_ms: int, *, was_queued: bool = False
    ) -> Timer | None:
        """The record for a call now; None if there is none to make.

        A pop is missed once the next one is due as well, unless it was tried before.
        """
        if self._has_ended(timer, plan, now_ms):
            self._miss(timer, plan.pops, now_ms)
            return None
        latest = plan.latest_pop(timer.start_ms, now_ms)
        if timer.attempts or latest <= timer.popped + 1:
            return timer
        is_skipped = self.attempts.skip_missed and not was_queued
        timer = self._miss(timer, latest if is_skipped else latest - 1, now_ms)
        if timer.is_over or (not was_queued and self._turn_ms(timer) > now_ms):
            return None
        return timer

    def _has_ended(self, timer: Timer, plan: TimerPlan, now_ms: int) -> bool:
        """Whether it is past its end; a timer that pops once and fell due during a downtime is not."""
        if now_ms <= plan.last_call_ms(timer.start_ms):
            return False
        return plan.pops > 1 or timer.attempts > 0 or timer.due_ms > self._awake_ms

    def _miss(self, timer: Timer, popped: int, now_ms: int) -> Timer:
        self._missed.append(Missed(timer, timer.popped + 1, popped))
        timer = timer.with_popped(popped)
        self._tell(timer, timer.replicas, now_ms)
        return timer

    def _turn_ms(self, timer: Timer) -> int:
        """The moment of this node's turn. Replicas that were all down and are back keep their order."""
        overdue_ms = self._started_ms - timer.due_ms - timer.wait_ms
        return timer.turn_ms(self.me, self._absent) + max(0, overdue_ms)

    def _look_after(self, timer: Timer, plan: TimerPlan, now_ms: int) -> None:
        """Schedules the notice of a call to the others before it is their turn; at once if it is."""
        half_step_ms = plan.skew_ms(1, len(timer.replicas)) // 2
        at_ms = min(now_ms, timer.due_ms + timer.wait_ms) + half_step_ms
        if len(timer.replicas) == 1:
            self._heap.remove(timer.id)
        elif at_ms > now_ms:
            self._heap.put(timer.id, at_ms)
        else:
            self._renew(timer, plan, now_ms)

    def _renew(self, timer: Timer, plan: TimerPlan, now_ms: int) -> None:
        """Informs the others that a call is queued or under way, and schedules the next notice."""
        timer, hold_ms = self._renewed(timer, plan, now_ms)
        if timer.id in self._queued:
            self._queued[timer.id] = timer
        # The turn of the next replica comes a step after the wait: repeat well before that.
        again_ms = max(hold_ms // 2, plan.skew_ms(1, len(timer.replicas)) // 4, 1)
        self._heap.put(timer.id, now_ms + again_ms)
        self._tell(timer, timer.replicas, now_ms)

    def _renewed(self, timer: Timer, plan: TimerPlan, now_ms: int) -> tuple[Timer, int]:
        """A record that makes the others wait from now on, and for how long."""
        late_ms = max(now_ms - timer.due_ms, 0)
        hold_ms = plan.hold_ms(late_ms, len(timer.replicas), self.attempts.timeout_ms)
        return timer.renew(step=timer.step | 1, wait_ms=late_ms + hold_ms), hold_ms

    def _is_ours(self, timer: Timer) -> bool:
        """Whether this node has queued or begun the next call of a timer."""
        return timer.id in self._queued or (
            self._calling.get(timer.id) == (timer.version, timer.popped)
        )

    def _is_calling(self, call: Callback) -> bool:
        return self._calling.get(call.timer.id) == (call.timer.version, call.timer.popped)

    def _placed(self, timer: Timer, plan: TimerPlan) -> Timer:
        replicas = replicas_of(timer.id, plan.factor, self._after)
        return replace(timer, replicas=replicas, view=self._view)

    # Nodes that stop and come back.

    def farewell(self, node: str, soon_ms: int) -> list[int]:
        """Notes that a node stops popping until it is `here`: this one does not wait for it.

        Returns the affected timers, those whose turn comes by `soon_ms` first. Pass them to `hurry`, in
        portions if they are many.
        """
        self._absent |= {node}
        return self._heap.sooner_first(soon_ms)

    def hurry(self, ids: Iterable[int]) -> None:
        """Moves the turn of timers as early as it may be by now."""
        for timer_id in ids:
            timer = self._timers.get(timer_id)
            if (
                timer is not None
                and timer_id in self._heap
                and self.me in timer.replicas
                and not timer.is_over
                and not self._is_ours(timer)
            ):
                self._heap.put(timer_id, self._turn_ms(timer))

    def is_absent(self, node: str) -> bool:
        return node in self._absent

    def here(self, node: str) -> None:
        """Notes that a stopped node is back, and pops again."""
        self._absent -= {node}

    # Moves when the cluster grows or shrinks.

    def offers(self, node: str, ids: Iterable[int]) -> Iterator[Offer]:
        """The timers among these that a node must keep and that were not moved already.

        Only a keeper knows the state of a timer: one that this node merely remembers may be long over.
        """
        for timer_id in ids:
            timer = self._timers.get(timer_id)
            if timer is None or timer.plan is None or timer.is_over or timer.view == self._view:
                continue
            if self.me not in timer.replicas:
                continue
            moved = self._placed(timer, timer.plan)
            if node in moved.replicas:
                yield Offer(moved, timer.replicas)

    def concerns(self, timer: Timer, node: str) -> bool:
        """Whether a node must know of a timer: it keeps it, by the list of the record or by the new one."""
        return node in timer.replicas or node in self.keepers(timer)

    def has_kept(self, timer: Timer) -> bool:
        """Whether this node keeps a timer, or kept this version of it and handed it over."""
        return self.me in timer.replicas or timer.id in self._handed_over

    def keepers(self, timer: Timer) -> tuple[str, ...]:
        """The nodes that must keep a timer by the present list; none if it was deleted."""
        if timer.plan is None:
            return ()
        return replicas_of(timer.id, timer.plan.factor, self._after)

    def take_offer(self, offer: Offer, now_ms: int) -> int | None:
        """Applies the first two rules to an offer; returns this node's new level if it took it.

        Once that is on disk here, and sent, `dismiss` does the rest.
        """
        old, new = offer.old, offer.timer.replicas
        if self.me not in new:
            return None
        if may_take(self.me, old, new):
            self.receive(offer.timer, now_ms)
        for node in to_inform(self.me, old, new):
            self._message(node, self._as_offered(offer))
        return new.index(self.me)

    def dismiss(self, offer: Offer) -> None:
        """Dismisses the former keepers of a timer, by the third rule, after `take_offer`."""
        if offer.timer.view == self._view:
            for node in to_dismiss(self.me, offer.old, offer.timer.replicas):
                self._message(node, self._as_offered(offer))

    def _as_offered(self, offer: Offer) -> Timer:
        """The known state of a timer, with the list of the offer."""
        mine = self._timers.get(offer.timer.id)
        return offer.timer if mine is None else later(mine, offer.timer, offer.timer.view)

    def take_own(self, ids: Iterable[int], now_ms: int) -> list[Offer]:
        """Deals with the timers among these whose first replica this node is and stays: no node offers them.

        A node that asked before has them by the new list; this one would otherwise use the old list.
        Returns the arguments for `dismiss`.
        """
        own = [
            offer
            for offer in self.offers(self.me, ids)
            if offer.old[0] == offer.timer.replicas[0] == self.me
        ]
        for offer in own:
            self.take_offer(offer, now_ms)
        return own

    def known_by(self, timer_id: int, level: int, now_ms: int) -> None:
        """Notes that a node of the new list has dealt with a timer; once all have, this node gives it up."""
        timer = self._timers.get(timer_id)
        if timer is None or timer.plan is None or timer.view == self._view:
            return
        replicas = replicas_of(timer_id, timer.plan.factor, self._after)
        known = self._known.get(timer_id, frozenset()) | known_from(level, len(replicas))
        if len(known) < len(replicas):
            self._known[timer_id] = known
        elif self.me not in replicas:
            self._known.pop(timer_id, None)
            self._hold(replace(timer, replicas=replicas, view=self._view), now_ms)

    def at_home(self, timer: Timer) -> Timer:
        """A record without living keepers, placed by the present list: addresses may change."""
        if timer.plan is None or not set(timer.replicas).isdisjoint(self.membership.everybody):
            return timer
        return self._placed(timer, timer.plan)

    def put_back(self, timer: Timer, now_ms: int, *, was_kept: bool = True) -> None:
        """Holds a record as it was saved, or with a more exact start."""
        self.saw(timer.version)
        self._hold(timer, now_ms)
        if was_kept and self.me not in timer.replicas:
            self._handed_over.add(timer.id)

    def touch(self, timer_id: int) -> None:
        """Marks a timer to be saved again, since its other data has changed."""
        self._changed[timer_id] = None

    def inform_others(self, timer_id: int, known: Set[str]) -> None:
        """Sends a timer to its keepers that are not `known` to have it."""
        timer = self._timers[timer_id]
        for node in timer.replicas:
            if node not in known:
                self._message(node, timer)

    def give_up(self, timer_id: int, now_ms: int) -> None:
        """Ends a timer that another node once had and has no longer: it is over."""
        if timer_id in self._timers:
            self._forget(timer_id, now_ms)

    # Work for the shell.

    def take_changes(self) -> list[tuple[int, Timer | None]]:
        """The changes to save since the last call; None means forget."""
        changed, self._changed = self._changed, {}
        return [(timer_id, self._timers.get(timer_id)) for timer_id in changed]

    def take_messages(self) -> dict[str, list[Timer]]:
        """The records to send since the last call, by node; of each timer the latest."""
        messages, self._messages = self._messages, {}
        return {node: list(timers.values()) for node, timers in messages.items()}

    @property
    def has_news(self) -> bool:
        """Whether there are messages to be sent."""
        return bool(self._messages)

    def _tell(self, timer: Timer, nodes: Iterable[str], now_ms: int) -> None:
        self._hold(timer, now_ms)
        for node in dict.fromkeys(nodes):
            self._message(node, timer)

    def _message(self, node: str, timer: Timer) -> None:
        if node != self.me:
            self._messages.setdefault(node, {})[timer.id] = timer

    def _hold(self, timer: Timer, now_ms: int) -> None:
        before = self._timers.get(timer.id)
        if self.me in timer.replicas or before is None or before.version != timer.version:
            self._handed_over.discard(timer.id)
        elif self.me in before.replicas:
            self._handed_over.add(timer.id)
        if not timer.only_renews(before):
            self._counts.changed(before, timer, now_ms)
            self._changed[timer.id] = None
        self._timers[timer.id] = timer
        queued = self._queued.get(timer.id)
        if queued is not None and (
            queued.progress != timer.progress or self.me not in timer.replicas
        ):
            del self._queued[timer.id]
        if timer.is_over:
            self._heap.put(timer.id, timer.forgotten_ms())
        elif self.me not in timer.replicas:
            self._heap.put(timer.id, min(timer.forgotten_ms(), now_ms + MOVED_KEPT_MS))
        elif self._is_ours(timer):
            if len(timer.replicas) == 1:
                self._heap.remove(timer.id)
            elif timer.id not in self._heap:
                self._heap.put(timer.id, now_ms)
        else:
            self._heap.put(timer.id, self._turn_ms(timer))

    def _forget(self, timer_id: int, now_ms: int) -> None:
        timer = self._timers.pop(timer_id)
        self._counts.changed(timer, None, now_ms)
        self._handed_over.discard(timer_id)
        self._changed[timer_id] = None
        self._known.pop(timer_id, None)
        self._queued.pop(timer_id, None)
        self._doubts.end(timer_id)
        self._heap.remove(timer_id)


class TimerCounts:
    """The number of waiting timers, in all and by tag."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.waiting = 0
        # The timers of which this node is the first replica.
        self.primary = 0
        self.tags = TagStatistics()

    def changed(self, before: Timer | None, after: Timer | None, now_ms: int) -> None:
        tagged: dict[str, int] = {}
        for timer, sign in ((before, -1), (after, 1)):
            if (
                timer is None
                or timer.plan is None
                or timer.is_over
                or self._me not in timer.replicas
            ):
                continue
            self.waiting += sign
            self.primary += sign * (timer.replicas[0] == self._me)
            for tag, count in timer.plan.tags:
                tagged[tag] = tagged.get(tag, 0) + sign * count
        for tag, added in tagged.items():
            if added:
                self.tags.add(tag, added, now_ms)
