"""The invariants of timers, judged on a recorded history: a pure function.

A history of timers has these events:

| kind | fields | meaning |
| --- | --- | --- |
| `call` | `op`, `timer`, `node` | a request to create, replace or delete a timer |
| | `label`, `interval_ms`, `pops`, `receiver` | the requested timer, unless it deletes |
| `outcome` | `copies`, `wanted`, `id` | of a successful call: its copies, and the 16 digits of the timer |
| `delivery` | `delivery`, `label`, `sequence`, `id`, `receiver` | a callback came |
| `answered` | `delivery`, `status` | its receiver has answered |
| `fault` | `fault`, `node`, `down` | the number of nodes that are down from now on |
| `well` | | all nodes are up, know each other, and are in sync |
| `stall` | `stall_ms` | this machine stalled until now |
| `holders` | `holders` | the nodes that wait to pop each timer: by its id, pairs of node and level |

One client changes a timer, one request after the other; each version of it has its own label.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.torture.history import (
    CALL,
    DELIVERY,
    DONE,
    FAULT,
    OUTCOME,
    REFUSED,
    UNKNOWN,
    Event,
    Violation,
)

WIRE_MS = 1_500
"""A callback that began before the answer to a change arrives within this time."""
LATE_MS = 1_500
"""The allowance for a pop beyond twice its interval on a busy machine."""
END_MS = 10_000
"""No callback comes later than `repeat-for` plus one interval, or plus this time if it is longer."""
TIMEOUT_MS = 1_800
"""The calling node got an answer that came within this time."""
SURE_STEP_MS = 500
"""Backups that wait longer than this for the node before them are not early on a busy machine."""
QUICK = "quick"
"""The receiver that answers at once: only its pops are judged by their lateness."""

EARLY = "32 popped early"
LATE = "32 popped late"
LOST = "32 never popped"
UNMARKED = "33 pops without a distinct identity"
REVIVED = "34 deleted timer brought back"
REPLICAS = "35 scaling lost a replica"
PRIMARY = "35 not one primary"
REFUSED_POPPED = "36 refused timer called"
DELETED_CALLED = "42 deleted timer called"
REPLACED_CALLED = "42 replaced timer called"
PAST_END = "42 called past its end"
TWICE = "once in a healthy cluster"


@dataclass(frozen=True, slots=True)
class Change:
    """A request of a client and its answer. Times are milliseconds of the history."""

    timer: str
    op: str
    call_ms: float
    outcome: str
    # None if no answer came.
    done_ms: float | None
    copies: int = 0
    wanted: int = 0
    id: str = ""
    label: str = ""
    interval_ms: int = 0
    pops: int = 0
    receiver: str = ""

    @property
    def is_whole(self) -> bool:
        """True if all nodes with the timer accepted the change."""
        return self.copies == self.wanted


@dataclass(frozen=True, slots=True)
class Pop:
    """A callback that came."""

    at_ms: float
    label: str
    sequence: int | None
    id: str
    # The receiver's duration and answer; None without an answer.
    took_ms: float | None
    status: int | None

    @property
    def is_heard(self) -> bool:
        """True if the calling node knows that the pop succeeded."""
        return self.status == 200 and self.took_ms is not None and self.took_ms <= TIMEOUT_MS


@dataclass(slots=True)
class Trouble:
    """The times at which nodes were down, all was well again, and the machine stalled."""

    # The number of nodes that are down from each moment on.
    downs: list[tuple[float, int]] = field(default_factory=list)
    wells: list[float] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)

    def most_down(self, from_ms: float, to_ms: float) -> int:
        """Returns the most nodes that were down at one time; a node that is up but not well counts too."""
        before = bisect_right(self.downs, (from_ms, 1_000)) - 1
        within = [down for at_ms, down in self.downs[max(0, before) :] if at_ms <= to_ms]
        return max(within, default=0)

    def unwell(self, from_ms: float, to_ms: float) -> bool:
        """True if something broke in that time, or before it and was not well again."""
        if self.stood_still(from_ms, to_ms):
            return True
        faults = [at_ms for at_ms, _ in self.downs if at_ms <= to_ms]
        if not faults:
            return False
        well_ms = next((each for each in self.wells if each >= faults[-1]), None)
        return faults[-1] >= from_ms or well_ms is None or well_ms >= from_ms

    def stood_still(self, from_ms: float, to_ms: float) -> bool:
        return any(begin <= to_ms and end >= from_ms for begin, end in self.stalls)

    def next_well(self, at_ms: float) -> float | None:
        return next((each for each in self.wells if each >= at_ms), None)

    def faults(self, from_ms: float, to_ms: float) -> int:
        return sum(from_ms <= at_ms <= to_ms for at_ms, _ in self.downs)


def judge(events: Sequence[Event]) -> list[Violation]:
    """Returns the violations in a history of timers."""
    if not events:
        return []
    began_ns = events[0].mono_ns
    return list(_History(events, began_ns).violations())


class _History:
    """The history by timers and labels."""

    def __init__(self, events: Sequence[Event], began_ns: int) -> None:
        self._began_ns = began_ns
        self.end_ms = self._at(events[-1])
        self.trouble = self._trouble(events)
        self.changes: dict[str, list[Change]] = defaultdict(list)
        for change in self._changes(events):
            self.changes[change.timer].append(change)
        self.pops: dict[str, list[Pop]] = defaultdict(list)
        for pop in self._pops(events):
            self.pops[pop.label].append(pop)
        self._holders = [event for event in events if event.kind == "holders"]

    def _at(self, event: Event) -> float:
        return (event.mono_ns - self._began_ns) / 1e6

    def _trouble(self, events: Sequence[Event]) -> Trouble:
        trouble = Trouble()
        for event in events:
            at_ms = self._at(event)
            if event.kind == FAULT:
                trouble.downs.append((at_ms, event["down"]))
            elif event.kind == "well":
                trouble.wells.append(at_ms)
            elif event.kind == "stall":
                trouble.stalls.append((at_ms - event["stall_ms"], at_ms))
        return trouble

    def _changes(self, events: Sequence[Event]) -> Iterator[Change]:
        outcomes = {event["call"]: event for event in events if event.kind == OUTCOME}
        spec = ("label", "interval_ms", "pops", "receiver")
        for event in events:
            if event.kind != CALL:
                continue
            ended = outcomes.get(event["call"])
            answer = {} if ended is None else dict(ended.fields)
            yield Change(
                event["timer"],
                event["op"],
                self._at(event),
                answer.get("outcome", UNKNOWN),
                None if ended is None else self._at(ended),
                **{name: answer[name] for name in ("copies", "wanted", "id") if name in answer},
                **{name: event[name] for name in spec if name in event.fields},
            )

    def _pops(self, events: Sequence[Event]) -> Iterator[Pop]:
        answers = {event["delivery"]: event for event in events if event.kind == "answered"}
        for event in events:
            if event.kind != DELIVERY:
                continue
            answer = answers.get(event["delivery"])
            at_ms = self._at(event)
            yield Pop(
                at_ms,
                event["label"],
                event["sequence"],
                event["id"],
                None if answer is None else self._at(answer) - at_ms,
                None if answer is None else answer["status"],
            )

    def violations(self) -> Iterator[Violation]:
        known = {each.label for changes in self.changes.values() for each in changes if each.label}
        for label in self.pops.keys() - known:
            yield Violation(UNMARKED, f"a pop of {label!r}, which was not requested")
        for changes in self.changes.values():
            for number, change in enumerate(changes):
                if change.label:
                    yield from self._of_label(change, changes[number + 1 :])
        for event in self._holders:
            yield from self._of_holders(event)

    def _of_label(self, made: Change, after: Sequence[Change]) -> Iterator[Violation]:
        pops = self.pops.get(made.label, [])
        if made.outcome == REFUSED:
            if pops:
                yield Violation(REFUSED_POPPED, f"{made.label} at {pops[0].at_ms:.0f} ms")
            return
        yield from self._marks(made, pops)
        yield from self._early(made, pops)
        yield from self._past_end(made, pops)
        yield from self._twice(made, pops)
        yield from self._after_change(pops, after)
        yield from self._late(made, pops, after)

    def _marks(self, made: Change, pops: Sequence[Pop]) -> Iterator[Violation]:
        for pop in pops:
            is_numbered = pop.sequence is not None and 1 <= pop.sequence <= made.pops
            if not is_numbered or (made.id and pop.id != made.id):
                yield Violation(
                    UNMARKED,
                    f"{made.label} popped as {pop.id} {pop.sequence}, not {made.id} 1 to {made.pops}",
                )

    def _early(self, made: Change, pops: Sequence[Pop]) -> Iterator[Violation]:
        for pop in pops:
            due_ms = made.call_ms + (pop.sequence or 0) * made.interval_ms
            if pop.at_ms < due_ms:
                yield Violation(
                    EARLY, f"{made.label} {pop.sequence}: {due_ms - pop.at_ms:.1f} ms too early"
                )

    def _past_end(self, made: Change, pops: Sequence[Pop]) -> Iterator[Violation]:
        if made.done_ms is None:
            return
        repeat_for_ms = made.pops * made.interval_ms
        end_ms = made.done_ms + repeat_for_ms + max(made.interval_ms, END_MS) + WIRE_MS
        for pop in pops:
            if pop.at_ms <= end_ms:
                continue
            # A timer with one pop that fell due while its nodes were down pops when one is back.
            due_ms = made.call_ms + repeat_for_ms
            if made.pops == 1 and self.trouble.most_down(due_ms - made.interval_ms, end_ms):
                continue
            yield Violation(
                PAST_END, f"{made.label} {pop.sequence}: {pop.at_ms - end_ms:.0f} ms past its end"
            )

    def _twice(self, made: Change, pops: Sequence[Pop]) -> Iterator[Violation]:
        step_ms = min(2_000, made.interval_ms / (2 * max(1, made.wanted)))
        if step_ms < SURE_STEP_MS:
            return
        heard: dict[int | None, Pop] = {}
        for pop in pops:
            first = heard.get(pop.sequence)
            if first is None:
                if pop.is_heard:
                    heard[pop.sequence] = pop
            elif not self.trouble.unwell(made.call_ms, pop.at_ms):
                yield Violation(
                    TWICE,
                    f"{made.label} {pop.sequence} at {first.at_ms:.0f} ms and at {pop.at_ms:.0f} ms",
                )

    def _after_change(self, pops: Sequence[Pop], after: Sequence[Change]) -> Iterator[Violation]:
        ended = next((each for each in after if each.outcome == DONE), None)
        if ended is None or ended.done_ms is None or not self._is_settled(ended):
            return
        for pop in pops:
            late_ms = pop.at_ms - ended.done_ms
            if late_ms <= WIRE_MS:
                continue
            broken = self.trouble.faults(ended.call_ms, pop.at_ms)
            rule = REPLACED_CALLED if ended.op == "replace" else DELETED_CALLED
            yield Violation(
                REVIVED if broken and ended.op == "delete" else rule,
                f"{pop.label} {pop.sequence}, {late_ms:.0f} ms after the {ended.op} of {ended.timer} was "
                f"answered at {ended.done_ms:.0f} ms",
            )

    def _is_settled(self, ended: Change) -> bool:
        """Whether nodes could catch up with a missed change: all was well before the next fault."""
        assert ended.done_ms is not None
        if ended.is_whole:
            return True
        well_ms = self.trouble.next_well(ended.done_ms)
        return well_ms is not None and self._most_rises(ended.done_ms, well_ms) == 0

    def _most_rises(self, from_ms: float, to_ms: float) -> int:
        """Returns the number of times that another node went down."""
        downs = self.trouble.downs
        return sum(
            later > earlier and from_ms <= at_ms <= to_ms
            for (_, earlier), (at_ms, later) in zip([(0.0, 0), *downs], downs, strict=False)
        )

    def _late(
        self, made: Change, pops: Sequence[Pop], after: Sequence[Change]
    ) -> Iterator[Violation]:
        if made.outcome != DONE or made.done_ms is None or made.receiver != QUICK:
            return
        changed_ms = min((each.call_ms for each in after if each.outcome != REFUSED), default=1e15)
        first_ms = {pop.sequence: pop.at_ms for pop in reversed(pops)}
        for sequence in range(1, made.pops + 1):
            due_ms = made.done_ms + sequence * made.interval_ms
            latest_ms = due_ms + made.interval_ms + LATE_MS
            if min(changed_ms, self.end_ms) <= latest_ms:
                return
            popped_ms = first_ms.get(sequence)
            if self._is_excused(made, due_ms, latest_ms):
                if (
                    popped_ms is None
                    and made.pops == 1
                    and self._had_its_chance(due_ms, changed_ms)
                ):
                    yield Violation(LOST, f"{made.label}, due at {due_ms:.0f} ms")
            elif popped_ms is None:
                yield Violation(LOST, f"{made.label} {sequence}, due at {due_ms:.0f} ms")
            elif popped_ms > latest_ms:
                yield Violation(
                    LATE,
                    f"{made.label} {sequence}: {popped_ms - due_ms:.0f} ms after it was due, with an "
                    f"interval of {made.interval_ms} ms",
                )

    def _is_excused(self, made: Change, due_ms: float, latest_ms: float) -> bool:
        """True if more nodes were down than the timer has spare copies, or the machine stalled."""
        begin_ms = due_ms - made.interval_ms
        down = self.trouble.most_down(made.call_ms, latest_ms)
        return down >= max(1, made.copies) or self.trouble.stood_still(begin_ms, latest_ms)

    def _had_its_chance(self, due_ms: float, changed_ms: float) -> bool:
        """True if all was well after its due time, long enough for a callback."""
        well_ms = self.trouble.next_well(due_ms)
        return well_ms is not None and min(changed_ms, self.end_ms) > well_ms + END_MS

    def _of_holders(self, event: Event) -> Iterator[Violation]:
        at_ms = self._at(event)
        for changes in self.changes.values():
            before = [each for each in changes if each.call_ms <= at_ms + WIRE_MS]
            made = before[-1] if before else None
            if made is None or made.outcome != DONE or made.done_ms is None or not made.label:
                continue
            next_due_ms = made.call_ms + made.interval_ms
            if made.done_ms + WIRE_MS > at_ms or at_ms + WIRE_MS > next_due_ms:
                continue
            holders = event["holders"].get(made.id, [])
            levels = sorted(level for _, level in holders)
            if len(levels) != made.wanted:
                yield Violation(
                    REPLICAS, f"{made.label} is held by {holders}, and {made.wanted} were wanted"
                )
            elif levels != list(range(made.wanted)):
                yield Violation(PRIMARY, f"{made.label} is held by {holders}")
