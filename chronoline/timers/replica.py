"""What one node knows and decides: no clock, no network, no disk.

The shell around it passes in what happened and the time, and does what it is told: `take_changes` is to be
saved, `take_messages` to be sent, `take_due` to be queued for a call, until `wake_at`. Everything that nodes
tell each other is a record with the list of those who keep it. A node that finds itself in the list holds the
timer and waits for its turn; one that does not has been dismissed, and only remembers for a while that it
was.

A timer whose turn has come is queued until its host can be called; then `begin` decides whether it is still
to be called. While it is queued or under way the other replicas are told so again and again, and wait. A
change of the record that comes from another node takes a queued timer out of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from itertools import islice

from chronoline.runtime.backoff import Backoff
from chronoline.timers.hybrid_clock import DEFAULT_BOUND_MS, HybridClock
from chronoline.timers.ids import TimerName
from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import Plan
from chronoline.timers.rules import known_from, may_take, to_dismiss, to_tell
from chronoline.timers.tag_statistics import TagStatistics
from chronoline.timers.timer import MOVED_KEPT_MS, UNKNOWN_KEPT_MS, Timer, Version, later
from chronoline.timers.timer_heap import Wheel

_FOLLOWING = 1_000
"""A version that is no higher than this above the one that a node has follows that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often a callback is tried, how long it may take, and what becomes of pops that were missed."""

    most: int = 10
    timeout_ms: int = 2_000
    first_wait_ms: int = 500
    longest_wait_ms: int = 60_000
    # Pops that were missed are not called at all; otherwise one call is made for all of them.
    skip_missed: bool = False

    def wait_ms(self, failed: int, jitter: float) -> int:
        """The wait after this many failures; `jitter`, from 0 to 1, takes up to half of it away."""
        backoff = Backoff(self.first_wait_ms, self.longest_wait_ms, spread=0.5)
        return int(backoff.wait(failed, jitter))


@dataclass(frozen=True, slots=True)
class Call:
    """A callback that is to be made, or made again."""

    timer: Timer
    plan: Plan
    due_ms: int

    @property
    def name(self) -> str:
        """By which clients can ask for the timer."""
        return str(TimerName(self.timer.id, factor=self.plan.factor))

    @property
    def sequence(self) -> int:
        """The number of the pop; the first is 1."""
        return self.timer.popped + 1


@dataclass(frozen=True, slots=True)
class Missed:
    """Pops of a timer that are not called: it is too late for them."""

    timer: Timer
    # The numbers of the first and of the last one.
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Change:
    """A client's change, not yet held by anybody, and who is to be told of it besides this node."""

    timer: Timer
    # Those that are to keep it. If none of them takes it, nobody else is told: nothing has changed.
    keepers: tuple[str, ...]
    # Those that kept it, or may have.
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node tells another during a resync: a record with the new list, and the list before."""

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
        clock_bound_ms: int = DEFAULT_BOUND_MS,
    ) -> None:
        """`is_owed` says whether a node is still to be told of a timer: so long a deletion is remembered."""
        self.me = me
        self._is_owed = is_owed
        self._clock = HybridClock(f"{me}/{life}", bound_ms=clock_bound_ms)
        self.attempts = attempts or Attempts()
        self._jitter = jitter
        self._timers: dict[int, Timer] = {}
        self._wheel = Wheel()
        # Calls that wait for a turn at their host, by the record that this node told last. In the wheel is
        # when the others are to hear that it still waits.
        self._queued: dict[int, Timer] = {}
        # Calls under way: version and pop. The wheel has the same.
        self._calling: dict[int, tuple[Version, int]] = {}
        # When the node started, and when it last was down or stood still.
        self._started_ms = 0
        self._awake_ms = 0
        self._missed: list[Missed] = []
        # Timers that this node kept, and has handed over to others.
        self._handed_over: set[int] = set()
        # Levels of the new list that know of a timer which this node is to give up.
        self._known: dict[int, frozenset[int]] = {}
        self._changed: dict[int, None] = {}
        self._messages: dict[str, dict[int, Timer]] = {}
        # Nodes that said that they stop: nobody waits for them.
        self._absent: frozenset[str] = frozenset()
        self._tally = Tally(me)
        self.see(membership)

    def see(self, membership: Membership) -> None:
        """Takes a new list of nodes. Timers move when they pop, are changed or are asked for."""
        self.membership = membership
        self._absent &= frozenset(membership.everybody)
        self._view = membership.view
        self._after = membership.after
        self._known.clear()

    # What is held.

    def __len__(self) -> int:
        return len(self._timers)

    def get(self, timer_id: int) -> Timer | None:
        return self._timers.get(timer_id)

    def ids(self) -> list[int]:
        """Of everything that is held, in the order in which it came."""
        return list(self._timers)

    def some(self, before: int, number: int) -> Iterator[Timer]:
        """So many of everything that is held, the newest first, of the `before` oldest ones."""
        newer = max(0, len(self._timers) - before)
        return islice(reversed(self._timers.values()), newer, newer + number)

    @property
    def tally(self) -> Tally:
        return self._tally

    # What a client wants.

    def change(
        self,
        timer_id: int,
        plan: Plan | None,
        *,
        factor: int,
        at: Iterable[str],
        now_ms: int,
        wall_ms: int,
        above: int = 0,
    ) -> Change:
        """A new version of a timer, or its deletion; `at` are nodes at which it may be besides.

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
        return Change(timer, keepers, tuple(sorted(others)))

    def saw(self, version: Version) -> None:
        """Somebody has this version: the next one here is higher, if it is within the bound of the clock."""
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
        """Takes in a record, of a client or of another node; answers what is held after that."""
        self.saw(theirs.version)
        mine = self._timers.get(theirs.id)
        held = theirs if mine is None else later(mine, theirs, self._view)
        if held is not mine and not (
            mine is None and held.is_over and held.forgotten_ms() <= now_ms
        ):
            self._hold(held, now_ms)
            if mine is not None and mine.version != held.version and not mine.is_over:
                # Whoever changed it may have known of fewer nodes that keep it.
                for node in set(mine.replicas) - set(held.replicas):
                    self._message(node, held)
        return held

    # What is due.

    def wake_at(self) -> int | None:
        """When there is next something to do; None if there is nothing."""
        return self._wheel.next_at()

    def started(self, now_ms: int) -> None:
        """The node was down until now."""
        self._started_ms = self._awake_ms = now_ms
        self._tally.tags.begin(now_ms)

    def awake(self, now_ms: int) -> None:
        """The node stood still until now, and has asked the others what they did meanwhile."""
        self._awake_ms = now_ms

    def take_due(self, now_ms: int, limit: int) -> list[Timer]:
        """Timers whose turn has come: to be queued, and given to `begin` when their host can be called.

        The others hear of calls that are not over, and what need not be remembered any longer is forgotten.
        """
        due: list[Timer] = []
        for timer_id in self._wheel.take(now_ms, limit):
            timer = self._timers[timer_id]
            if timer.plan is None and self._is_owed(timer_id):
                self._wheel.put(timer_id, now_ms + UNKNOWN_KEPT_MS)
            elif timer.plan is None or timer.is_over or self.me not in timer.replicas:
                self._forget(timer_id, now_ms)
            elif self._is_ours(timer):
                self._renew(timer, timer.plan, now_ms)
            elif (turn_ms := self._turn_ms(timer)) > now_ms:
                self._wheel.put(timer_id, turn_ms)  # one that was absent is there again
            elif (wanted := self._wanted(timer, timer.plan, now_ms)) is not None:
                self._queued[timer_id] = wanted
                self._look_after(wanted, timer.plan, now_ms)
                due.append(wanted)
        return due

    def begin(self, timer_id: int, now_ms: int) -> Call | None:
        """The host of a queued timer can be called: the call, or None if it is not wanted any more."""
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
        return Call(timer, queued.plan, timer.due_ms)

    def is_wanted(self, call: Call, now_ms: int) -> bool:
        """Whether a call that is about to be made is still to be made."""
        timer = self._timers.get(call.timer.id)
        return (
            timer is not None
            and (timer.version, timer.popped) == (call.timer.version, call.timer.popped)
            and self.me in timer.replicas
            and not self._has_ended(timer, call.plan, now_ms)
        )

    def withdraw(self, call: Call, now_ms: int) -> None:
        """A call was not made, and nothing follows from it."""
        if self._is_calling(call):
            del self._calling[call.timer.id]
            if (timer := self._timers.get(call.timer.id)) is not None:
                self._hold(timer, now_ms)

    def leave_to_others(self, ids: Iterable[int], now_ms: int) -> None:
        """Timers whose call this node has not begun, and is not going to: the others need not wait for it."""
        for timer_id in ids:
            timer = self._timers.get(timer_id)
            if timer is not None and self._is_ours(timer):
                self._queued.pop(timer_id, None)
                self._calling.pop(timer_id, None)
                late_ms = max(now_ms - timer.due_ms, 0)
                left = timer.renew(step=2 * timer.attempts, wait_ms=late_ms)
                self._tell(left, left.replicas, now_ms)

    def may_cede(self, timer_id: int, node: str) -> bool:
        """Whether a queued timer may be left to a node: that keeps it too, and has heard that it waits."""
        timer = self._queued.get(timer_id)
        return (
            timer is not None
            and timer.renewed > 0
            and node in timer.replicas
            and node not in self._absent
        )

    def cede(self, ids: Iterable[int], now_ms: int) -> list[Timer]:
        """Takes timers out of the queue, for another node to `take_over`. Answers their records.

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
        """Queues a timer that was ceded, if nothing newer is known of it. The others are told."""
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

    def still_calling(self, call: Call, now_ms: int) -> None:
        """The callback takes its time: the others wait."""
        timer = self._timers.get(call.timer.id)
        if timer is not None and self._is_calling(call) and self._is_ours(timer):
            self._renew(timer, call.plan, now_ms)

    def called(self, call: Call, now_ms: int, *, succeeded: bool) -> Timer | None:
        """The callback is over. Answers the record after that; None if the timer was changed meanwhile."""
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
        """Pops that were missed since the last time."""
        missed, self._missed = self._missed, []
        return missed

    def _wanted(
        self, timer: Timer, plan: Plan, now_ms: int, *, was_queued: bool = False
    ) -> Timer | None:
        """The record by which a timer is to be called now; None if it is not.

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

    def _has_ended(self, timer: Timer, plan: Plan, now_ms: int) -> bool:
        """Past its end nothing is called, but what pops once and was due while this node was down."""
        if now_ms <= plan.last_call_ms(timer.start_ms):
            return False
        return plan.pops > 1 or timer.attempts > 0 or timer.due_ms > self._awake_ms

    def _miss(self, timer: Timer, popped: int, now_ms: int) -> Timer:
        self._missed.append(Missed(timer, timer.popped + 1, popped))
        timer = timer.with_popped(popped)
        self._tell(timer, timer.replicas, now_ms)
        return timer

    def _turn_ms(self, timer: Timer) -> int:
        """When it is this node's turn. Replicas that were all down and are back keep their order."""
        overdue_ms = self._started_ms - timer.due_ms - timer.wait_ms
        return timer.turn_ms(self.me, self._absent) + max(0, overdue_ms)

    def _look_after(self, timer: Timer, plan: Plan, now_ms: int) -> None:
        """Sees to it that the others hear of a call before it is their turn; at once if it is."""
        half_step_ms = plan.skew_ms(1, len(timer.replicas)) // 2
        at_ms = min(now_ms, timer.due_ms + timer.wait_ms) + half_step_ms
        if len(timer.replicas) == 1:
            self._wheel.remove(timer.id)
        elif at_ms > now_ms:
            self._wheel.put(timer.id, at_ms)
        else:
            self._renew(timer, plan, now_ms)

    def _renew(self, timer: Timer, plan: Plan, now_ms: int) -> None:
        """Tells the others that a call is queued or under way, and when they are to be told again."""
        timer, hold_ms = self._renewed(timer, plan, now_ms)
        if timer.id in self._queued:
            self._queued[timer.id] = timer
        # The turn of the next replica comes a step after the wait: again well before that.
        again_ms = max(hold_ms // 2, plan.skew_ms(1, len(timer.replicas)) // 4, 1)
        self._wheel.put(timer.id, now_ms + again_ms)
        self._tell(timer, timer.replicas, now_ms)

    def _renewed(self, timer: Timer, plan: Plan, now_ms: int) -> tuple[Timer, int]:
        """A record that has the others wait from now on, and how long."""
        late_ms = max(now_ms - timer.due_ms, 0)
        hold_ms = plan.hold_ms(late_ms, len(timer.replicas), self.attempts.timeout_ms)
        return timer.renew(step=timer.step | 1, wait_ms=late_ms + hold_ms), hold_ms

    def _is_ours(self, timer: Timer) -> bool:
        """Whether this node has queued or begun the next call of a timer."""
        return timer.id in self._queued or (
            self._calling.get(timer.id) == (timer.version, timer.popped)
        )

    def _is_calling(self, call: Call) -> bool:
        return self._calling.get(call.timer.id) == (call.timer.version, call.timer.popped)

    def _placed(self, timer: Timer, plan: Plan) -> Timer:
        replicas = replicas_of(timer.id, plan.factor, self._after)
        return replace(timer, replicas=replicas, view=self._view)

    # Nodes that stop in order, and come back.

    def farewell(self, node: str, soon_ms: int) -> list[int]:
        """A node pops no more until it is `here`: this one does not wait for it.

        Answers the timers for which that makes a difference, those of which the turn comes until `soon_ms`
        first: they are to be given to `hurry`, not all at once if they are many.
        """
        self._absent |= {node}
        return self._wheel.sooner_first(soon_ms)

    def hurry(self, ids: Iterable[int]) -> None:
        """Makes the turn of timers come as early as it may by now."""
        for timer_id in ids:
            timer = self._timers.get(timer_id)
            if (
                timer is not None
                and timer_id in self._wheel
                and self.me in timer.replicas
                and not timer.is_over
                and not self._is_ours(timer)
            ):
                self._wheel.put(timer_id, self._turn_ms(timer))

    def is_absent(self, node: str) -> bool:
        return node in self._absent

    def here(self, node: str) -> None:
        """A node that said farewell is back, and pops again."""
        self._absent -= {node}

    # What moves when the cluster grows or shrinks.

    def offers(self, node: str, ids: Iterable[int]) -> Iterator[Offer]:
        """Of these timers, those that a node is to keep and that were not moved already.

        Only whoever keeps a timer knows how it stands: what this node merely remembers may be long over.
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
        """Whether a node is to know of a timer: it keeps it, by the list of the record or by the new one."""
        return node in timer.replicas or node in self.keepers(timer)

    def has_kept(self, timer: Timer) -> bool:
        """Whether this node keeps a timer, or kept this version of it and handed it over."""
        return self.me in timer.replicas or timer.id in self._handed_over

    def keepers(self, timer: Timer) -> tuple[str, ...]:
        """Those who are to keep a timer by the present list; nobody if it was deleted."""
        if timer.plan is None:
            return ()
        return replicas_of(timer.id, timer.plan.factor, self._after)

    def take_offer(self, offer: Offer, now_ms: int) -> int | None:
        """Does by the first two rules what may be done; answers this node's new level if it dealt with it.

        Once that is on disk here, and told, `dismiss` does the rest.
        """
        old, new = offer.old, offer.timer.replicas
        if self.me not in new:
            return None
        if may_take(self.me, old, new):
            self.receive(offer.timer, now_ms)
        for node in to_tell(self.me, old, new):
            self._message(node, self._as_offered(offer))
        return new.index(self.me)

    def dismiss(self, offer: Offer) -> None:
        """Tells those that keep a timer no more, by the third rule, after `take_offer`."""
        if offer.timer.view == self._view:
            for node in to_dismiss(self.me, offer.old, offer.timer.replicas):
                self._message(node, self._as_offered(offer))

    def _as_offered(self, offer: Offer) -> Timer:
        """The known state of a timer, with the list of the offer."""
        mine = self._timers.get(offer.timer.id)
        return offer.timer if mine is None else later(mine, offer.timer, offer.timer.view)

    def take_own(self, ids: Iterable[int], now_ms: int) -> list[Offer]:
        """Of these timers, those whose first replica this node is and stays: nobody else offers it them.

        A node that asked before has them by the new list; without this it would go by the old one. Answers
        what is to be given to `dismiss`.
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
        """A node of the new list has dealt with a timer; once all know it, this node gives it up."""
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
        """A record of which nobody is left that kept it, as the present list has it: addresses may change."""
        if timer.plan is None or not set(timer.replicas).isdisjoint(self.membership.everybody):
            return timer
        return self._placed(timer, timer.plan)

    def put_back(self, timer: Timer, now_ms: int, *, was_kept: bool = True) -> None:
        """Holds a record as it was saved, or with a start that somebody knows better."""
        self.saw(timer.version)
        self._hold(timer, now_ms)
        if was_kept and self.me not in timer.replicas:
            self._handed_over.add(timer.id)

    def touch(self, timer_id: int) -> None:
        """Has a timer saved again: what is noted beside it has changed."""
        self._changed[timer_id] = None

    def tell_others(self, timer_id: int, known: Set[str]) -> None:
        """Tells of a timer those that are to keep it and are not `known` to have it."""
        timer = self._timers[timer_id]
        for node in timer.replicas:
            if node not in known:
                self._message(node, timer)

    def give_up(self, timer_id: int, now_ms: int) -> None:
        """Another node once had the timer and has it no more: it is over."""
        if timer_id in self._timers:
            self._forget(timer_id, now_ms)

    # What the shell is to do.

    def take_changes(self) -> list[tuple[int, Timer | None]]:
        """What is to be saved since the last time; None is what is to be forgotten."""
        changed, self._changed = self._changed, {}
        return [(timer_id, self._timers.get(timer_id)) for timer_id in changed]

    def take_messages(self) -> dict[str, list[Timer]]:
        """What is to be told to whom since the last time; of each timer the latest."""
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
            self._tally.changed(before, timer, now_ms)
            self._changed[timer.id] = None
        self._timers[timer.id] = timer
        queued = self._queued.get(timer.id)
        if queued is not None and (
            queued.progress != timer.progress or self.me not in timer.replicas
        ):
            del self._queued[timer.id]
        if timer.is_over:
            self._wheel.put(timer.id, timer.forgotten_ms())
        elif self.me not in timer.replicas:
            self._wheel.put(timer.id, min(timer.forgotten_ms(), now_ms + MOVED_KEPT_MS))
        elif self._is_ours(timer):
            if len(timer.replicas) == 1:
                self._wheel.remove(timer.id)
            elif timer.id not in self._wheel:
                self._wheel.put(timer.id, now_ms)
        else:
            self._wheel.put(timer.id, self._turn_ms(timer))

    def _forget(self, timer_id: int, now_ms: int) -> None:
        timer = self._timers.pop(timer_id)
        self._tally.changed(timer, None, now_ms)
        self._handed_over.discard(timer_id)
        self._changed[timer_id] = None
        self._known.pop(timer_id, None)
        self._queued.pop(timer_id, None)
        self._wheel.remove(timer_id)


class Tally:
    """How many timers wait, and how many of each tag."""

    def __init__(self, me: str) -> None:
        self._me = me
        self.waiting = 0
        # Of these, those that this node is the first to pop.
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
