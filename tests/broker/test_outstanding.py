"""The broker's record of its leases, after lost answers and refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.subscription import Subscription
from chronoline.client import TopicSettings
from chronoline.client.leases import AsyncLease
from chronoline.core.change import lease_change
from chronoline.core.errors import Refused
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import Lease, LeasedMessage, NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import Served, serving
from tests.broker.raw_streams import raw_consumer
from tests.core.leased import ids, leased
from tests.deadline import until

_LEASE_S = 600


def _as_lease(lease: AsyncLease, consumer: str) -> Lease:
    return Lease(id=lease.id, consumer=consumer, version=lease.version, until=0)


def test_extension_of_an_older_version_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            leases = client.consume("jobs", consumer="c", lease=_LEASE_S)
            lease = await anext(leases)
            before = lease.version
            await lease.extend(_LEASE_S)
            lease.version, now = before, lease.version
            with pytest.raises(Refused, match="not the current one"):
                await lease.extend(_LEASE_S)
            (subscription,) = served.subscriptions
            assert subscription.outstanding["a"].version == now

    asyncio.run(play())


@pytest.mark.parametrize("what", ["release too soon", "ack of an older version"])
def test_lease_stays_known_after_a_refused_settlement(tmp_path: Path, what: str) -> None:
    """Otherwise the broker takes it for one of an unanswered reservation and returns it."""

    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            leases = client.consume("jobs", consumer="c", lease=_LEASE_S)
            lease = await anext(leases)
            assert served.node.parts is not None
            carrier = served.node.parts.carrier
            held = _as_lease(lease, "c")
            if what == "release too soon":
                (outcome,) = await carrier.change(
                    topic.uid, [lease_change(Operation.RELEASE, held, 1)]
                )
                assert outcome.refusal is Refusal.TOO_SOON
            else:
                await lease.extend(_LEASE_S)
                (outcome,) = await carrier.change(topic.uid, [lease_change(Operation.ACK, held)])
                assert outcome.refusal is Refusal.STALE
            (subscription,) = served.subscriptions
            assert subscription.outstanding["a"].version == lease.version
            await lease.ack()
            await until(lambda: not subscription.outstanding)
            await leases.aclose()

    asyncio.run(play())


class _Slow:
    """A store in which one method waits until the test frees it."""

    def __init__(self, store: Store, what: str) -> None:
        self._store = store
        self._what = what
        self.free = threading.Event()
        self.free.set()
        self.waits = threading.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self._what:
            return found

        def ask(*given: Any, **named: Any) -> Any:
            if not self.free.is_set():
                self.waits.set()
                self.free.wait(60)
            return found(*given, **named)

        return ask


def test_late_reservation_is_returned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise its messages would wait for the end of the lease, ten minutes here."""

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            slow: Any = _Slow(store, "reserve")
            async with serving(slow, patience_s=0.2) as served, served.client() as client:
                topic = await client.create_topic("jobs", TopicSettings(window=0.1))
                leases = client.consume("jobs", lease=_LEASE_S)
                coming = asyncio.ensure_future(anext(leases))
                await until(lambda: bool(served.subscriptions))
                slow.free.clear()
                await until(slow.waits.is_set)
                store.create(topic.uid, [NewMessage(id="a", due=1)], now_ms=2)
                # The broker no longer waits for it.
                await until(lambda: "reserving for topic 'jobs' failed" in caplog.text)
                slow.free.set()
                lease = await asyncio.wait_for(coming, 60)
                assert (lease.id, lease.attempts) == ("a", 0)  # no consumer had begun with it
                await lease.ack()
                await leases.aclose()

    asyncio.run(play())


def test_leases_are_kept_after_a_lost_subscribe_answer(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            topic = await client.create_topic("jobs")
            await client.send("jobs", b"work", id="a")
            address = served.address
            async with raw_consumer(address, "c", "1") as first:
                await first.subscribe(topic.uid, 1)
                (pushed,) = (await first.hears("push")).deliveries
            for number in range(2):  # as if both answers were lost
                async with raw_consumer(address, "c", "1") as lost:
                    await lost.subscribe(topic.uid, 0, unanswered=number, a=pushed.version)
                    await lost.hears("subscribed")
                await until(lambda: not served.subscriptions)
            async with raw_consumer(address, "c", "1") as again:
                await again.subscribe(topic.uid, 0, unanswered=2, a=pushed.version)
                (kept,) = (await again.hears("subscribed")).kept
                assert (kept.id, kept.version) == ("a", pushed.version + 3)

    asyncio.run(play())


def test_deleted_topic_leaves_no_task_or_subscription(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            before = len(asyncio.all_tasks())
            for number in range(5):
                await _consume_and_drop(served, client, f"t{number}")
            await until(lambda: len(asyncio.all_tasks()) <= before + 2)
            assert served.subscriptions == []

    asyncio.run(play())


async def _consume_and_drop(served: Served, client: Any, name: str) -> None:
    topic = await client.create_topic(name, TopicSettings(window=0.1))
    async with raw_consumer(served.address, "c", "1") as stream:
        await stream.subscribe(topic.uid, 1)
        await stream.hears("subscribed")
        await client.delete_topic(name)
        await stream.hears("topic_ended")


def test_resumed_leases_beyond_the_limit_are_freed(
    tmp_path: Path,
) -> None:
    mib = 1024 * 1024
    messages = [NewMessage(id=f"m{number:03}", due=1, body=bytes(mib)) for number in range(80)]

    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            now_ms = SystemClock().now_ms()
            topic = store.create_topic("jobs", now_ms=now_ms)
            store.create(topic.uid, messages, now_ms=now_ms)
            taken = store.reserve(
                topic.uid,
                topic.all_buckets,
                consumer="c",
                limit=80,
                lease_ms=600_000,
                now_ms=now_ms,
            )
            assert len(taken.leased) == 80
            async with serving(store) as served, raw_consumer(served.address, "c", "1") as stream:
                await stream.subscribe(topic.uid, 0)
                await stream.hears("subscribed")
                (subscription,) = served.subscriptions
                held = len(subscription.agenda)
                assert 0 < held <= 64
                assert subscription.agenda.held_bytes <= 64 * mib
                await until(lambda: _free(store, topic) == 80 - held)

    asyncio.run(play())


def _free(store: Store, topic: Topic) -> int:
    counts = store.count(
        topic.uid, topic.all_buckets, start=0, end=MAX_TIME_MS, now_ms=SystemClock().now_ms()
    )
    return counts.available


class _Deaf:
    """A receiver that is far away."""

    name = instance = "c"
    rack = ""
    busy = clogged = False
    advance_ms = 35

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        raise AssertionError("nobody pushes here")

    def shared(self, topic: Topic, share: BucketRange) -> None:
        raise AssertionError("nobody deals here")

    def replaced(self, topic: Topic) -> None:
        raise AssertionError("nobody takes its name")

    def paused(self, topic: Topic, reason: str) -> None:
        raise AssertionError("nothing pauses here")

    def ended(self, topic: Topic, reason: str) -> None:
        raise AssertionError("nothing ends here")


@pytest.mark.parametrize(
    ("largest_body_bytes", "most"), [(0, 500), (1024 * 1024, 300), (8 * 1024 * 1024, 32)]
)
def test_reservation_is_bounded_by_memory(largest_body_bytes: int, most: int) -> None:
    settings = TopicSettings(largest_body_bytes=largest_body_bytes).in_ms()
    topic = Topic(uid=1, name="t", settings=settings)
    subscription = Subscription(
        topic, _Deaf(), lease_ms=1_000, credit=10_000, now_ms=0, changed=lambda _: None
    )
    subscription.agenda.largest_bytes = 1  # the last ones were tiny
    assert 1 <= subscription.wanted <= most
    assert 1 <= subscription.page <= 2 * most


def test_message_whose_lease_nearly_ends_is_not_pushed() -> None:
    """A consumer could neither finish it nor extend its lease, so that others get it too."""
    topic = Topic(uid=1, name="t", settings=TopicSettings().in_ms())
    subscription = Subscription(
        topic, _Deaf(), lease_ms=1_000, credit=10, now_ms=0, changed=lambda _: None
    )
    subscription.joined = True
    subscription.agenda.reserved(
        [leased("late", due=0, until=1_000), leased("in time", due=0, until=1_001)],
        next_ts=None,
        more=False,
        now_ms=0,
    )
    assert ids(subscription.take_due(900)) == ["in time"]
    assert [lease.id for lease in subscription.take_lapsed()] == ["late"]
