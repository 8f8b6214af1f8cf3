"""The gate: may this broker grant leases now, and if not, why?

There is one answer for all who ask. A *closure* is one reason against it. Not every closure stops every work,
as the table `STOPS` says:

- A store that does not answer, or takes no changes, stops nothing here: `store_access` refuses the calls, and
  lets one in a while through where nothing else tells whether it answers again (`store_health`). Held
  messages are pushed while their leases live. Other brokers get the shares of this one's consumers
  meanwhile, and the consumers themselves (`loader`, `overseer`).
- A session with the coordination service that is not trusted stops everything new: others may serve the
  consumers of this broker. Leases that consumers hold are honoured.
- A clock that is not trusted stops everything that acts by the time.
- A stopping broker reserves, creates and purges nothing more, and pushes what it holds.
- A pipe that fires a topic, or an operator who paused it, stops the deliveries of that topic alone.

`/readyz`, `status`, the metric and the log show the closures of the node (`degradation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # as in `degradation`
    from chronoline.broker.store_access import StoreAccess

_AWAY = "the store does not answer; see the log and /v1/info"
_NO_CHANGES = (
    "the store takes no changes: it is full, busy with others, or waits for a standby; see the log"
)


class ClosureType(StrEnum):
    STOPPING = "stopping"
    STORAGE = "storage"
    COORDINATION = "coordination"
    CLOCK = "clock"
    PIPE = "pipe"
    PAUSED = "paused"


class Work(StrEnum):
    """The kinds of work that ask the gate."""

    RESERVE = "reserve"
    PUSH = "push"
    CALL = "call"
    """Call the target of a topic with a message that it was pushed."""
    PURGE = "purge"
    SCHEDULE = "schedule"
    """Create occurrences of schedules, which needs no other brokers."""
    FORGET = "forget"
    """Forget leases that have lapsed by the broker's clock."""


OF_A_TOPIC = frozenset({ClosureType.PIPE, ClosureType.PAUSED})
"""Closures that concern one topic. Its consumers hear the reason."""
STOPS: dict[Work, frozenset[ClosureType]] = {
    Work.RESERVE: frozenset({ClosureType.STOPPING, ClosureType.COORDINATION, ClosureType.CLOCK})
    | OF_A_TOPIC,
    Work.PUSH: frozenset({ClosureType.COORDINATION, ClosureType.CLOCK}) | OF_A_TOPIC,
    Work.CALL: OF_A_TOPIC,
    Work.PURGE: frozenset({ClosureType.STOPPING, ClosureType.CLOCK}),
    Work.SCHEDULE: frozenset({ClosureType.STOPPING, ClosureType.CLOCK}),
    Work.FORGET: frozenset({ClosureType.CLOCK}),
}


@dataclass(frozen=True, slots=True)
class Closure:
    """One reason why the gate is closed."""

    type: ClosureType
    reason: str
    """For the log, and for clients with a token."""
    public: str
    """For clients without a token. It names no hosts, unlike an error of the store's driver."""


class Gate:
    """The gate of a node. Owned by the event loop."""

    def __init__(
        self,
        access: StoreAccess,
        coordination: Callable[[], str] = lambda: "",
        coordination_details: Callable[[], str] = lambda: "",
    ) -> None:
        """`coordination` says why this broker may not act in its cluster; empty while it may.

        `coordination_details` is the error behind it, which may name hosts.
        """
        self._access = access
        self._coordination_problem = coordination
        self._coordination_details = coordination_details
        self.stopping = False
        self._finders: dict[ClosureType, Callable[[], Closure | None]] = {
            ClosureType.STOPPING: self._by_stop,
            ClosureType.STORAGE: self._by_store,
            ClosureType.COORDINATION: self._by_coordination,
            ClosureType.CLOCK: self._by_clock,
        }

    @property
    def store_problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._access.problem

    @property
    def closures(self) -> tuple[Closure, ...]:
        """All reasons against leases, without a call of the store. Empty while the gate is open."""
        found = (find() for find in self._finders.values())
        return tuple(each for each in found if each is not None)

    def closure(self, work: Work) -> Closure | None:
        """The first reason that stops a kind of work; None if it may be done."""
        found = (find() for type, find in self._finders.items() if type in STOPS[work])
        return next((each for each in found if each is not None), None)

    def for_topic(self) -> TopicGate:
        """A gate for one topic, which a pipe or an operator can close, too."""
        return TopicGate(self)

    def _by_stop(self) -> Closure | None:
        words = "the broker is stopping"
        return Closure(ClosureType.STOPPING, words, words) if self.stopping else None

    def _by_store(self) -> Closure | None:
        if problem := self.store_problem:
            return Closure(ClosureType.STORAGE, problem, _AWAY)
        if refusal := self._access.refusal:
            words = f"the store takes no changes: {refusal}"
            return Closure(ClosureType.STORAGE, words, _NO_CHANGES)
        return None

    def _by_coordination(self) -> Closure | None:
        problem = self._coordination_problem()
        if not problem:
            return None
        details = self._coordination_details()
        reason = f"{problem} ({details})" if details else problem
        return Closure(ClosureType.COORDINATION, reason, problem)

    def _by_clock(self) -> Closure | None:
        problem = self._access.clock.problem
        return Closure(ClosureType.CLOCK, problem, problem) if problem else None


class TopicGate:
    """The gate of one topic: that of its node, and whether a pipe fires it or an operator paused it."""

    def __init__(self, node: Gate) -> None:
        self._node = node
        self._reasons: dict[ClosureType, str] = {}

    def close(self, by: ClosureType, reason: str) -> None:
        """Closes the gate for a reason of the topic; an empty reason ends that closure."""
        if reason:
            self._reasons[by] = reason
        else:
            self._reasons.pop(by, None)

    @property
    def paused(self) -> str:
        """Why its consumers get nothing; empty while they do."""
        return "; ".join(reason for _, reason in sorted(self._reasons.items()))

    @property
    def is_piped(self) -> bool:
        """Whether a pipe fires the topic."""
        return ClosureType.PIPE in self._reasons

    @property
    def store_problem(self) -> str:
        """Why the store does not answer; empty while it does."""
        return self._node.store_problem

    def closure(self, work: Work) -> Closure | None:
        """The first reason that stops a kind of work; None if it may be done."""
        closure = self._node.closure(work)
        if closure is not None:
            return closure
        for type, reason in sorted(self._reasons.items()):
            if type in STOPS[work]:
                return Closure(type, reason, reason)
        return None
