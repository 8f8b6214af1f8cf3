"""The judge finds each injected violation of a cluster by its rule, and none in the history itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.torture.brokers.judge import STARVED
from tests.torture.brokers.stage import LEASE_S
from tests.torture.cluster.judge import (
    GRANTED_WITHOUT_ETCD,
    GRANTED_WITHOUT_STORE,
    KEPT_WAITING,
    SERVED_TWICE,
    TAKE_OVER_MS,
    judge,
)
from tests.torture.history import CALL, DELIVERY, DONE, OUTCOME, Event

_TOPIC = "cluster-main"
_BROKER = 1
_CUT_MS = 10_000
_HEALED_MS = 16_000


def event(kind: str, at_ms: float, process: str = "director", **fields: Any) -> Event:
    return Event(kind, process, at_ms, int(at_ms * 1e6), fields)


def life(process: str, *consumers: str, broker: int = 0, at_ms: float = 0) -> Event:
    return event("life", at_ms, who=process, state="running", consumers=consumers, broker=broker)


def delivered(at_ms: float, process: str, consumer: str, *, door: str = "grpc") -> list[Event]:
    """A message that was created, delivered at once and acked. Its id is the moment."""
    id = f"{at_ms:.0f}"
    message = {"topic": _TOPIC, "id": id, "group": "g", "content": "c"}
    lease = {"delivery": f"{process}/{id}", "version": 5, "until": int(at_ms + LEASE_S * 1000)}
    return [
        event(CALL, at_ms - 5, call=f"c{id}", op="create", due=int(at_ms) - 4, **message),
        event(OUTCOME, at_ms - 3, call=f"c{id}", outcome=DONE, reason="", version=int(at_ms - 4)),
        event(
            DELIVERY,
            at_ms,
            process,
            consumer=consumer,
            door=door,
            due=int(at_ms) - 4,
            attempts=0,
            **message,
            **{**lease, "version": int(at_ms - 3)},
        ),
        event(CALL, at_ms + 1, process, call=f"a{id}", op="ack", **lease),
        event(OUTCOME, at_ms + 2, process, call=f"a{id}", outcome=DONE, reason="", **lease),
        event("row", 60_000, state="gone", ts=0, due=0, version=int(at_ms), **message),
    ]


def resumed(granted_ms: float, at_ms: float, process: str, consumer: str) -> list[Event]:
    """The same message, delivered once more under the same lease and acked."""
    _, _, given, ask, told, row = delivered(granted_ms, process, consumer)
    later = {"delivery": f"{process}/again-{granted_ms:.0f}", "version": given["version"] + 1}
    return [
        event(DELIVERY, at_ms, process, **{**given.fields, **later}),
        event(CALL, at_ms + 1, process, **{**ask.fields, **later}),
        event(OUTCOME, at_ms + 2, process, **{**told.fields, **later}),
        row,
    ]


def history(*more: Sequence[Event], cut: int | None = _BROKER) -> list[Event]:
    """Two processes with consumers; one broker, or all, without etcd for six seconds."""
    events = [
        life("one.1", "ada", "dan", broker=_BROKER),
        life("two.1", "eve", "fay", broker=2),
        event("cut", _CUT_MS, part="etcd", broker=cut, is_cut=True),
        event("cut", _HEALED_MS, part="etcd", broker=cut, is_cut=False),
        event("drained", 50_000, stage="cluster", left=0),
        *(each for part in more for each in part),
    ]
    return sorted(events, key=lambda each: each.mono_ns)


def rules(events: Sequence[Event]) -> set[str]:
    return {violation.rule for violation in judge(events)}


@pytest.mark.parametrize(
    ("at_ms", "door", "process"),
    [
        (_CUT_MS - 100, "http", "one.1"),
        (_CUT_MS + 1_900, "http", "one.1"),  # its session is still trusted
        (_CUT_MS + 5_000, "http", "two.1"),  # at another broker
        (_CUT_MS + 5_000, "grpc", "one.1"),  # perhaps at another broker
        (_HEALED_MS + 100, "http", "one.1"),
    ],
)
def test_rightful_deliveries_are_no_violation(at_ms: float, door: str, process: str) -> None:
    consumer = "dan" if process == "one.1" else "fay"
    assert rules(history(delivered(at_ms, process, consumer, door=door))) == set()


def test_poll_at_a_broker_without_etcd_is_found() -> None:
    granted = delivered(_CUT_MS + 5_000, "one.1", "dan", door="http")
    assert rules(history(granted)) == {GRANTED_WITHOUT_ETCD}


def test_any_delivery_while_etcd_is_stopped_is_found() -> None:
    granted = delivered(_CUT_MS + 5_000, "two.1", "eve")
    assert rules(history(granted, cut=None)) == {GRANTED_WITHOUT_ETCD}


def test_name_that_two_processes_use_in_turn_is_found() -> None:
    twin = life("twin.1", "ada", broker=2)
    turns = [
        delivered(1_000 + 100 * turn, ("one.1", "twin.1")[turn % 2], "ada") for turn in range(10)
    ]
    assert rules(history([twin], *turns)) == {SERVED_TWICE}
    # One takes the name over from the other.
    once = [
        delivered(1_000 + 100 * turn, ("one.1", "twin.1")[turn > 5], "ada") for turn in range(10)
    ]
    assert rules(history([twin], *once)) == set()


@pytest.mark.parametrize("seen", [True, False], ids=["seen before", "under way before"])
def test_resumed_leases_are_no_switches(seen: bool) -> None:
    """A twin takes the name, and with it every second lease; these keep their ends."""
    moments = [1_000 + 100 * turn for turn in range(10)]
    took_over_ms = 2_000
    kept = [delivered(at_ms, "one.1", "ada") for at_ms in moments[::2]]
    lost = [delivered(at_ms, "one.1", "ada")[: 3 if seen else 2] for at_ms in moments[1::2]]
    returned = [resumed(at_ms, took_over_ms, "twin.1", "ada") for at_ms in moments[1::2]]
    twin = life("twin.1", "ada", broker=2, at_ms=took_over_ms - 50)
    assert rules(history([twin], *kept, *lost, *returned)) == set()
    # The twin gets new leases, and the first process, too.
    turns = [
        delivered(2_100 + 100 * turn, ("one.1", "twin.1")[turn % 2], "ada") for turn in range(10)
    ]
    assert rules(history([twin], *kept, *lost, *returned, *turns)) == {SERVED_TWICE}


def test_message_of_a_forgotten_range_is_found() -> None:
    create = delivered(1_000, "one.1", "ada")[:2]
    message = {"topic": _TOPIC, "id": "1000", "group": "g", "content": "c"}
    row = event("row", 60_000, state="live", ts=996, due=996, version=996, **message)
    assert rules(history([*create, row])) == {STARVED}


# Without the store

_LONG_MS = 10_000


def without_store(*more: Sequence[Event]) -> list[Event]:
    """One broker without its store, while everything else works."""
    events = [
        life("one.1", "ada", "dan", broker=_BROKER),
        life("two.1", "eve", "fay", broker=2),
        event("cut", _CUT_MS, part="postgres", broker=_BROKER, is_cut=True),
        event("cut", _CUT_MS + _LONG_MS, part="postgres", broker=_BROKER, is_cut=False),
        event("drained", 50_000, stage="cluster", left=0),
        *(each for part in more for each in part),
    ]
    return sorted(events, key=lambda each: each.mono_ns)


def late(came_ms: float, served_ms: float) -> list[Event]:
    """A message that another broker serves some time after it came."""
    made, told, given, ask, answer, row = delivered(came_ms, "two.1", "eve")
    later_ms = served_ms - came_ms
    shifted = [
        Event(
            each.kind,
            each.process,
            each.wall_ms + later_ms,
            each.mono_ns + int(later_ms * 1e6),
            each.fields,
        )
        for each in (given, ask, answer)
    ]
    return [made, told, *shifted, row]


def test_poll_at_a_broker_without_its_store_is_found() -> None:
    granted = delivered(_CUT_MS + 2_000, "one.1", "dan", door="http")
    assert rules(without_store(granted)) == {GRANTED_WITHOUT_STORE}
    at_another = delivered(_CUT_MS + 2_000, "two.1", "fay", door="http")
    assert rules(without_store(at_another)) == set()


@pytest.mark.parametrize(
    ("after_ms", "wait_ms", "count", "is_found"),
    [
        (TAKE_OVER_MS + 1_100, 2_600, 4, True),
        (TAKE_OVER_MS + 1_100, 900, 4, False),  # served in time
        (TAKE_OVER_MS + 1_100, 2_600, 2, False),  # a slow consumer may have two
        (TAKE_OVER_MS - 3_000, 2_600, 4, False),  # while the others take over
    ],
)
def test_messages_kept_waiting_by_a_broker_without_its_store_are_found(
    after_ms: int, wait_ms: int, count: int, is_found: bool
) -> None:
    came = [_CUT_MS + after_ms + 10 * number for number in range(count)]
    waiting = [late(each, each + wait_ms) for each in came]
    others = [delivered(_CUT_MS + after_ms + 505 + n, "two.1", "fay") for n in range(3)]
    expected = {KEPT_WAITING} if is_found else set()
    assert rules(without_store(*waiting, *others)) == expected


def test_messages_that_wait_while_nothing_is_served_are_no_violation() -> None:
    """Then the store itself stands still."""
    came = [_CUT_MS + TAKE_OVER_MS + 1_100 + 10 * number for number in range(4)]
    assert rules(without_store(*(late(each, each + 2_600) for each in came))) == set()
