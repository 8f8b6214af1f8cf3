"""The invariants of the log, judged on a history.

A reader records a delivery before it asks for the next event, and stores progress after that. So at each
observed progress or delivery, all events before it in the partition were delivered to the group. A call of
unknown outcome may have appended all of its events or none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.torture.history import CALL, DELIVERY, DONE, OUTCOME, REFUSED, Event, Violation

LOST = "21 acknowledged event lost"
NOT_DELIVERED = "21 acknowledged event not delivered to a group"
OUT_OF_SEQUENCE = "21 event delivered before those in front of it"
BEHIND = "21 group that did not come to the end"
GAP = "22 gap or repeat in a sequence"
TWICE = "22 event twice in the log"
FAILED_IS_SEEN = "22 event of a refused append is seen"
IN_HALVES = "22 append that is there in part"
ELSEWHERE = "22 event in two places, or two in one"
BACKWARDS = "23 progress went backwards"
AHEAD = "23 progress beyond the deliveries"
CAME_BACK = "19 event of a deleted topic came back"
MISSED_DELETION = "19 reader missed the deletion of its topic or group"
LEFT_BEHIND = "37 index rows left behind"
ENDED = "36 reader ended by an unexpected error"

Place = tuple[int, int]
"""Partition and sequence."""
_PATIENCE_NS = 8_000_000_000
"""The time within which a running reader knows of a deletion."""


@dataclass
class _Append:
    """An append, or all appends of one key."""

    topic: str
    values: list[str]
    began_ns: int
    ended_ns: int | None = None
    done: bool = False
    refused: bool = True
    """Whether every try was refused."""
    at: list[Place] = field(default_factory=list)


def judge(events: Sequence[Event]) -> list[Violation]:
    """Returns all violations in a history."""
    return list(_Judge(events).violations())


class _Judge:
    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events
        self._appends = _appends(events)
        self._contents = {event["topic"]: event for event in events if event.kind == "content"}
        self._deleted = _deletions(events)
        """Returns the beginning and the end of the last deletion of a topic, or of one of its groups."""

    def violations(self) -> Iterator[Violation]:
        for topic, content in self._contents.items():
            yield from self._sequences(topic, content)
            yield from self._of_appends(topic, content)
        yield from self._places()
        yield from self._groups()
        yield from self._progress()
        yield from self._told()
        yield from self._others()

    # The events of the log at the end

    def _sequences(self, topic: str, content: Event) -> Iterator[Violation]:
        for partition, (first, end) in enumerate(content["heads"]):
            found = [sequence for at, sequence, _ in content["events"] if at == partition]
            if found != list(range(first, end)):
                yield Violation(GAP, f"{topic} partition {partition}, {first}–{end}: {found[:50]}")
        counts = Counter(value for _, _, value in content["events"])
        for value, count in counts.items():
            if count > 1:
                yield Violation(TWICE, f"{topic} {value!r}: {count} times")

    def _of_appends(self, topic: str, content: Event) -> Iterator[Violation]:
        held = {value: (partition, sequence) for partition, sequence, value in content["events"]}
        firsts = [first for first, _ in content["heads"]]
        begin_ns, end_ns = self._deleted.get((topic, None), (0, 0))
        for append in self._of(topic):
            there = [value for value in append.values if value in held]
            if append.ended_ns is not None and append.ended_ns < begin_ns:
                for value in there:
                    yield Violation(CAME_BACK, f"{topic} {value!r}, appended before the deletion")
            if append.began_ns < end_ns:
                continue  # it may have happened before or after the deletion
            if append.refused and there:
                yield Violation(FAILED_IS_SEEN, f"{topic} {there}")
            if any(firsts):
                continue  # retention has deleted some
            if append.done:
                for value in sorted(set(append.values) - set(there)):
                    yield Violation(LOST, f"{topic} {value!r}, acknowledged")
            elif there and len(there) < len(append.values):
                yield Violation(IN_HALVES, f"{topic} {there} of {append.values}")

    def _places(self) -> Iterator[Violation]:
        """Each place has one event, and each event one place: in answers, deliveries and the log."""
        values_at: dict[tuple[str, Place], set[str]] = defaultdict(set)
        places_of: dict[tuple[str, str], set[Place]] = defaultdict(set)
        for topic, place, value in self._sightings():
            if (topic, None) not in self._deleted:
                values_at[topic, place].add(value)
                places_of[topic, value].add(place)
        for (topic, place), values in values_at.items():
            if len(values) > 1:
                yield Violation(ELSEWHERE, f"{topic} at {place}: {sorted(values)}")
        for (topic, value), places in places_of.items():
            if len(places) > 1:
                yield Violation(ELSEWHERE, f"{topic} {value!r}: {sorted(places)}")

    def _sightings(self) -> Iterator[tuple[str, Place, str]]:
        for append in self._appends:
            for value, at in zip(append.values, append.at, strict=False):
                yield append.topic, at, value
        for event in self._events:
            if event.kind == DELIVERY:
                yield event["topic"], _place(event["at"]), event["value"]
        for topic, content in self._contents.items():
            for partition, sequence, value in content["events"]:
                yield topic, (partition, sequence), value

    def _of(self, topic: str) -> Iterable[_Append]:
        return (append for append in self._appends if append.topic == topic)

    # Groups

    def _groups(self) -> Iterator[Violation]:
        """A deleted group begins anew; with its topic deleted, it reads new events."""
        for (topic, group), deliveries in self._deliveries().items():
            if (topic, None) in self._deleted or (topic, group) in self._deleted:
                continue
            done: dict[int, int] = defaultdict(int)
            for event in deliveries:
                partition, sequence = _place(event["at"])
                if sequence > done[partition]:
                    detail = f"{topic}/{group} partition {partition}: {sequence} before {done[partition]}"
                    yield Violation(OUT_OF_SEQUENCE, f"{detail}, by {event.process}")
                done[partition] = max(done[partition], sequence + 1)
            got = {event["value"] for event in deliveries}
            for append in self._of(topic):
                for value in sorted(set(append.values) - got if append.done else ()):
                    yield Violation(NOT_DELIVERED, f"{topic}/{group} {value!r}")

    def _deliveries(self) -> Mapping[tuple[str, str], list[Event]]:
        found: dict[tuple[str, str], list[Event]] = defaultdict(list)
        for event in self._events:
            if event.kind == DELIVERY:
                found[event["topic"], event["group"]].append(event)
        return found

    def _progress(self) -> Iterator[Violation]:
        """Yields, in the order of the history, the deliveries before each observed progress."""
        done: dict[tuple[str, str, int], int] = defaultdict(int)
        before: dict[tuple[str, str, int], int] = defaultdict(int)
        for event in self._events:
            if event.kind == DELIVERY:
                partition, sequence = _place(event["at"])
                key = event["topic"], event["group"], partition
                done[key] = max(done[key], sequence + 1)
            elif event.kind == "progress":
                topic, group = event["topic"], event["group"]
                key = topic, group, event["partition"]
                if (topic, None) in self._deleted or (topic, group) in self._deleted:
                    continue
                if event["sequence"] < before[key]:
                    detail = f"{key}: {before[key]}, then {event['sequence']}"
                    yield Violation(BACKWARDS, detail)
                if event["sequence"] > done[key]:
                    detail = f"{key}: {event['sequence']}, and {done[key]} was not delivered yet"
                    yield Violation(AHEAD, detail)
                before[key] = max(before[key], event["sequence"])

    def _told(self) -> Iterator[Violation]:
        """A running reader knows of a deletion within a bounded time."""
        last_ns: dict[str, int] = {}
        disturbed: dict[str, int] = {}
        for event in self._events:
            last_ns[event.process] = event.mono_ns
            if event.kind == "life":
                disturbed[event["who"]] = event.mono_ns
        for (topic, group), (begin_ns, end_ns) in self._deleted.items():
            readers = {
                event.process
                for event in self._events
                if event.kind == "begin"
                and event["topic"] == topic
                and group in (None, event["group"])
                and event.mono_ns < begin_ns
            }
            for process in readers:
                heard = any(
                    event.process == process
                    and event.kind in ("told", "begin")
                    and event["topic"] == topic
                    and group in (None, event["group"])
                    and event.mono_ns > begin_ns
                    for event in self._events
                )
                still_ns = last_ns[process] - max(end_ns, disturbed.get(process, 0))
                if not heard and still_ns > _PATIENCE_NS:
                    yield Violation(
                        MISSED_DELETION, f"{process} reads {topic}/{group or 'all groups'}"
                    )

    def _others(self) -> Iterator[Violation]:
        for event in self._events:
            if event.kind == "drained" and event["lag"]:
                yield Violation(BEHIND, f"{event['topic']}: {event['lag']} events")
            if event.kind == "rows" and event["gone"]:
                yield Violation(
                    LEFT_BEHIND, f"{event['stage']}: {event['gone']} of objects that are gone"
                )
            if event.kind == "rows" and event["keyed"] > event["keyed_most"]:
                yield Violation(
                    LEFT_BEHIND,
                    f"{event['stage']}: {event['keyed']} of keys, at most {event['keyed_most']}",
                )
            if event.kind == "failed":
                yield Violation(ENDED, f"{event.process}: {event['error']}")


def _appends(events: Sequence[Event]) -> list[_Append]:
    """Returns the appends by call; those of one key are one, since their values are the same."""
    calls: dict[str, _Append] = {}
    keyed: dict[tuple[str, str], _Append] = {}
    for event in events:
        if event.kind == CALL and event["op"] in ("append", "append_once"):
            append = _Append(event["topic"], event["values"], event.mono_ns)
            if event["op"] == "append_once":
                append = keyed.setdefault((append.topic, append.values[0]), append)
            calls[event["call"]] = append
            append.ended_ns = None
    open_calls = Counter(id(append) for append in calls.values())
    for event in events:
        if event.kind == OUTCOME and event["call"] in calls:
            append = calls[event["call"]]
            open_calls[id(append)] -= 1
            append.ended_ns = event.mono_ns
            append.done = append.done or event["outcome"] == DONE
            append.refused = append.refused and event["outcome"] == REFUSED
            append.at = append.at or [_place(at) for at in event.get("at", [])]
    for append in calls.values():
        if open_calls[id(append)]:
            append.refused, append.ended_ns = False, None
    return list({id(append): append for append in calls.values()}.values())


def _deletions(events: Sequence[Event]) -> dict[tuple[str, str | None], tuple[int, int]]:
    calls = {
        event["call"]: event
        for event in events
        if event.kind == CALL and event["op"] in ("delete_topic", "delete_group")
    }
    ends = {event["call"]: event for event in events if event.kind == OUTCOME}
    last_ns = events[-1].mono_ns if events else 0
    found: dict[tuple[str, str | None], tuple[int, int]] = {}
    for name, call in calls.items():
        end = ends.get(name)
        if end is None or end["outcome"] != REFUSED:
            end_ns = last_ns if end is None else end.mono_ns
            found[call["topic"], call.get("group")] = (call.mono_ns, end_ns)
    return found


def _place(at: Sequence[int]) -> Place:
    return at[0], at[1]
