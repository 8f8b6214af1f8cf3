"""Simulated nodes on a network that delays, doubles and loses messages; disks keep saved records.

Calls wait for a place at their receiver, and take the time that it takes to answer.

The rooms around a node are as simple as they can be: a link that fails remembers which timers the other was
to get, and sends it when it is back; a node that starts asks everybody for what it is to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from chronoline.callbacks.caller import CallLimits, Endpoint
from chronoline.timers.call_queue import CallQueue
from chronoline.timers.membership import Membership
from chronoline.timers.plan import TimerPlan
from chronoline.timers.replica import Attempts, Callback, Missed, Replica
from chronoline.timers.timer import Timer
from chronoline.timers.turns import AskedTurn

WALL_CLOCKS_MS = 20
CLIENT: Endpoint = ("client", 80)
"""The receiver of all timers."""


@dataclass(frozen=True)
class Pop:
    """A callback that reached the client."""

    at_ms: int
    node: str
    timer_id: int
    sequence: int
    opaque: str


@dataclass
class SimulatedNode:
    """A replica, its disk, and its undelivered records."""

    replica: Replica
    # How far this node's clock is ahead of the simulation's.
    offset_ms: int
    disk: dict[int, Timer] = field(default_factory=dict)
    # The other nodes that keep a timer on disk.
    confirmed: dict[int, set[str]] = field(default_factory=dict)
    missed: dict[str, set[int]] = field(default_factory=dict)
    is_up: bool = True
    queue: CallQueue = field(default_factory=lambda: CallQueue(CallLimits()))
    calls: list[UnderWay] = field(default_factory=list)


@dataclass(frozen=True)
class UnderWay:
    """A call that has begun, and when it is over."""

    ends_ms: int
    place: Endpoint
    call: Callback
    succeeds: bool


@dataclass(frozen=True)
class Letter:
    """A record under way; its start is an age, so that no clock travels."""

    sender: str
    to: str
    timer: Timer
    age_ms: int


class Simulation:
    """A cluster and its clients."""

    def __init__(
        self, names: Iterable[str], *, attempts: Attempts | None = None, calls_at_once: int = 64
    ) -> None:
        """Calls at once of each node to a receiver."""
        self.now_ms = 1_000_000
        self._limits = CallLimits(for_each_host=calls_at_once)
        self.membership = Membership(tuple(sorted(names)))
        self.attempts = attempts or Attempts()
        self.nodes: dict[str, SimulatedNode] = {}
        self.letters: list[Letter] = []
        self.cut: set[frozenset[str]] = set()
        self.pops: list[Pop] = []
        # Pops that were not called, since it was too late: labels and sequence numbers.
        self.missed: set[tuple[str, int]] = set()
        self.lives = 0
        self.on_call: Callable[[str, Callback], object] = lambda _, __: None
        # Whether the client answers callbacks with success.
        self.answers = True
        # How long it takes to answer.
        self.takes_ms = 0
        for name in self.membership.staying:
            self.add(name)

    def add(self, name: str) -> None:
        self.lives += 1
        offset_ms = 1_000 * len(self.nodes) ** 3
        queue = CallQueue(self._limits)
        self.nodes[name] = SimulatedNode(self._replica(name), offset_ms, queue=queue)

    def _replica(self, name: str) -> Replica:
        return Replica(name, self.membership, life=str(self.lives), attempts=self.attempts)

    def now_of(self, name: str) -> int:
        return self.now_ms + self.nodes[name].offset_ms

    def wall_of(self, name: str) -> int:
        """Wall clocks differ, by at most `WALL_CLOCKS_MS`."""
        return self.now_ms + ord(name[0]) * 7 % (WALL_CLOCKS_MS + 1)

    def reachable(self, one: str, other: str) -> bool:
        if other not in self.nodes or one not in self.nodes:
            return False
        both_up = self.nodes[one].is_up and self.nodes[other].is_up
        return both_up and frozenset((one, other)) not in self.cut

    # Clients.

    def change(self, name: str, timer_id: int, plan: TimerPlan | None, *, factor: int) -> str:
        """A client's request at a node: empty if it was refused, `some` or `all` keepers have it."""
        node = self.nodes[name]
        if not node.is_up:
            return ""
        while True:
            change = node.replica.change(
                timer_id,
                plan,
                factor=factor,
                at=self.nodes,
                now_ms=self.now_of(name),
                wall_ms=self.wall_of(name),
            )
            confirmed, newest = self._offer(name, change.timer, change.keepers)
            if name in change.timer.replicas:
                confirmed.append(name)
            if newest is None:
                if not confirmed:
                    return ""
                _, newest = self._offer(name, change.timer, change.others)
            if newest is None:
                break
            node.replica.saw(newest.version)
        node.replica.receive(change.timer, self.now_of(name))
        self.save(name)
        for each in confirmed:
            self.nodes[each].confirmed[timer_id] = set(confirmed) - {each}
        return "all" if len(confirmed) == len(change.timer.replicas) else "some"

    def _offer(
        self, sender: str, timer: Timer, others: Iterable[str]
    ) -> tuple[list[str], Timer | None]:
        """Sends a record to others; returns those that took it, or a newer version."""
        confirmed: list[str] = []
        for other in others:
            if not self.reachable(sender, other):
                if other in self.nodes:
                    self.nodes[sender].missed.setdefault(other, set()).add(timer.id)
                continue
            held = self._receive(Letter(sender, other, timer, self._age(sender, timer)))
            if held.version > timer.version:
                return confirmed, held
            confirmed.append(other)
        return confirmed, None

    def _age(self, name: str, timer: Timer) -> int:
        return self.now_of(name) - timer.start_ms

    def _receive(self, letter: Letter) -> Timer:
        now_ms = self.now_of(letter.to)
        ours = replace(letter.timer, start_ms=now_ms - letter.age_ms)
        self.nodes[letter.to].replica.here(letter.sender)
        held = self.nodes[letter.to].replica.receive(ours, now_ms)
        self.save(letter.to)
        return held

    # The network.

    def save(self, name: str) -> None:
        node = self.nodes[name]
        for timer_id, timer in node.replica.take_changes():
            if timer is None:
                node.disk.pop(timer_id, None)
                node.confirmed.pop(timer_id, None)
            else:
                node.disk[timer_id] = timer
        for to, timers in node.replica.take_messages().items():
            self.letters += [Letter(name, to, timer, self._age(name, timer)) for timer in timers]

    def deliver(self, index: int, *, twice: bool = False) -> None:
        """Brings a letter, or loses it if there is no way."""
        letter = self.letters.pop(index % len(self.letters))
        if not self.reachable(letter.sender, letter.to):
            self._lost(letter)
            return
        for _ in range(2 if twice else 1):
            held = self._receive(letter)
            if held.progress > letter.timer.progress:
                self._receive(Letter(letter.to, letter.sender, held, self._age(letter.to, held)))

    def lose(self, index: int) -> None:
        """A request without an answer: the sender knows that it does not know."""
        self._lost(self.letters.pop(index % len(self.letters)))

    def _lost(self, letter: Letter) -> None:
        sender = self.nodes.get(letter.sender)
        if sender is not None and letter.to in self.nodes:
            sender.missed.setdefault(letter.to, set()).add(letter.timer.id)

    def catch_up(self) -> None:
        """Links that are back tell what the other missed."""
        for name, node in self.nodes.items():
            for other in list(node.missed):
                if not self.reachable(name, other):
                    continue
                for timer_id in sorted(node.missed.pop(other)):
                    timer = node.replica.get(timer_id)
                    if timer is not None:
                        self._receive(Letter(name, other, timer, self._age(name, timer)))

    def deliver_all(self) -> None:
        while self.letters:
            self.deliver(0)

    # Nodes.

    def kill(self, name: str) -> None:
        node = self.nodes[name]
        node.is_up = False
        node.missed.clear()
        node.calls.clear()
        node.queue = CallQueue(self._limits)
        self.letters = [letter for letter in self.letters if letter.sender != name]

    def leave(self, name: str) -> None:
        """Stops in order: those that can be reached hear everything, and that they need not wait for it."""
        node = self.nodes[name]
        node.replica.leave_to_others(node.queue.clear(), self.now_of(name))
        for each in node.calls:
            node.replica.called(each.call, self.now_of(name), succeeded=each.succeeds)
        self.save(name)
        for index in reversed(range(len(self.letters))):
            if self.letters[index].sender == name:
                self.deliver(index)
        for other, peer in self.nodes.items():
            if other != name and self.reachable(name, other):
                peer.replica.hurry(peer.replica.farewell(name, self.now_of(other)))
        self.kill(name)

    def start(self, name: str) -> None:
        """From its disk, after it heard what everybody who can be reached knows of its timers."""
        node = self.nodes[name]
        node.is_up = True
        has_kept = node.replica.has_kept
        node.replica = self._replica(name)
        node.replica.started(self.now_of(name))
        for timer in node.disk.values():
            node.replica.put_back(timer, self.now_of(name), was_kept=has_kept(timer))
        for other, peer in self.nodes.items():
            if other == name or not self.reachable(name, other):
                continue
            peer.replica.here(name)
            for timer_id in peer.replica.ids():
                theirs = peer.replica.get(timer_id)
                assert theirs is not None
                self._receive(Letter(other, name, theirs, self._age(other, theirs)))
            for timer_id in node.replica.ids():
                mine = node.replica.get(timer_id)
                assert mine is not None
                is_past = mine.forgotten_ms() <= self.now_of(name)
                confirmed = other in node.confirmed.get(timer_id, ())
                if peer.replica.get(timer_id) is None and confirmed and is_past:
                    node.replica.give_up(timer_id, self.now_of(name))
                else:
                    self._receive(Letter(name, other, mine, self._age(name, mine)))
        self.save(name)

    # Time.

    def advance(self, to_ms: int) -> None:
        """Lets everything happen that falls due until a moment; letters wait until they are brought."""
        while True:
            moments = [
                at_ms for node in self.nodes.values() if node.is_up for at_ms in self._moments(node)
            ]
            if not moments or min(moments) > to_ms:
                break
            self.now_ms = max(self.now_ms, min(moments))
            for name in sorted(self.nodes):
                self._pop(name)
        self.now_ms = max(self.now_ms, to_ms)

    def _moments(self, node: SimulatedNode) -> Iterator[int]:
        """Returns the next time at which a node has work."""
        if (wakes_ms := node.replica.wake_at()) is not None:
            yield wakes_ms - node.offset_ms
        for each in node.calls:
            yield each.ends_ms

    def _pop(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_up:
            return
        for each in [each for each in node.calls if each.ends_ms <= self.now_ms]:
            node.calls.remove(each)
            node.queue.end(each.place)
            node.replica.called(each.call, self.now_of(name), succeeded=each.succeeds)
        for timer in node.replica.take_due(self.now_of(name), limit=100):
            node.queue.put(CLIENT, timer.id)
        for other, turns in node.replica.take_questions().items():
            for asked in turns:
                self._ask(name, other, asked)
        while (turn := node.queue.take()) is not None:
            self._begin(name, *turn)
        for missed in node.replica.take_missed():
            self._note_missed(missed, self.now_of(name))
        self.save(name)

    def _ask(self, name: str, other: str, turn: AskedTurn) -> None:
        """A question about a turn: a dead node refuses it at once, one that is cut off answers nothing."""
        node, peer = self.nodes[name], self.nodes.get(other)
        if peer is not None and peer.is_up and not self.reachable(name, other):
            return
        answer: Timer | int | None = None
        if peer is not None and peer.is_up:
            answer = peer.replica.answer_turn(name, turn, self.now_of(other))
        if isinstance(answer, Timer):
            self._receive(Letter(other, name, answer, self._age(other, answer)))
        else:
            node.replica.turn_answered(other, turn, answer, self.now_of(name))

    def _note_missed(self, missed: Missed, now_ms: int) -> None:
        plan, start_ms = missed.timer.plan, missed.timer.start_ms
        assert plan is not None
        for number in range(missed.first, missed.last + 1):
            next_one = number + (not self.attempts.skip_missed)
            assert now_ms >= start_ms + next_one * plan.interval_ms, "it was not too late"
            self.missed.add((plan.opaque, number))

    def _begin(self, name: str, place: Endpoint, timer_id: int) -> None:
        node = self.nodes[name]
        call = node.replica.begin(timer_id, self.now_of(name))
        if call is None:
            node.queue.end(place)
            return
        self.on_call(name, call)
        if self.answers:
            pop = Pop(self.now_ms, name, call.timer.id, call.sequence, call.plan.opaque)
            self.pops.append(pop)
        node.calls.append(UnderWay(self.now_ms + self.takes_ms, place, call, self.answers))

    def cede(self, name: str, other: str, *, answers: bool = True) -> None:
        """A node leaves what it may of its queue to another, which may take it and not answer."""
        node, peer = self.nodes[name], self.nodes[other]
        queued = list(node.queue.last(CLIENT))
        ids = [each for each in queued if node.replica.may_cede(each, other)]
        for timer in node.replica.cede(ids, self.now_of(name)):
            node.queue.remove(timer.id)
            age_ms = self._age(name, timer)
            ceded = replace(timer, start_ms=self.now_of(other) - age_ms)
            if peer.replica.take_over(ceded, self.now_of(other)):
                peer.queue.put(CLIENT, timer.id)
            elif answers and node.replica.take_over(timer, self.now_of(name)):
                node.queue.put(CLIENT, timer.id)
        for each in (name, other):
            self.save(each)

    # Growing and shrinking.

    def see(self, membership: Membership) -> None:
        self.membership = membership
        for name in membership.everybody:
            if name not in self.nodes:
                self.add(name)
        for node in self.nodes.values():
            node.replica.see(membership)

    def resync(self, name: str) -> None:
        """A node asks every other for what it is to keep, and tells those that leave what it took."""
        replica = self.nodes[name].replica
        for own in replica.take_own(replica.ids(), self.now_of(name)):
            replica.dismiss(own)
        for other in sorted(self.nodes):
            if other == name or not self.reachable(name, other):
                continue
            peer = self.nodes[other]
            for offer in list(peer.replica.offers(name, peer.replica.ids())):
                age_ms = self._age(other, offer.timer)
                ours = replace(offer.timer, start_ms=self.now_of(name) - age_ms)
                taken = replace(offer, timer=ours)
                level = replica.take_offer(taken, self.now_of(name))
                replica.dismiss(taken)
                if level is not None and other in self.membership.leaving:
                    peer.replica.known_by(offer.timer.id, level, self.now_of(other))
                    self.save(other)
        self.save(name)

    def remove(self, name: str) -> None:
        del self.nodes[name]
        self.letters = [x for x in self.letters if name not in (x.to, x.sender)]
