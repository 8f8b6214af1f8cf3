"""The judge of lanes under overload: nothing is doubled, early or lost, and they are on time again.

A pure function. The scene breaks nothing: it slows the output and the store. So every message that is
published twice is a violation. The judge also finds that a run proves nothing: no message had to wait for
longer than a lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from tests.torture.history import DELIVERY, FAULT, Event, Violation

TAKEN_IN = "taken in"
"""Messages that the store accepted: `ids`."""
CONFIRMED = "confirmed"
"""The output acknowledged a message: `id`, and `after_ms` since it was published."""
END = "end"
"""The rest in the store at the end: `waiting` and `dead`."""
_ON_TIME_MS = 1_000
"""The most that messages may be late in the median when all is quick again, on a busy machine."""
_RECOVERY_S = 2.0
"""Messages that fall due within this time after an overload may be late."""


def judge(events: Sequence[Event]) -> list[Violation]:
    """The violations in a recorded run."""
    ends = [event for event in events if event.kind == END]
    if not ends:
        return [Violation("the run did not end", "its last event is missing")]
    return [*_doubled(events), *_early(events), *_accounts(events, ends[-1]), *_recovery(events)]


def _deliveries(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind == DELIVERY]


def _doubled(events: Sequence[Event]) -> Iterator[Violation]:
    of_id: dict[str, list[Event]] = {}
    for event in _deliveries(events):
        of_id.setdefault(event["id"], []).append(event)
    for message_id, times in of_id.items():
        if len(times) > 1:
            by = ", ".join(
                f"{each.process} v{each['version']} at {each.wall_ms:.0f}" for each in times
            )
            yield Violation("48 load alone doubled a message", f"{message_id!r}: {by}")


def _early(events: Sequence[Event]) -> Iterator[Violation]:
    for event in _deliveries(events):
        if event.wall_ms < event["due"]:
            early_ms = event["due"] - event.wall_ms
            yield Violation("10 published before its due", f"{event['id']!r}: {early_ms:.1f} ms")


def _accounts(events: Sequence[Event], end: Event) -> Iterator[Violation]:
    taken = Counter(
        message_id for event in events if event.kind == TAKEN_IN for message_id in event["ids"]
    )
    fired = {event["id"] for event in _deliveries(events)}
    dead = set(end["dead"])
    if dead:
        yield Violation("48 load alone sent messages to the dead letters", f"{sorted(dead)[:5]}")
    if end["waiting"]:
        yield Violation("13 due message not served", f"{end['waiting']} wait in the store")
    missing = taken.keys() - fired - dead
    if len(missing) > end["waiting"]:
        yield Violation("31 input neither fired nor dead nor waiting", f"{sorted(missing)[:5]}")
    for message_id in fired - taken.keys():
        yield Violation("31 fired without an input", repr(message_id))


def _recovery(events: Sequence[Event]) -> Iterator[Violation]:
    hold_ms = _hold_ms(events)
    waits_ms = [event["after_ms"] for event in events if event.kind == CONFIRMED]
    if max(waits_ms, default=0) <= hold_ms:
        yield Violation("48 was not judged", f"no message waited for {hold_ms} ms")
    faults = [event for event in events if event.kind == FAULT]
    if not faults:
        yield Violation("48 was not judged", "nothing was slowed")
        return
    from_ms = faults[-1].wall_ms + _RECOVERY_S * 1000
    late_ms = [
        event.wall_ms - event["due"] for event in _deliveries(events) if event["due"] >= from_ms
    ]
    if not late_ms:
        yield Violation("48 was not judged", "no message fell due after the overload")
    elif median(late_ms) > _ON_TIME_MS:
        yield Violation(
            "48 not on time again",
            f"{len(late_ms)} messages, {median(late_ms):.0f} ms in the median",
        )


def _hold_ms(events: Sequence[Event]) -> int:
    found: Mapping[str, int] = {
        event.process: event["hold_ms"] for event in events if event.kind == "lane"
    }
    return max(found.values(), default=0)
