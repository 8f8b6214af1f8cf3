"""Nodes in made-up time on a network that delays, doubles and loses; disks that keep what was saved.

The rooms around a node are as simple as they can be: a link that fails remembers which timers the other was
to be told of, and tells it when it is back; a node that starts asks everybody for what it is to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from chronoline.timers.membership import Membership
from chronoline.timers.plan import Plan
from chronoline.timers.replica import Attempts, Call, Replica
from chronoline.timers.timer import Timer

WALL_CLOCKS_MS = 20


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
    """A replica, its disk, and what it could not tell."""

    replica: Replica
    # How far this node's clock is ahead of the simulation's.
    offset_ms: int
    disk: dict[int, Timer] = field(default_factory=dict)
    # Who has a timer too, on disk as well.
    confirmed: dict[int, set[str]] = field(default_factory=dict)
    missed: dict[str, set[int]] = field(default_factory=dict)
    is_up: bool = True
    calls: list[Call] = field(default_factory=list)


@dataclass(frozen=True)
class Letter:
    """A record under way; its start is an age, so that no clock travels."""

    sender: str
    to: str
    timer: Timer
    age_ms: int


class Simulation:
    """A cluster and its clients."""

    def __init__(self, names: Iterable[str], *, attempts: Attempts | None = None) -> None:
        self.now_ms = 1_000_000
        self.membership = Membership(tuple(sorted(names)))
        self.attempts = attempts or Attempts()
        self.nodes: dict[str, SimulatedNode] = {}
        self.letters: list[Letter] = []
        self.cut: set[frozenset[str]] = set()
        self.pops: list[Pop] = []
        self.lives = 0
        self.on_call: Callable[[str, Call], object] = lambda _, __: None
        # Whether the client answers callbacks with success.
        self.answers = True
        for name in self.membership.staying:
            self.add(name)

    def add(self, name: str) -> None:
        self.lives += 1
        offset_ms = 1_000 * len(self.nodes) ** 3
        self.nodes[name] = SimulatedNode(self._replica(name), offset_ms)

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

    def change(self, name: str, timer_id: int, plan: Plan | None, *, factor: int) -> str:
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
        """Tells others at once; answers who took it, or a newer version of somebody's."""
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
        self.letters = [letter for letter in self.letters if letter.sender != name]

    def leave(self, name: str) -> None:
        """Stops in order: those that can be reached hear everything, and that they need not wait for it."""
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
        node.replica = self._replica(name)
        for timer in node.disk.values():
            node.replica.receive(timer, self.now_of(name))
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
                at_ms - node.offset_ms
                for node in self.nodes.values()
                if node.is_up and (at_ms := node.replica.wake_at()) is not None
            ]
            if not moments or min(moments) > to_ms:
                break
            self.now_ms = max(self.now_ms, min(moments))
            for name in sorted(self.nodes):
                self._pop(name)
        self.now_ms = max(self.now_ms, to_ms)

    def _pop(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_up:
            return
        for call in node.replica.take_calls(self.now_of(name), limit=100):
            self.on_call(name, call)
            if self.answers:
                pop = Pop(self.now_ms, name, call.timer.id, call.sequence, call.plan.opaque)
                self.pops.append(pop)
            node.replica.called(call, self.now_of(name), succeeded=self.answers)
        self.save(name)

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
        replica.take_own(replica.ids(), self.now_of(name))
        for other in sorted(self.nodes):
            if other == name or not self.reachable(name, other):
                continue
            peer = self.nodes[other]
            for offer in list(peer.replica.offers(name, peer.replica.ids())):
                age_ms = self._age(other, offer.timer)
                ours = replace(offer.timer, start_ms=self.now_of(name) - age_ms)
                level = replica.take_offer(replace(offer, timer=ours), self.now_of(name))
                if level is not None and other in self.membership.leaving:
                    peer.replica.known_by(offer.timer.id, level, self.now_of(other))
                    self.save(other)
        self.save(name)

    def remove(self, name: str) -> None:
        del self.nodes[name]
        self.letters = [x for x in self.letters if name not in (x.to, x.sender)]
