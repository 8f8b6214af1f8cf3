"""What one node knows and decides: no clock, no network, no disk.

The shell around it passes in what happened and the time, and does what it is told: `take_changes` is to be
saved, `take_messages` to be sent, `take_calls` to be made, until `wake_at`. Everything that nodes tell each
other is a record with the list of those who keep it. A node that finds itself in the list holds the timer and
waits for its turn; one that does not has been dismissed, and only remembers for a while that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from itertools import islice

from chronoline.callbacks.waiting import wait_ms
from chronoline.timers.hybrid_clock import DEFAULT_BOUND_MS, HybridClock
from chronoline.timers.ids import TimerName
from chronoline.timers.membership import Membership, replicas_of
from chronoline.timers.plan import Plan
from chronoline.timers.rules import known_from, may_take, to_dismiss, to_tell
from chronoline.timers.tag_statistics import TagStatistics
from chronoline.timers.timer import MOVED_KEPT_MS, UNKNOWN_KEPT_MS, Timer, Version, later
from chronoline.timers.wheel import Wheel

_FOLLOWING = 1_000
"""A version that is no higher than this above the one that a node has follows that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often a callback is tried, and how long it may take."""

    most: int = 10
    timeout_ms: int = 2_000
    first_wait_ms: int = 500
    longest_wait_ms: int = 60_000

    def wait_ms(self, failed: int, jitter: float) -> int:
        """How long to wait after so many failures; `jitter`, from 0 to 1, takes up to half of it away."""
        first_ms, longest_ms = self.first_wait_ms, self.longest_wait_ms
        return wait_ms(failed, jitter, first_ms=first_ms, longest_ms=longest_ms)


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
        # What is being called: version and pop. Not in the wheel meanwhile.
        self._calling: dict[int, tuple[Version, int]] = {}
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

    def take_calls(self, now_ms: int, limit: int) -> list[Call]:
        """Callbacks whose turn has come. What need not be remembered any longer is forgotten."""
        calls: list[Call] = []
        for timer_id in self._wheel.take(now_ms, limit):
            timer = self._timers[timer_id]
            if timer.plan is None and self._is_owed(timer_id):
                self._wheel.put(timer_id, now_ms + UNKNOWN_KEPT_MS)
            elif timer.plan is None or timer.is_over or self.me not in timer.replicas:
                self._forget(timer_id, now_ms)
            elif (turn_ms := timer.turn_ms(self.me, self._absent)) > now_ms:
                self._wheel.put(timer_id, turn_ms)  # one that was absent is there again
            else:
                self._calling[timer_id] = (timer.version, timer.popped)
                calls.append(Call(timer, timer.plan, timer.due_ms))
        return calls

    def still_calling(self, call: Call, now_ms: int) -> None:
        """The callback takes its time: the others wait, but not longer than half an interval more."""
        timer = self._timers.get(call.timer.id)
        if timer is None or not self._is_calling(call) or timer.progress != call.timer.progress:
            return
        hold_ms = self.attempts.timeout_ms
        if call.plan.interval_ms:
            hold_ms = min(hold_ms, call.plan.interval_ms // 2)
        wait_ms = max(now_ms - timer.due_ms, 0) + hold_ms
        self._tell(replace(timer, step=timer.step | 1, wait_ms=wait_ms), timer.replicas, now_ms)

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
        if succeeded or failed >= self.attempts.most:
            timer = replace(timer, popped=timer.popped + 1, step=0, wait_ms=0)
        else:
            wait_ms = max(now_ms - timer.due_ms, 0) + self.attempts.wait_ms(failed, self._jitter())
            timer = replace(timer, step=2 * failed, wait_ms=wait_ms)
        old = timer.replicas
        if timer.view != self._view:
            timer = self._placed(timer, call.plan)
        self._tell(timer, (*old, *timer.replicas), now_ms)
        return timer

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
            ):
                self._wheel.put(timer_id, timer.turn_ms(self.me, self._absent))

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

    def keepers(self, timer: Timer) -> tuple[str, ...]:
        """Those who are to keep a timer by the present list; nobody if it was deleted."""
        if timer.plan is None:
            return ()
        return replicas_of(timer.id, timer.plan.factor, self._after)

    def take_offer(self, offer: Offer, now_ms: int) -> int | None:
        """Does by the three rules what may be done; answers this node's new level if it has dealt with it."""
        old, new = offer.old, offer.timer.replicas
        if self.me not in new:
            return None
        if may_take(self.me, old, new):
            self.receive(offer.timer, now_ms)
        mine = self._timers.get(offer.timer.id)
        latest = offer.timer if mine is None else later(mine, offer.timer, offer.timer.view)
        for node in (*to_tell(self.me, old, new), *to_dismiss(self.me, old, new)):
            self._message(node, latest)
        return new.index(self.me)

    def take_own(self, ids: Iterable[int], now_ms: int) -> None:
        """Of these timers, those whose first replica this node is and stays: nobody else offers it them.

        Whoever asked it before has them by the new list; without this it would go by the old one.
        """
        for offer in list(self.offers(self.me, ids)):
            if offer.old[0] == offer.timer.replicas[0] == self.me:
                self.take_offer(offer, now_ms)

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

    def put_back(self, timer: Timer, now_ms: int) -> None:
        """Holds a record as it was saved, or with a start that somebody knows better."""
        self.saw(timer.version)
        self._hold(timer, now_ms)

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

    def _tell(self, timer: Timer, nodes: Iterable[str], now_ms: int) -> None:
        self._hold(timer, now_ms)
        for node in dict.fromkeys(nodes):
            self._message(node, timer)

    def _message(self, node: str, timer: Timer) -> None:
        if node != self.me:
            self._messages.setdefault(node, {})[timer.id] = timer

    def _hold(self, timer: Timer, now_ms: int) -> None:
        self._tally.changed(self._timers.get(timer.id), timer, now_ms)
        self._timers[timer.id] = timer
        self._changed[timer.id] = None
        if timer.is_over:
            self._wheel.put(timer.id, timer.forgotten_ms())
        elif self.me not in timer.replicas:
            self._wheel.put(timer.id, min(timer.forgotten_ms(), now_ms + MOVED_KEPT_MS))
        elif self._calling.get(timer.id) == (timer.version, timer.popped):
            self._wheel.remove(timer.id)
        else:
            self._wheel.put(timer.id, timer.turn_ms(self.me, self._absent))

    def _forget(self, timer_id: int, now_ms: int) -> None:
        timer = self._timers.pop(timer_id)
        self._tally.changed(timer, None, now_ms)
        self._changed[timer_id] = None
        self._known.pop(timer_id, None)
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
