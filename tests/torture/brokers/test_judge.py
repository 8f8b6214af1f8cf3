"""The judge finds each injected violation by its rule, and none in the recorded history itself.

The history is that of a small play with a real broker: one message for each possible end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.stores.factory import open_store
from chronoline.testing.broker import LocalBroker
from tests.torture.brokers import judge as rules
from tests.torture.brokers.consumer import Hand, SdkHeld
from tests.torture.brokers.doors import GrpcProducer, Letter, now_ms
from tests.torture.brokers.judge import judge
from tests.torture.brokers.producer import Producer
from tests.torture.brokers.program import Program
from tests.torture.brokers.stage import record_rows
from tests.torture.history import CALL, DELIVERY, DONE, OUTCOME, REFUSED, UNKNOWN, Event, Recorder
from tests.torture.history import read_history as read

_TOPICS = [f"sqlite-{each}" for each in ("main", "poison", "fleeting")]
_MAIN, _, _FLEETING = _TOPICS
_LEASE_S = 30.0
_DAY_MS = 86_400_000
_SETTINGS = TopicSettings(window=0.05, dedupe=_DAY_MS / 1000)
_GROUP = "grpc"
_AT_ONCE = ("acked", "retried", "released", "extended", "buried", "natural", "replaced")


# The play


class _Play:
    """Does the work of the scene's processes in one process, with one message of each kind."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        self._given = {"seed": 1, "lease_s": _LEASE_S, "topics": _TOPICS, "calm": folder / "calm"}
        self.director = Recorder(folder, "director")

    def note(self, who: str, state: str, *consumers: str) -> None:
        self.director.record("life", who=who, state=state, consumers=consumers)

    def _program(self, process: str) -> Program:
        return Program(Recorder(self._folder, process), self._given)

    async def run(self) -> None:
        door = GrpcProducer(self._address, _GROUP, timeout_s=30)
        producer = Producer(self._program("producer.1"), door, _GROUP)
        await self._create_topics()
        await self._send(producer)
        self.note("one.1", "running", "ada")
        await self._consume("one.1", "ada", _MAIN, producer)
        self.note("one.1", "stopped", "ada")
        self.note("two.1", "running", "ada")
        await self._consume("two.1", "ada", _MAIN)
        self.note("three.1", "running", "bob")
        await producer.create(_MAIN, [self._letter("solo")])
        await self._consume("three.1", "bob", _MAIN)
        self.note("four.1", "running", "cleo")
        await self._consume("four.1", "cleo", _FLEETING)
        await door.close()
        self.director.record("drained", stage="sqlite", left=1)

    async def _create_topics(self) -> None:
        async with AsyncClient(self._address) as client:
            for topic in _TOPICS:
                call = self.director.call("create_topic", topic=topic)
                made = await client.create_topic(topic, _SETTINGS)
                self.director.outcome(call, DONE, uid=made.uid)

    async def _send(self, producer: Producer) -> None:
        await producer.create(_MAIN, [self._letter(each) for each in _AT_ONCE])
        await producer.create(_MAIN, [self._letter("natural", b"another")])
        await producer.create(_MAIN, [self._letter("replaced", b"another")], "replace")
        await producer.create(_MAIN, [self._letter("waiting", ahead_ms=_DAY_MS)])
        for id in ("cancelled", "rescheduled"):
            await producer.create(_MAIN, [self._letter(id, ahead_ms=_DAY_MS)])
        await producer.cancel(_MAIN, "cancelled")
        await producer.cancel(_MAIN, "cancelled")
        await producer.reschedule(_MAIN, "rescheduled", 100)
        await producer.create(_FLEETING, [self._letter("dropped", ahead_ms=_DAY_MS)])
        async with AsyncClient(self._address) as client:
            call = self.director.call("drop_topic", topic=_FLEETING)
            await client.delete_topic(_FLEETING)
            self.director.outcome(call, DONE)
        while not await self._created_again(_FLEETING):
            await asyncio.sleep(0.02)  # nothing signals that a name is free
        await producer.create(_FLEETING, [self._letter("fresh")])

    async def _created_again(self, topic: str) -> bool:
        async with AsyncClient(self._address) as client:
            if topic in [each.name for each in await client.topics()]:
                return True
            call = self.director.call("create_topic", topic=topic)
            try:
                made = await client.create_topic(topic, _SETTINGS)
            except Exception:
                self.director.outcome(call, REFUSED, "topic_exists")
                return False
            self.director.outcome(call, DONE, uid=made.uid)
            return True

    def _letter(self, id: str, body: bytes = b"body", ahead_ms: int = 0) -> Letter:
        return Letter(id=id, due_ms=now_ms() + ahead_ms, body=body)

    async def _consume(
        self, process: str, consumer: str, topic: str, producer: Producer | None = None
    ) -> None:
        """Settles deliveries. The first consumer ends with a leased message, the others at the end."""
        hand = Hand(self._program(process), consumer)
        client = AsyncClient(self._address)
        seen, settled = set[str](), set[str]()
        async for lease in client.consume(topic, consumer=consumer, lease=_LEASE_S):
            delivery, held = hand.took_lease(lease), SdkHeld(lease)
            if producer is not None and lease.id == "left":
                break
            match lease.id if lease.id not in seen else "again":
                case "retried":
                    await hand.settle(delivery, held, "retry", delay_s=0.3)
                case "released":
                    await hand.settle(delivery, held, "release", delay_s=0.3)
                case "buried":
                    await hand.settle(delivery, held, "bury")
                    settled.add(lease.id)
                case "extended":
                    await hand.settle(delivery, held, "extend", delay_s=2 * _LEASE_S)
                    await hand.settle(delivery, held, "ack")
                    settled.add(lease.id)
                case _:
                    await hand.settle(delivery, held, "ack")
                    settled.add(lease.id)
            seen.add(lease.id)
            if producer is not None and settled == {*_AT_ONCE, "rescheduled"}:
                await producer.create(_MAIN, [self._letter("left")])
            if lease.id in ("left", "fresh", "solo"):
                break
        await client.close()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """A history without violations."""
    folder = tmp_path_factory.mktemp("history")
    url = f"sqlite:///{folder / 'timeline.db'}"
    with open_store(url) as store, LocalBroker(store) as broker:
        play = _Play(folder, broker.address)
        asyncio.run(play.run())
    record_rows(play.director, url)
    return read(folder)


# Injecting


class Tale(list[Event]):
    """A mutable history; events are found by message and kind."""

    def place(self, id: str, kind: str, nth: int = 0, **wanted: Any) -> int:
        """Returns the index of an event of a message."""
        names: set[str] = {id}  # the message, its deliveries and its calls
        found = []
        for place, event in enumerate(self):
            about = {event.get("id"), event.get("delivery"), event.get("call")}
            if not names & about:
                continue
            names |= {event.get(each) for each in ("delivery", "call")} - {None}
            op = self.op(event)
            if event.kind == kind and all(
                (op if name == "op" else event.get(name)) == value for name, value in wanted.items()
            ):
                found.append(place)
        return found[nth]

    def op(self, event: Event) -> Any:
        call = event.get("call")
        ops = (each["op"] for each in self if each.kind == CALL and each["call"] == call)
        return next(ops, None)

    def change(self, id: str, kind: str, nth: int = 0, *, op: str = "", **fields: Any) -> Event:
        """Changes the fields of an event."""
        place = self.place(id, kind, nth, **({"op": op} if op else {}))
        self[place] = replace(self[place], fields={**self[place].fields, **fields})
        return self[place]

    def take_out(self, id: str, kind: str, nth: int = 0, **wanted: Any) -> Event:
        return self.pop(self.place(id, kind, nth, **wanted))

    def add(self, like: Event, *, after: Event, process: str = "", **fields: Any) -> Event:
        """Inserts a changed copy of an event after another event."""
        made = replace(
            like,
            process=process or like.process,
            mono_ns=after.mono_ns + 1_000,
            fields={**like.fields, **fields},
        )
        self.insert(self.index(after) + 1, made)
        return made

    def event(self, id: str, kind: str, nth: int = 0, **wanted: Any) -> Event:
        return self[self.place(id, kind, nth, **wanted)]

    def add_call(self, op: str, *, after: Event, outcome: str = DONE, **fields: Any) -> None:
        """Adds a call of a producer."""
        call = replace(after, kind=CALL, process="other", fields={"call": "other:1", "op": op})
        asked = self.add(call, after=after, **fields)
        told = replace(asked, kind=OUTCOME, fields={"call": "other:1", "reason": ""})
        self.add(told, after=asked, outcome=outcome)

    def freeze_earlier(self, process: str) -> None:
        """Adds a process that ran and was frozen ten seconds before."""
        for place, event in enumerate(self):
            if event.kind == "life" and event["who"] == process:
                self[place] = replace(event, mono_ns=event.mono_ns - 10_000_000_000)


def _stale_success(tale: Tale) -> None:
    """The frozen twin acks after its lease went to another."""
    given = tale.event("left", DELIVERY)
    ack = tale.event("left", CALL, op="ack")
    late = tale.add(
        ack,
        after=tale.event("left", OUTCOME, op="ack"),
        process="one.1",
        call="one.1:99",
        delivery=given["delivery"],
        version=given["version"],
    )
    told = replace(late, kind=OUTCOME, fields={"call": "one.1:99", "reason": ""})
    tale.add(told, after=late, outcome=DONE, version=given["version"], until=given["until"])


def _stale_version_of_its_own(tale: Tale) -> None:
    tale.change("extended", CALL, op="ack", stale=tale.event("extended", DELIVERY)["version"])


def _version_twice(tale: Tale) -> None:
    given = tale.event("acked", DELIVERY)
    tale.add(given, after=given, process="five.1", delivery="five.1/1", consumer="dan")


def _two_changes(tale: Tale) -> None:
    tale.change("retried", OUTCOME, op="ack", version=tale.event("retried", DELIVERY)["version"])


def _overlap(tale: Tale) -> None:
    given = tale.event("solo", DELIVERY)
    other = {"delivery": "five.1/1", "consumer": "dan", "version": given["version"] + 1}
    tale.add(given, after=given, process="five.1", **other)


def _older_after_newer(tale: Tale) -> None:
    given = tale.event("retried", DELIVERY, 1)
    older = tale.event("retried", DELIVERY)
    tale.add(
        older, after=given, process="five.1", delivery="five.1/1", version=older["version"] - 1,
        consumer="dan",
    )  # fmt: skip


def _owner_broke_lease(tale: Tale) -> None:
    held = tale.event("extended", OUTCOME, op="extend")
    tale.add_call("cancel", after=held, topic=_MAIN, id="extended", group=_GROUP)


def _live_refused(tale: Tale) -> None:
    tale.change("solo", OUTCOME, op="ack", outcome=REFUSED, reason="stale")


def _too_soon(tale: Tale) -> None:
    tale.change("retried", OUTCOME, op="retry", outcome=REFUSED, reason="too_soon")


def _extension_too_soon(tale: Tale) -> None:
    tale.change("extended", OUTCOME, op="extend", outcome=REFUSED, reason="too_soon")


def _lost(tale: Tale) -> None:
    tale.take_out("waiting", "row")


def _deleted_by_nobody(tale: Tale) -> None:
    tale.change("acked", OUTCOME, op="ack", outcome=REFUSED, reason="unavailable")


def _served_again(tale: Tale) -> None:
    given = tale.event("acked", DELIVERY)
    acked = tale.event("acked", OUTCOME, op="ack")
    tale.add(given, after=acked, delivery="one.1/ada/99", version=given["version"] + 2)


def _cancelled_row_came_back(tale: Tale) -> None:
    tale.change("cancelled", "row", state="live", ts=now_ms() + _DAY_MS)


def _two_ends(tale: Tale) -> None:
    acked = tale.event("acked", OUTCOME, op="ack")
    tale.add_call("cancel", after=acked, topic=_MAIN, id="acked", group=_GROUP)


def _two_messages(tale: Tale) -> None:
    tale.change("natural", OUTCOME, 1, op="create", outcome=DONE, reason="")


def _repeated_delete(tale: Tale) -> None:
    tale.change("cancelled", OUTCOME, 1, op="cancel", outcome=REFUSED, reason="deleted")


def _early(tale: Tale) -> None:
    later = tale.event("acked", CALL, op="create")["due"] + 60_000
    tale.change("acked", CALL, op="create", due=later)
    tale.change("acked", DELIVERY, due=later)


def _unasked_due(tale: Tale) -> None:
    tale.change("acked", DELIVERY, due=tale.event("acked", DELIVERY)["due"] - 1)


def _changed_content(tale: Tale) -> None:
    tale.change("acked", DELIVERY, content="other")


def _changed_owner(tale: Tale) -> None:
    tale.change("buried", "row", group="other")


def _replaced_content_served(tale: Tale) -> None:
    old = tale.event("replaced", CALL, op="create")["content"]
    tale.change("replaced", DELIVERY, content=old)


def _not_allowed(tale: Tale) -> None:
    tale.change("rescheduled", CALL, op="reschedule", group="other")


def _acked_as_another(tale: Tale) -> None:
    tale.change("acked", CALL, op="ack", consumer="nobody")


def _starved(tale: Tale) -> None:
    drained = next(event for event in tale if event.kind == "drained")
    tale.change("waiting", "row", ts=int(drained.wall_ms) - 60_000)


def _wrong_clock(tale: Tale) -> None:
    told = tale.event("acked", OUTCOME, op="create")
    tale.change("acked", OUTCOME, op="create", version=told["version"] - 10_000)


def _old_version_returned(tale: Tale) -> None:
    tale.freeze_earlier("one.1")
    tale.change("left", DELIVERY, 1, version=tale.event("left", DELIVERY)["version"])


def _same_version_returned(tale: Tale) -> None:
    tale.change("left", DELIVERY, 1, version=tale.event("left", DELIVERY)["version"])


def _topic_missing(tale: Tale) -> None:
    """A create is done between the deletion of its topic and the next creation."""
    dropped = next(
        event for event in tale if event.kind == OUTCOME and tale.op(event) == "drop_topic"
    )
    tale.add_call(
        "create", after=dropped, topic=_FLEETING, id="between", group=_GROUP, due=0, content=""
    )


def _dropped_returned(tale: Tale) -> None:
    created = tale.event("dropped", CALL, op="create")
    given = tale.event("fresh", DELIVERY)
    tale.add(given, after=given, id="dropped", delivery="four.1/9", due=created["due"])


def _refused_happened(tale: Tale) -> None:
    tale.change("acked", OUTCOME, op="create", outcome=REFUSED, reason="unavailable")


def _done_unseen(tale: Tale) -> None:
    tale.change("rescheduled", DELIVERY, due=tale.event("rescheduled", CALL, op="create")["due"])


def _retry_not_counted(tale: Tale) -> None:
    tale.change("retried", DELIVERY, 1, attempts=0)


def _release_counted(tale: Tale) -> None:
    tale.change("released", DELIVERY, 1, attempts=1)


def _unknown_cost_lease(tale: Tale) -> None:
    tale.change("extended", OUTCOME, op="extend", outcome=UNKNOWN)
    tale.change("extended", OUTCOME, op="ack", outcome=REFUSED, reason="stale")


def _run_twice(tale: Tale) -> None:
    given = tale.event("solo", DELIVERY)
    tale.add(given, after=given, delivery="three.1/bob/99", version=given["version"] + 1)


def _lost_without_reason(tale: Tale) -> None:
    given = tale.event("solo", DELIVERY)
    lost = {each: given[each] for each in ("delivery", "version", "until")}
    tale.add(replace(given, kind="lost", fields=lost), after=given)
    tale.change("solo", OUTCOME, op="ack", outcome=REFUSED, reason="stale")


def _taken_away(tale: Tale) -> None:
    """The twin is refused, although the first has been frozen for long."""
    tale.freeze_earlier("one.1")
    tale.change("left", OUTCOME, op="ack", outcome=REFUSED, reason="stale")


def _version_went_back(tale: Tale) -> None:
    tale.change("acked", "row", version=1)


_INJECTIONS: Sequence[tuple[Callable[[Tale], None], str]] = [
    (_version_went_back, rules.VERSION_WENT_BACK),
    (_stale_success, rules.STALE_SUCCESS),
    (_stale_version_of_its_own, rules.STALE_SUCCESS),
    (_version_twice, rules.VERSION_TWICE),
    (_two_changes, rules.TWO_CHANGES),
    (_overlap, rules.OVERLAP),
    (_older_after_newer, rules.OLDER_AFTER_NEWER),
    (_owner_broke_lease, rules.OWNER_BROKE_LEASE),
    (_live_refused, rules.LIVE_REFUSED),
    (_too_soon, rules.TOO_SOON),
    (_extension_too_soon, rules.TOO_SOON),
    (_lost, rules.LOST),
    (_deleted_by_nobody, rules.LOST_UNDELETED),
    (_served_again, rules.SERVED_AGAIN),
    (_cancelled_row_came_back, rules.SERVED_AGAIN),
    (_two_ends, rules.TWO_ENDS),
    (_two_messages, rules.TWO_MESSAGES),
    (_repeated_delete, rules.REPEATED_DELETE),
    (_early, rules.EARLY),
    (_unasked_due, rules.UNREQUESTED_DUE),
    (_changed_content, rules.CHANGED_CONTENT),
    (_changed_owner, rules.CHANGED_CONTENT),
    (_replaced_content_served, rules.CHANGED_CONTENT),
    (_not_allowed, rules.NOT_ALLOWED),
    (_acked_as_another, rules.NOT_ALLOWED),
    (_starved, rules.STARVED),
    (_wrong_clock, rules.WRONG_CLOCK),
    (_old_version_returned, rules.OLD_VERSION_RETURNED),
    (_same_version_returned, rules.OLD_VERSION_RETURNED),
    (_dropped_returned, rules.DROPPED_RETURNED),
    (_topic_missing, rules.NO_TOPIC),
    (_refused_happened, rules.REFUSED_HAPPENED),
    (_done_unseen, rules.DONE_UNSEEN),
    (_retry_not_counted, rules.ATTEMPTS),
    (_release_counted, rules.ATTEMPTS),
    (_unknown_cost_lease, rules.UNKNOWN_COST_LEASE),
    (_lost_without_reason, rules.UNKNOWN_COST_LEASE),
    (_run_twice, rules.RUN_TWICE),
    (_taken_away, rules.TAKEN_AWAY),
]


def test_good_history_has_no_violation(good: list[Event]) -> None:
    assert judge(good) == []


@pytest.mark.parametrize(
    ("inject", "rule"), _INJECTIONS, ids=[inject.__name__[1:] for inject, _ in _INJECTIONS]
)
def test_injected_violation_is_found(
    good: list[Event], inject: Callable[[Tale], None], rule: str
) -> None:
    tale = Tale(good)
    inject(tale)
    assert rule in [violation.rule for violation in judge(tale)]


def test_every_rule_has_an_injection() -> None:
    named = {
        value
        for name, value in vars(rules).items()
        if name.isupper() and isinstance(value, str) and value[0].isdigit()
    }
    assert named == {rule for _, rule in _INJECTIONS}


def test_lease_that_went_with_its_topic_is_not_broken_by_the_owner(good: list[Event]) -> None:
    """The owner's call finds the topic that was created again, in which the id is free."""
    tale = Tale(good)
    _owner_broke_lease(tale)
    held = tale.event("extended", OUTCOME, op="extend")
    tale.add_call("drop_topic", after=held, topic=_MAIN)
    assert rules.OWNER_BROKE_LEASE not in [violation.rule for violation in judge(tale)]


def test_unknown_outcome_may_come_true_later(good: list[Event]) -> None:
    """A replacement that was not answered waits in a broker without its store, and is made after an ack."""
    tale = Tale(good)
    made, given = tale.event("acked", OUTCOME, op="create"), tale.event("acked", DELIVERY)
    acked, version = tale.event("acked", OUTCOME, op="ack"), given["version"] + 2
    asked = {name: given[name] for name in ("topic", "id", "group", "due")}
    tale.add_call("replace", after=made, outcome=UNKNOWN, content="other", **asked)
    tale.add(given, after=acked, delivery="one.1/ada/99", version=version, content="other")
    tale.change("acked", "row", version=version + 1)
    assert judge(tale) == []


def test_unknown_outcome_is_neither_done_nor_refused(good: list[Event]) -> None:
    tale = Tale(good)
    for id, op in (("acked", "ack"), ("cancelled", "cancel"), ("retried", "retry")):
        tale.change(id, OUTCOME, op=op, outcome=UNKNOWN, reason="OutcomeUnknown")
    tale.take_out("natural", OUTCOME, op="create")
    tale.take_out("released", OUTCOME, op="release")
    assert judge(tale) == []
