"""A history of the scene by message: its calls, its deliveries, and its row at the end."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from chronoline.core.limits import CLOCK_BOUND_MS
from tests.torture.history import CALL, DELIVERY, DONE, OUTCOME, REFUSED, UNKNOWN, Event

SETTLING = ("ack", "retry", "release", "bury")
"""The operations that end a lease."""
CREATING = ("create", "replace")
_CLOCK_MEMORY_MS = 30_000
"""The time for which a moved clock still has an effect: on pushed messages, and on clients' estimates."""

_UNDER_WAY_MS = 3_000
"""The time for which a broker may still work on a request of a killed or frozen process."""


@dataclass(slots=True, eq=False)
class Call:
    """A call and its outcome."""

    name: str
    op: str
    process: str
    began_ms: float
    asked: dict[str, Any]
    ended_ms: float = math.inf
    outcome: str = UNKNOWN
    reason: str = ""
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.outcome == DONE

    @property
    def refused(self) -> bool:
        return self.outcome == REFUSED

    @property
    def version(self) -> int | None:
        """The version that it made; for a call on a lease, the version of the lease."""
        return self.told.get("version")

    @property
    def last_ms(self) -> float:
        """The last moment at which it may have happened; of unknown outcome, at any time after its answer."""
        return math.inf if self.outcome == UNKNOWN else self.ended_ms

    def overlaps(self, begin_ms: float, end_ms: float) -> bool:
        """Whether it may have happened between two moments."""
        return not self.refused and self.began_ms < end_ms and self.last_ms > begin_ms

    def __str__(self) -> str:
        ended = "?" if math.isinf(self.ended_ms) else f"{self.ended_ms:.0f}"
        words = " ".join(filter(None, (self.outcome, self.reason)))
        return f"{self.op} {self.name} at {self.began_ms:.0f}–{ended}: {words}"


@dataclass(frozen=True, slots=True)
class View:
    """A lease as its holder knows it from a moment on."""

    since_ms: float
    version: int
    until_ms: int


@dataclass(slots=True, eq=False)
class Delivery:
    """A message that was delivered under a lease."""

    name: str
    process: str
    consumer: str
    door: str
    topic_uid: int | None
    version: int
    due_ms: int
    attempts: int
    group: str
    content: str
    at_ms: float
    views: list[View]
    broker: int | None = None
    """The broker that delivered it, if that is known."""
    calls: list[Call] = field(default_factory=list)
    lost: View | None = None
    """When its holder learned of its loss."""

    def view(self, at_ms: float) -> View:
        """Returns the lease as its holder knew it last; an extension may shorten it."""
        return max(
            (view for view in self.views if view.since_ms <= at_ms or view is self.views[0]),
            key=lambda view: view.since_ms,
        )

    def extensions_under_way(self, at_ms: float) -> Iterator[Call]:
        """Yields extensions that may have been made at a moment without the holder's knowledge."""
        for call in self.own_calls:
            known = call.done and call.ended_ms <= at_ms
            if call.op == "extend" and call.began_ms <= at_ms and not call.refused and not known:
                yield call

    def given_up(self, at_ms: float) -> bool:
        """Whether its holder had begun to settle it, or knew of its loss."""
        if self.lost is not None and self.lost.since_ms <= at_ms:
            return True
        return any(call.op in SETTLING and call.began_ms <= at_ms for call in self.own_calls)

    @property
    def own_calls(self) -> Iterator[Call]:
        """The calls of its holder under its own name and the version that it knows."""
        return (
            call
            for call in self.calls
            if not (call.asked.get("consumer") or call.asked.get("stale"))
        )

    def __str__(self) -> str:
        return f"{self.name} v{self.version} at {self.at_ms:.0f} until {self.views[0].until_ms}"


@dataclass(slots=True, eq=False)
class Row:
    """The rows of the store at the end."""

    state: str
    ts_ms: int
    due_ms: int
    version: int
    group: str
    content: str


@dataclass(slots=True, eq=False)
class Message:
    """All events of one id."""

    topic: str
    id: str
    calls: list[Call] = field(default_factory=list)
    """The calls of producers and of operators on dead letters."""
    deliveries: list[Delivery] = field(default_factory=list)
    row: Row | None = None

    def of(self, *ops: str) -> list[Call]:
        return [call for call in self.calls if call.op in ops]

    def settlings(self, *ops: str) -> Iterator[tuple[Delivery, Call]]:
        """The calls of consumers on their leases."""
        for delivery in self.deliveries:
            for call in delivery.own_calls:
                if call.op in ops:
                    yield delivery, call

    def made_anew(self, begin_ms: float, end_ms: float) -> bool:
        """Whether it may have been created again, or redriven, between two moments."""
        return any(call.overlaps(begin_ms, end_ms) for call in self.of("replace", "redrive"))

    def __str__(self) -> str:
        return f"{self.topic} {self.id!r}"


class History:
    """The events of a run, grouped by message."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.calls: dict[str, Call] = {}
        self.messages: dict[tuple[str, str], Message] = {}
        self.drained: dict[str, tuple[float, int | None]] = {}
        """By stage: the end of the drain, and the number of messages left."""
        self.began: dict[str, float] = {}
        """By process: its first start."""
        self.broker_of: dict[str, int | None] = {}
        """By process: the broker whose HTTP it uses."""
        self._deliveries: dict[str, Delivery] = {}
        self._of_topics: dict[tuple[str, str], list[Call]] = {}
        self._lives: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        self._of_consumer: dict[str, set[str]] = defaultdict(set)
        self._clocks: dict[str, list[tuple[float, list[int]]]] = defaultdict(list)
        # Wall clocks may be moved; times are of the machine's monotonic clock, set to the first wall clock.
        self._offset_ms = events[0].wall_ms - events[0].mono_ns / 1e6 if events else 0.0
        for event in events:
            self._add(event)

    # Processes and clocks

    def rivals(self, delivery: Delivery, begin_ms: float, end_ms: float) -> bool:
        """Whether another process of the same consumer name ran between two moments, or shortly before."""
        others = self._of_consumer[delivery.consumer] - {delivery.process}
        return any(self._ran(process, begin_ms - _UNDER_WAY_MS, end_ms) for process in others)

    def has_twins(self, delivery: Delivery) -> bool:
        """Whether another process ever had the same consumer name."""
        return bool(self._of_consumer[delivery.consumer] - {delivery.process})

    def broker_started(self, topic: str, begin_ms: float, end_ms: float) -> bool:
        """Whether a broker of the topic's store was started, or resumed, between two moments."""
        return any(
            runs and begin_ms <= at_ms <= end_ms
            for process, states in self._lives.items()
            if process.startswith(f"{stage_of(topic)}-broker")
            for at_ms, runs in states
        )

    def dropped(self, topic: str, begin_ms: float, end_ms: float) -> bool:
        """Whether a topic may have been deleted between two moments."""
        return any(call.overlaps(begin_ms, end_ms) for call in self.of_topic("drop_topic", topic))

    def of_topic(self, op: str, topic: str) -> list[Call]:
        """Returns the calls that delete, or create, a topic."""
        return self._of_topics.get((op, topic), [])

    def ahead_ms(self, topic: str, begin_ms: float, end_ms: float) -> tuple[int, int]:
        """Returns the least and the greatest offset of brokers' clocks between two moments.

        If the store has a clock, a broker does not use a clock beyond the bound.
        """
        stage = stage_of(topic)
        moves = self._clocks[stage]
        since_ms = begin_ms - _CLOCK_MEMORY_MS
        first = max(0, bisect_right(moves, since_ms, key=lambda move: move[0]) - 1)
        last = bisect_right(moves, end_ms, key=lambda move: move[0])
        found = [0, *(ahead for _, values in moves[first:last] for ahead in values)]
        if stage != "sqlite":
            found = [max(-CLOCK_BOUND_MS, min(CLOCK_BOUND_MS, each)) for each in found]
        return min(found), max(found)

    def _ran(self, process: str, begin_ms: float, end_ms: float) -> bool:
        states = self._lives[process]
        ends = [at_ms for at_ms, _ in states[1:]] + [math.inf]
        return any(
            runs and at_ms < end_ms and ends_ms > begin_ms
            for (at_ms, runs), ends_ms in zip(states, ends, strict=True)
        )

    # Reading

    def at_ms(self, event: Event) -> float:
        return event.mono_ns / 1e6 + self._offset_ms

    def _add(self, event: Event) -> None:
        at_ms = self.at_ms(event)
        match event.kind:
            case "call":
                self._add_call(event, at_ms)
            case "outcome":
                self._add_outcome(event, at_ms)
            case "delivery":
                self._add_delivery(event, at_ms)
            case "renewed" | "lost":
                self._add_view(event, View(at_ms, event["version"], event["until"]))
            case "row":
                self._message(event["topic"], event["id"]).row = Row(
                    event["state"],
                    event["ts"],
                    event["due"],
                    event["version"],
                    event["group"],
                    event["content"],
                )
            case "life":
                process = event["who"]
                self.broker_of.setdefault(process, event.get("broker"))
                self.began.setdefault(process, at_ms)
                self._lives[process].append((at_ms, event["state"] == "running"))
                for consumer in event["consumers"]:
                    self._of_consumer[consumer].add(process)
            case "clock":
                self._clocks[event["stage"]].append((at_ms, event["ahead_ms"]))
            case "drained":
                self.drained[event["stage"]] = (at_ms, event["left"])

    def _add_call(self, event: Event, at_ms: float) -> None:
        assert event.kind == CALL
        call = Call(event["call"], event["op"], event.process, at_ms, dict(event.fields))
        self.calls[call.name] = call
        if "delivery" in event.fields:
            self._deliveries[event["delivery"]].calls.append(call)
        elif "id" in event.fields:
            self._message(event["topic"], event["id"]).calls.append(call)
        else:
            self._of_topics.setdefault((call.op, event["topic"]), []).append(call)

    def _add_outcome(self, event: Event, at_ms: float) -> None:
        assert event.kind == OUTCOME
        call = self.calls[event["call"]]
        call.ended_ms, call.outcome, call.reason = at_ms, event["outcome"], event["reason"]
        call.told = dict(event.fields)
        if call.op == "extend" and call.done:
            view = View(at_ms, event["version"], event["until"])
            self._deliveries[call.asked["delivery"]].views.append(view)

    def _add_delivery(self, event: Event, at_ms: float) -> None:
        assert event.kind == DELIVERY
        delivery = Delivery(
            event["delivery"],
            event.process,
            event["consumer"],
            event["door"],
            event.get("topic_uid"),
            event["version"],
            event["due"],
            event["attempts"],
            event["group"],
            event["content"],
            at_ms,
            [View(at_ms, event["version"], event["until"])],
            event.get("broker"),
        )
        self._deliveries[delivery.name] = delivery
        self._message(event["topic"], event["id"]).deliveries.append(delivery)

    def _add_view(self, event: Event, view: View) -> None:
        delivery = self._deliveries[event["delivery"]]
        if event.kind == "lost":
            delivery.lost = delivery.lost or view
        else:
            delivery.views.append(view)

    def _message(self, topic: str, id: str) -> Message:
        return self.messages.setdefault((topic, id), Message(topic, id))


def stage_of(topic: str) -> str:
    """Returns the store of a topic: the prefix of its name."""
    return topic.split("-", 1)[0]
