"""A broker whose clock is too far from the store's refuses changes until it is right."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chronoline.broker.client_clocks import Timekeeper
from chronoline.broker.context import BrokerContext
from chronoline.broker.trusted_clock import TrustedClock
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.core.change import CHANGES, Change
from chronoline.core.errors import BrokerUnavailable, Refused, StoreUnavailable
from chronoline.core.message import LeasedMessage, NewMessage
from chronoline.core.permissions import Producer
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.partner_traffic import PartnerTraffic
from chronoline.runtime.timestamps import to_ms
from chronoline.stores.factory import open_store
from chronoline.testing import ManualClock
from chronoline.testing.postgres import PostgresServer
from tests.broker.clocks import WRITES, MovableClock, Recorded
from tests.broker.http.served import Served, serving
from tests.broker.metric_samples import scrape
from tests.broker.nodes import running
from tests.deadline import until

_JUMPS_MS = [10_000, -10_000]
_ABOUT_10 = r"(9|10)\.\d"
"""Seconds, as far as a store can be asked what time it is."""
_FAR_MS = 5_000
"""Larger than the latency of a store, and smaller than the steps of the clocks."""
_QUICK = TopicSettings(window=0.1)


# The clock by itself


class _Ticks:
    """The clock that only counts."""

    def __init__(self) -> None:
        self.us = 5_000_000

    def __call__(self) -> int:
        return self.us

    def pass_ms(self, ms: int, *clocks: ManualClock) -> None:
        self.us += ms * 1000
        for clock in clocks:
            clock.advance(ms)


class _Store:
    """A store with a clock, which takes its time to answer."""

    def __init__(self, clock_ms: Callable[[], int | None]) -> None:
        self.clock_ms = clock_ms
        self.traffic = PartnerTraffic()


def _compared(bound_ms: int = 1_000) -> tuple[TrustedClock, ManualClock, ManualClock, _Ticks, Any]:
    ticks, ours, theirs = _Ticks(), ManualClock(), ManualClock()
    clock = TrustedClock(ours, bound_ms=bound_ms, monotonic_us=ticks)
    store: Any = _Store(theirs.now_ms)
    clock.compare(store)
    return clock, ours, theirs, ticks, store


def _slow_store(ticks: _Ticks, ours: ManualClock, theirs: ManualClock, *, took_ms: int) -> Any:
    """One whose answer is as old as it took."""

    def slowly() -> int:
        now_ms = theirs.now_ms()
        ticks.pass_ms(took_ms, ours, theirs)
        return now_ms

    return _Store(slowly)


def test_comparison_measures_the_way_to_the_store() -> None:
    clock, ours, theirs, ticks, _ = _compared()
    store = _slow_store(ticks, ours, theirs, took_ms=30)
    clock.compare(store)
    assert store.traffic.latency_ms == pytest.approx(15)


def test_clock_within_the_bound_is_trusted() -> None:
    clock, ours, _, ticks, _ = _compared()
    assert (clock.now_ms(), clock.ahead_ms, clock.problem) == (ours.now_ms(), 0, "")
    ticks.pass_ms(60_000, ours)
    ours.set(ours.now_ms() + 1_000)
    assert (clock.now_ms(), clock.ahead_ms) == (ours.now_ms(), 1_000)


@pytest.mark.parametrize(
    ("by_ms", "words"), [(1_001, "1.0 s ahead of"), (-10_000, "10.0 s behind")]
)
def test_moved_clock_is_refused_at_once(by_ms: int, words: str) -> None:
    clock, ours, _, ticks, _ = _compared()
    ticks.pass_ms(5_000, ours)
    ours.set(ours.now_ms() + by_ms)  # the store was not asked meanwhile
    assert clock.ahead_ms == by_ms
    with pytest.raises(
        BrokerUnavailable, match=rf"clock is {words} the store's.*nothing was changed"
    ):
        clock.now_ms()
    ours.set(ours.now_ms() - by_ms)
    assert clock.now_ms() == ours.now_ms()


def test_moved_store_clock_is_noticed_by_the_next_comparison() -> None:
    clock, _, theirs, _, store = _compared()
    theirs.set(theirs.now_ms() - 10_000)
    assert clock.problem == ""
    clock.compare(store)
    assert clock.problem.startswith("this broker's clock is 10.0 s ahead of the store's")


def test_latency_of_the_answer_is_not_drift() -> None:
    clock, ours, theirs, ticks, _ = _compared(bound_ms=100)
    clock.compare(_slow_store(ticks, ours, theirs, took_ms=180))
    assert (clock.ahead_ms, clock.problem) == (90, "")
    ours.set(ours.now_ms() + 101)  # 191 measured, of which 90 are uncertain
    assert clock.problem


def test_slow_answer_does_not_replace_a_better_one() -> None:
    clock, ours, theirs, ticks, _ = _compared(bound_ms=100)
    clock.compare(_slow_store(ticks, ours, theirs, took_ms=8_000))
    assert (clock.ahead_ms, clock.problem) == (0, "")
    ours.set(ours.now_ms() + 2_000)
    assert clock.problem


def test_store_without_a_clock_measures_no_drift() -> None:
    ours = ManualClock()
    clock = TrustedClock(ours)
    store: Any = _Store(lambda: None)
    clock.compare(store)
    clock.not_compared("the store is away")
    ours.advance(seconds=3_600)
    assert (clock.now_ms(), clock.ahead_ms) == (ours.now_ms(), None)


def test_uncompared_clock_is_refused() -> None:
    _, ours, theirs, _, store = _compared()
    clock = TrustedClock(ours)
    clock.not_compared("the store is away")
    with pytest.raises(BrokerUnavailable, match="was not compared with the store's: the store is"):
        clock.now_ms()
    theirs.set(ours.now_ms())
    clock.compare(store)
    clock.not_compared("the store is away")  # what is known stays
    assert clock.now_ms() == ours.now_ms()


def test_stamps_continue_while_the_clock_is_refused() -> None:
    ticks, ours, trusted = _Ticks(), ManualClock(), [True]
    keeper = Timekeeper(lambda: ours.now_ms() * 1000, ticks, is_trusted=lambda: trusted[0])
    before_us, _ = keeper.stamp()
    trusted[0] = False
    ticks.pass_ms(100, ours)
    ours.set(ours.now_ms() - 10_000)
    assert keeper.stamp() == (before_us + 100_000, 0)
    ours.set(ours.now_ms() + 10_000)
    trusted[0] = True
    assert keeper.stamp() == (before_us + 100_000, 0)  # as if nothing had been
    ours.set(ours.now_ms() - 10_000)
    assert keeper.stamp() == (before_us + 100_000 - 10_000_000, 1)


# A broker on PostgreSQL, which has a clock of its own


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.create_database("drifting")


@dataclass(slots=True)
class _Scene:
    """A node, its clock, its store, and a client that does not wait for long."""

    served: Served
    clock: MovableClock
    store: Recorded
    client: AsyncClient

    @property
    def parts(self) -> BrokerContext:
        assert self.served.node.parts is not None
        return self.served.node.parts

    async def is_ready(self) -> bool:
        return (await self.served.http.get("/readyz")).status_code == 200

    async def samples(self) -> dict[tuple[str, str], float]:
        return {
            (each.name, each.labels.get("target") or each.labels.get("type", "")): each.value
            for each in await scrape(self.served.http)
        }

    async def compared_again(self) -> None:
        """Some upkeep has been due meanwhile."""
        before = self.store.asked.count("clock_ms")
        await until(lambda: self.store.asked.count("clock_ms") >= before + 4)


@asynccontextmanager
async def _scene(url: str) -> AsyncIterator[_Scene]:
    clock = MovableClock()
    with open_store(url) as store:
        recorded: Any = Recorded(store)
        async with (
            serving(recorded, clock=clock) as served,
            AsyncClient(f"127.0.0.1:{_port(served)}", timeout=60) as client,
        ):
            yield _Scene(served, clock, recorded, client)


def _port(served: Served) -> int:
    assert served.node.grpc is not None
    return served.node.grpc.port


@pytest.mark.parametrize("by_ms", _JUMPS_MS)
def test_broker_with_a_wrong_clock_changes_nothing_and_recovers(url: str, by_ms: int) -> None:
    async def play() -> None:
        async with _scene(url) as scene:
            client, name = scene.client, f"off{by_ms}"
            await client.create_topic(name, _QUICK)
            leases = client.consume(name, lease=60)
            await client.send(name, id="held")
            held = await anext(leases)
            await client.send(name, id="later", delay=3)
            following = asyncio.ensure_future(anext(leases))

            scene.clock.ahead_ms = by_ms
            unready = await scene.served.http.get("/readyz")
            assert unready.status_code == 503
            where = "ahead of" if by_ms > 0 else "behind"
            assert re.search(rf"{_ABOUT_10} s {where} the store's", unready.json()["detail"])
            found = await scene.samples()
            assert found["broker_degradation_state", "clock"] == 1
            assert found["broker_active_timedrifts_count", "storage"] == 1
            assert found["broker_active_timedrifts_seconds_avg", "storage"] > _FAR_MS / 1000

            acking = asyncio.ensure_future(held.ack())
            sending = asyncio.ensure_future(client.send(name, id="sent"))
            await scene.compared_again()
            assert not any(each.done() for each in (acking, sending, following))
            assert not held.is_lost
            assert await client.lookup(name, "sent") is None
            later = await client.lookup(name, "later")
            assert later is not None
            assert later.lock_consumer is None

            scene.clock.ahead_ms = 0
            await acking
            await sending
            came = [await following, await anext(leases)]
            assert time.time() * 1000 >= to_ms(later.due)
            assert {each.id for each in came} == {"later", "sent"}
            for lease in came:
                await lease.ack()
            await until(scene.is_ready)
            scene.store.asked.clear()
            await until(lambda: "purge" in scene.store.asked)
            assert scene.store.farthest_ms < _FAR_MS  # nothing was purged or written by that clock
            assert (await scene.samples())["broker_degradation_state", "clock"] == 0
            await leases.aclose()

    asyncio.run(play())


def test_wrong_clock_refuses_changes_and_answers_queries(url: str) -> None:
    async def play() -> None:
        async with _scene(url) as scene:
            topic = await scene.parts.topics.create("refusing", _QUICK.in_ms(), if_missing=False)
            scene.clock.ahead_ms = 10_000
            scene.store.asked.clear()
            for change in _changes(scene.parts, topic):
                with pytest.raises(
                    BrokerUnavailable, match=rf"{_ABOUT_10} s ahead.*nothing was changed"
                ):
                    await change
            assert not WRITES & set(scene.store.asked)
            for look in _looks(scene.parts, topic):
                await look

    asyncio.run(play())


def _changes(parts: BrokerContext, topic: Topic) -> list[Awaitable[Any]]:
    carrier, uid = parts.carrier, topic.uid
    return [
        carrier.create(uid, [NewMessage(id="a", due=1)]),
        *(carrier.change(uid, [Change(each, "a", "g", 1, 1)]) for each in sorted(CHANGES)),
        parts.topics.create("another", _QUICK.in_ms(), if_missing=True),
        parts.topics.delete(uid),
        parts.loaders.subscribe(topic, _Receiver(), lease_ms=1_000, credit=1),
    ]


def _looks(parts: BrokerContext, topic: Topic) -> list[Awaitable[Any]]:
    carrier, uid = parts.carrier, topic.uid
    return [
        carrier.lookup(uid, ["a"]),
        carrier.bodies(uid, ["a"], Producer("g")),
        carrier.count(uid, start=0, end=None),
        carrier.forecast(uid, start=0, end=1_000, step_ms=100),
        carrier.dead_letters(uid, after=None, limit=10),
        parts.topics.find(topic.name),
        parts.topics.list(),
    ]


class _Receiver:
    """A consumer that keeps what it gets."""

    name = instance = "c"
    rack = ""
    busy = False
    clogged = False
    advance_ms = 0

    def __init__(self) -> None:
        self.came: list[LeasedMessage] = []

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        self.came += leased

    def shared(self, topic: Topic, share: BucketRange) -> None:
        pass

    def replaced(self, topic: Topic) -> None:
        raise AssertionError("nobody takes its name")

    def paused(self, topic: Topic, reason: str) -> None:
        pass

    def ended(self, topic: Topic, reason: str) -> None:
        pass


def test_wrong_clock_returns_unpushed_reservations(url: str) -> None:
    async def play() -> None:
        async with _scene(url) as scene:
            parts, receiver = scene.parts, _Receiver()
            topic = await parts.topics.create("holding", _QUICK.in_ms(), if_missing=False)
            moved = threading.Event()

            def move(asked: str, grant: Any) -> None:
                if asked == "reserve" and grant.leased and not moved.is_set():
                    scene.clock.ahead_ms = -10_000
                    moved.set()

            scene.store.after = move
            await parts.loaders.subscribe(topic, receiver, lease_ms=600_000, credit=10)
            await parts.carrier.create(topic.uid, [NewMessage(id="a", due=1)])

            async def is_free() -> bool:
                return (await parts.carrier.lookup(topic.uid, ["a"]))["a"].lock_consumer is None

            await until(moved.is_set)
            await until(is_free)  # others, whose clocks are right, can have it
            assert receiver.came == []
            scene.clock.ahead_ms = 0
            await until(lambda: bool(receiver.came))
            (came,) = receiver.came
            assert (came.message.attempts, came.redelivered) == (0, False)

    asyncio.run(play())


def test_wrong_clock_at_start_changes_nothing(url: str) -> None:
    async def play() -> None:
        clock = MovableClock()
        clock.ahead_ms = 10_000
        async with (
            running(url, clock=clock) as broker,
            broker.client() as client,
            broker.client(timeout=2) as hasty,
        ):
            with pytest.raises(BrokerUnavailable, match=rf"{_ABOUT_10} s ahead of the store's"):
                await hasty.create_topic("start", _QUICK)
            clock.ahead_ms = 0
            await client.create_topic("start", _QUICK)

    asyncio.run(play())


def test_missing_comparison_changes_nothing(url: str) -> None:
    class Away(Recorded):
        def clock_ms(self) -> int:
            raise StoreUnavailable("the server is gone")

    async def play() -> None:
        with open_store(url) as store:
            away: Any = Away(store)
            async with serving(away) as served:
                detail = (await served.http.get("/readyz")).json()["detail"]
                assert detail == (
                    "this broker's clock was not compared with the store's: the server is gone"
                )
                del Away.clock_ms
                await until(lambda: not _parts(served).access.clock.problem)

    asyncio.run(play())


def _parts(served: Served) -> BrokerContext:
    assert served.node.parts is not None
    return served.node.parts


# A broker on SQLite: one machine, one clock, which is right wherever it was moved


def test_clock_put_forward_delivers_what_is_due(tmp_path: Path) -> None:
    async def play() -> None:
        clock = MovableClock()
        async with running(tmp_path, clock=clock) as broker, broker.client() as client:
            await client.create_topic("on", _QUICK)
            leases = client.consume("on", consumer="first", lease=5)
            await client.send("on", id="held")
            held = await anext(leases)
            await client.send("on", id="soon", delay=9)
            following = asyncio.ensure_future(anext(leases))
            clock.ahead_ms = 10_000
            came = [await following, await anext(leases)]
            assert {each.id for each in came} == {"held", "soon"}
            for lease in came:
                assert lease.late_ms >= 0
                assert clock.now_ms() >= to_ms(lease.due)
            (again,) = (each for each in came if each.id == "held")
            assert again.version > held.version  # its lease was over by the clock that counts
            assert held.is_lost
            with pytest.raises(Refused):
                await held.ack()
            for lease in came:
                await lease.ack()
            assert (await client.count("on")).total == 0
            await leases.aclose()

    asyncio.run(play())


def test_clock_put_back_breaks_no_lease(tmp_path: Path) -> None:
    async def play() -> None:
        clock = MovableClock()
        async with running(tmp_path, clock=clock) as broker, broker.client() as client:
            await client.create_topic("back", _QUICK)
            first = client.consume("back", consumer="first", lease=5, prefetch=1)
            await client.send("back", id="held")
            held = await anext(first)
            await client.send("back", id="before", delay=5)
            second = client.consume("back", consumer="second")
            following = asyncio.ensure_future(anext(second))
            clock.ahead_ms = -10_000
            await client.send("back", id="after", delay=0.3)
            came = await following
            assert clock.now_ms() >= to_ms(came.due)
            assert came.id == "after"
            await came.ack()
            await until(lambda: held.seconds_left > 5)  # as soon as it hears of the new epoch
            await held.ack()
            following = asyncio.ensure_future(anext(second))
            clock.ahead_ms = 10_000
            came = await following
            assert came.id == "before"
            assert clock.now_ms() >= to_ms(came.due)
            await came.ack()
            assert (await client.count("back")).total == 0
            await first.aclose()
            await second.aclose()

    asyncio.run(play())


def test_metrics_without_a_store_clock_show_no_drift(tmp_path: Path) -> None:
    async def play() -> None:
        clock = MovableClock()
        async with serving(tmp_path, clock=clock) as served:
            clock.ahead_ms = 10_000
            assert (await served.http.get("/readyz")).status_code == 200
            text = (await served.http.get("/metrics")).text
            assert 'broker_degradation_state{cluster="default",topic="",type="clock"} 0.0' in text
            assert 'target="storage"' not in text

    asyncio.run(play())
