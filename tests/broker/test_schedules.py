"""Schedules at brokers: created ahead, once, caught up, taken back; and after deaths."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
import pytest

from chronoline.broker.limits import Limits
from chronoline.client.aio import AsyncClient
from chronoline.client.schedules import Schedule as ClientSchedule
from chronoline.client.topics import TopicSettings
from chronoline.core.errors import (
    InvalidInput,
    ScheduleExists,
    ScheduleNotFound,
    StoreUnavailable,
    TooManySchedules,
)
from chronoline.core.schedule import AHEAD_MS, CatchUpRule, Recurrence, Schedule, occurrence_id
from chronoline.node.broker_service import BrokerService
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.tasks import TaskSet
from chronoline.runtime.timestamps import from_ms, to_ms
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.memory import MemoryStore
from chronoline.testing.postgres import PostgresServer
from tests.broker.clocks import MovableClock, Recorded
from tests.broker.doomed_broker import doomed_broker
from tests.broker.nodes import running
from tests.deadline import until

HOUR_MS = 3_600_000


class Scene:
    """A broker on a recorded store, and its client."""

    def __init__(
        self,
        store: Recorded,
        inner: Store,
        node: BrokerService,
        client: AsyncClient,
        clock: MovableClock,
    ) -> None:
        self.calls = store
        self.clock = clock
        self.store = inner
        self.node = node
        self.client = client

    async def after_round(self, change: Callable[[], Any]) -> Any:
        """The answer of a change, when the broker has created what it asks for."""
        loop, rounds = asyncio.get_running_loop(), asyncio.Queue[None]()

        def after(name: str, _: Any) -> None:
            if name == "next_schedule_ms":  # the end of a round
                loop.call_soon_threadsafe(rounds.put_nowait, None)

        self.calls.after = after
        answer = await change()
        await asyncio.wait_for(rounds.get(), 60)
        return answer

    async def waiting(self, topic: str) -> list[str]:
        """The ids of all messages of a topic."""
        uid = (await self.client.topic(topic)).uid
        page = self.store.select_owned(uid, "default", limit=10_000)
        return [each.id for each in page.messages]


@asynccontextmanager
async def scene(
    store: Store | None = None,
    clock: MovableClock | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Scene]:
    inner = store or MemoryStore()
    recorded = Recorded(inner)
    given: Any = recorded
    clock = clock or MovableClock()
    async with BrokerService(
        given, grpc_address=("127.0.0.1", 0), clock=clock, limits=limits
    ) as node:
        assert node.grpc is not None
        async with AsyncClient(f"127.0.0.1:{node.grpc.port}") as client:
            await client.create_topic("t", if_missing=True)
            yield Scene(recorded, inner, node, client, clock)


def seconds_of(ids: list[str]) -> list[int]:
    return [to_ms(from_iso(each.partition("@")[2])) // 1000 for each in ids]


def from_iso(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_occurrences_are_created_a_minute_ahead() -> None:
    async def play() -> None:
        async with scene() as at:
            begin_ms = SystemClock().now_ms()
            made: ClientSchedule = await at.after_round(
                lambda: at.client.create_schedule("tick", "t", b"x", cron="*/10 * * * * *", times=3)
            )
            end_ms = SystemClock().now_ms()
            found = seconds_of(await at.waiting("t"))
            assert found == list(range(found[0], found[-1] + 1, 10))
            assert found[0] * 1000 > begin_ms
            assert begin_ms + AHEAD_MS - 10_000 < found[-1] * 1000 <= end_ms + AHEAD_MS
            assert [to_ms(each) // 1000 for each in made.times] == found[:3]
            shown = await at.client.schedule("tick")
            assert shown.next is not None
            assert to_ms(shown.next) // 1000 == found[-1] + 10

    asyncio.run(play())


def test_pause_and_deletion_take_back_and_resume_goes_on() -> None:
    async def play() -> None:
        async with scene() as at:
            await at.after_round(lambda: at.client.create_schedule("tick", "t", every=10))
            before = await at.waiting("t")
            paused = await at.client.pause_schedule("tick")
            now_ms = SystemClock().now_ms()
            assert paused.paused
            left = seconds_of(await at.waiting("t"))
            assert all(each * 1000 <= now_ms + 1_000 for each in left)
            assert await at.client.pause_schedule("tick") == paused
            resumed = await at.after_round(lambda: at.client.resume_schedule("tick"))
            assert not resumed.paused
            again = await at.waiting("t")
            assert set(before) - set(again) <= {
                occurrence_id("tick", now_ms // 1000 * 1000 + 1_000)
            }
            assert await at.client.delete_schedule("tick")
            assert not await at.client.delete_schedule("tick")
            now_ms = SystemClock().now_ms()
            left = seconds_of(await at.waiting("t"))
            assert all(each * 1000 <= now_ms + 1_000 for each in left)
            with pytest.raises(ScheduleNotFound):
                await at.client.schedule("tick")

    asyncio.run(play())


def test_a_schedule_deleted_and_made_again_repeats_nothing() -> None:
    async def play() -> None:
        async with scene() as at:
            create = at.client.create_schedule
            await at.after_round(lambda: create("tick", "t", cron="* * * * * *"))
            assert await at.client.delete_schedule("tick")
            floor_ms = at.store.schedule_floor_ms("tick")
            left = await at.waiting("t")
            assert all(each * 1000 <= floor_ms for each in seconds_of(left))
            await at.client.cancel_many("t", left)
            await at.after_round(lambda: create("tick", "t", cron="* * * * * *"))
            assert all(each * 1000 > floor_ms for each in seconds_of(await at.waiting("t")))

    asyncio.run(play())


def test_a_change_reaches_what_was_created_ahead() -> None:
    async def play() -> None:
        async with scene() as at:
            create = at.client.create_schedule
            first = await at.after_round(lambda: create("tick", "t", b"old", every=10))
            same = await create("tick", "t", b"old", every=10)
            assert replace(same, next=None) == replace(first, next=None)
            with pytest.raises(ScheduleExists):
                await create("tick", "t", b"new", every=10)
            changed = await at.after_round(
                lambda: create("tick", "t", b"new", every=10, if_exists="replace")
            )
            found = await at.waiting("t")
            assert await at.client.body("t", found[-1]) == b"new"
            assert changed.body == b"new"
            # The interval keeps its phase.
            assert len({each % 10 for each in seconds_of(found)}) == 1

    asyncio.run(play())


@pytest.mark.parametrize(("catch_up", "made"), [("none", 0), ("one", 1), ("all", 6)])
def test_after_an_outage_catch_up_decides(catch_up: str, made: int) -> None:
    async def play() -> None:
        store, clock = MemoryStore(), MovableClock()
        async with scene(store, clock) as at:
            await at.after_round(
                lambda: at.client.create_schedule("s", "t", every=600, catch_up=catch_up)
            )
            assert await at.waiting("t") == []
        clock.ahead_ms = HOUR_MS + 300_000
        async with scene(store, clock) as at:
            # The first round comes before a client can ask; a second one follows a change.
            await at.after_round(lambda: at.client.create_schedule("later", "t", every=86_400))
            ids = await at.waiting("t")
            assert len(ids) == made
            due = {
                each.due for each in at.store.lookup((await at.client.topic("t")).uid, ids).values()
            }
            assert all(abs(each - clock.now_ms()) < 60_000 for each in due)
            shown = await at.client.schedule("s")
            assert shown.next is not None
            assert 0 < to_ms(shown.next) - clock.now_ms() <= 600_000

    asyncio.run(play())


def test_what_is_made_up_for_delays_no_other_schedule() -> None:
    jumps = 6

    async def play() -> None:
        store, clock = MemoryStore(), MovableClock()
        async with scene(store, clock) as at:
            await at.client.create_topic("other")
            await at.client.create_topic("third")
            create = at.client.create_schedule
            await at.after_round(lambda: create("back", "t", every=1, catch_up="all"))
            await at.after_round(lambda: create("fine", "other", every=10, catch_up="none"))
            await create("hourly", "third", every=3_600)
        clock.ahead_ms = 5 * HOUR_MS
        begun_ms = clock.now_ms()
        async with scene(store, clock) as at:

            def after(name: str, _: Any) -> None:
                if name == "step_schedules" and clock.ahead_ms < 5 * HOUR_MS + jumps * 25_000:
                    clock.ahead_ms += 25_000  # as if each step took that time

            at.calls.after = after
            await until(lambda: _is_caught_up(at, "back"))
            times = seconds_of(await at.waiting("other"))
            late = [each for each in times if each > times[0] + 3 * HOUR_MS // 1000]
            assert late == list(range(late[0], late[-1] + 1, 10)), "none is missed since the outage"
            assert late[-1] - late[0] >= jumps * 25
            uid = (await at.client.topic("third")).uid
            made = at.store.lookup(uid, await at.waiting("third"))
            assert min(each.version for each in made.values()) < begun_ms + 25_000, (
                "it does not wait for those that catch up"
            )

    asyncio.run(play())


def test_a_broker_whose_clock_is_off_creates_nothing() -> None:
    async def play() -> None:
        async with scene() as at:
            assert at.node.parts is not None
            at.node.parts.gate.stopping = True
            await at.client.create_schedule("tick", "t", every=10)
            assert at.node.parts.gate.closure is not None
            assert await at.waiting("t") == []
            at.node.parts.gate.stopping = False
            await at.after_round(lambda: at.client.create_schedule("later", "t", every=86_400))
            assert await at.waiting("t") != []

    asyncio.run(play())


def test_a_schedule_that_cannot_be_read_delays_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with scene() as at:
            uid = (await at.client.topic("t")).uid
            odd = Schedule(
                name="a",
                topic_uid=uid,
                recurrence=Recurrence(cron="* * * * *", zone="Mars/Phobos"),
                next_ms=SystemClock().now_ms(),
            )
            assert at.store.put_schedule(odd, now_ms=SystemClock().now_ms()) is not None
            await at.client.create_schedule("tick", "t", every=10)
            created: list[str] = []

            async def is_created() -> bool:
                created[:] = await at.waiting("t")
                return created != []

            await until(is_created)  # a round that began with "a" alone may end first
            assert all(each.startswith("tick@") for each in created)
            await at.after_round(lambda: at.client.pause_schedule("tick"))
            told = [each for each in caplog.messages if "'a' cannot fire" in each]
            assert len(told) == 1, "once, and not in each round"

    asyncio.run(play())


def test_occurrences_wait_for_a_quota_of_their_group(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        async with scene() as at:
            create = at.client.create_schedule
            await at.client.change_topic("t", group_waiting=3)
            await at.after_round(lambda: create("full", "t", every=10))
            assert len(await at.waiting("t")) == 3
            await at.client.create_topic("other")
            await at.after_round(lambda: create("free", "other", every=10))
            assert await at.waiting("other") != [], "another topic does not wait"
            held = await at.client.schedule("full")
            assert "quota of producer group 'default' on topic 't'" in held.problem
            assert [each.problem != "" for each in await at.client.schedules()] == [False, True]
            told = [each for each in caplog.messages if "'full' is held back" in each]
            assert len(told) == 1
            assert held_count(at) == 1
            await at.client.change_topic("t", group_waiting=None)
            await until(lambda: _is_caught_up(at, "full"))
            found = seconds_of(await at.waiting("t"))
            assert found == list(range(found[0], found[-1] + 1, 10)), "none is lost"
            assert (await at.client.schedule("full")).problem == ""

    asyncio.run(play())


def held_count(at: Scene) -> float:
    """How often schedules of the topic were held back."""
    named = "topic_schedule_held_count", ("t",)
    return sum(value for *name, value in at.node.metrics.snapshot().samples if (*name,) == named)


async def _is_caught_up(at: Scene, name: str) -> bool:
    next_ms = (await at.client.schedule(name)).next
    now_ms = at.clock.now_ms()
    return next_ms is not None and to_ms(next_ms) > now_ms + AHEAD_MS - 10_000


def test_occurrences_count_among_the_creates_of_their_group() -> None:
    async def play() -> None:
        async with scene() as at:
            await at.client.change_topic("t", group_creates_per_s=40)
            await at.after_round(lambda: at.client.create_schedule("tick", "t", cron="* * * * * *"))
            assert held_count(at) == 1
            await until(lambda: _is_caught_up(at, "tick"))
            found = seconds_of(await at.waiting("t"))
            assert found == list(range(found[0], found[-1] + 1)), "none is lost"

    asyncio.run(play())


def test_what_is_missed_for_want_of_a_quota_is_caught_up() -> None:
    async def play() -> None:
        store, clock = MemoryStore(), MovableClock()
        async with scene(store, clock) as at:
            await at.client.change_topic("t", group_waiting=1)
            await at.client.send("t", b"x", id="takes the room", delay=10 * HOUR_MS / 1000)
            await at.after_round(lambda: at.client.create_schedule("s", "t", every=60))
            clock.ahead_ms = HOUR_MS
            await at.client.change_topic("t", group_waiting=None)
            await until(lambda: _is_caught_up(at, "s"))
            made = [each for each in await at.waiting("t") if each.startswith("s@")]
            late = [each for each in seconds_of(made) if each * 1000 <= clock.now_ms()]
            assert 1 <= len(late) <= 2, (
                "the latest of them, as its catch-up says, and one that came since"
            )

    asyncio.run(play())


def test_a_quota_that_cannot_be_counted_delays_no_other_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> None:
        async with scene() as at:
            create, limited = at.client.create_schedule, TopicSettings(group_waiting=8)
            await at.client.create_topic("a", limited)
            slow = (await at.client.create_topic("b", limited)).uid
            count_owned = at.store.count_owned

            def count(topic_uid: int, group: str, *, most: int) -> int:
                if topic_uid != slow:
                    return count_owned(topic_uid, group, most=most)
                late = StoreUnavailable("the count took too long")
                late.answered = ()  # others were answered meanwhile, so the store is healthy
                raise late

            with monkeypatch.context() as away:
                away.setattr(at.store, "count_owned", count)
                assert at.node.parts is not None
                at.node.parts.gate.stopping = True  # until all are there
                for name in ("a", "b", "t"):
                    await create(name, name, every=10)
                at.node.parts.gate.stopping = False
                at.node.parts.schedules.clock_moved()
                await until(lambda: _is_caught_up(at, "a"))
                await until(lambda: _is_caught_up(at, "t"))
                assert await at.waiting("b") == []
                assert "the count took too long" in (await at.client.schedule("b")).problem
            await until(lambda: _is_caught_up(at, "b"))

    asyncio.run(play())


def test_a_topic_has_a_bounded_number_of_schedules() -> None:
    async def play() -> None:
        async with scene(limits=Limits(schedules=2)) as at:
            create = at.client.create_schedule
            for name in ("a", "b"):
                await create(name, "t", every=3_600)
            with pytest.raises(TooManySchedules, match="has 2 schedules"):
                await create("c", "t", every=3_600)
            await create("b", "t", b"other", every=3_600, if_exists="replace")
            await at.client.create_topic("other")
            await create("c", "other", every=3_600)
            with pytest.raises(TooManySchedules):
                await create("c", "t", every=3_600, if_exists="replace")
            await at.client.delete_schedule("a")
            await create("d", "t", every=3_600)

    asyncio.run(play())


def test_what_never_fires_is_refused_by_the_broker() -> None:
    async def play() -> None:
        async with scene() as at:
            create = at.client.create_schedule
            for cron, zone, problem in (
                ("0 0 30 2 *", "UTC", "never fires"),
                ("* * */20 * 1L", "UTC", "never fires"),
                ("0 25 * * *", "UTC", "hour field"),
                ("0 9 * * *", "Berlin", "did you mean Europe/Berlin"),
            ):
                with pytest.raises(InvalidInput, match=problem):
                    await create("x", "t", cron=cron, zone=zone)
            await at.client.create_topic("small", TopicSettings(largest_body_bytes=1))
            with pytest.raises(InvalidInput, match="allows 1"):
                await create("x", "small", b"xx", every=10)
            assert await at.client.schedules() == []

    asyncio.run(play())


# Several brokers


def test_messages_that_others_hold_delay_no_other_schedule(postgres_server: PostgresServer) -> None:
    async def play() -> None:
        url = postgres_server.create_database("held occurrences")
        async with running(url) as broker, broker.client() as client:
            topic = await client.create_topic("t")
            at_ms = (SystemClock().now_ms() // 1000 + 30) * 1000
            with psycopg.connect(url) as others:
                others.execute(
                    "SELECT chronoline.send('t', %s, %s, 'x', %s)",
                    [occurrence_id("held", at_ms), at_ms, at_ms - 30_000],
                )
                start = from_ms(at_ms)
                for name in ("held", "free"):
                    await client.create_schedule(name, "t", every=3_600, start=start)
                while await client.lookup("t", occurrence_id("free", at_ms)) is None:
                    await asyncio.sleep(0.05)  # nothing tells of a message that is not due
                shown = await client.schedule("held")
                assert shown.next == start
                others.rollback()
            while await client.lookup("t", occurrence_id("held", at_ms)) is None:
                await asyncio.sleep(0.05)
            assert topic.name == "t"

    asyncio.run(play())


def test_schedules_that_others_hold_delay_no_other_schedule(
    postgres_server: PostgresServer,
) -> None:
    """Although their occurrences of a minute are more than those of one step."""

    async def play() -> None:
        url = postgres_server.create_database("held schedules")
        async with running(url) as broker, broker.client() as client:
            await client.create_topic("t")
            first_ms = (SystemClock().now_ms() // 1000 + 20) * 1000
            assert broker.node.parts is not None
            broker.node.parts.gate.stopping = True  # until all are there
            for number in range(40):
                await client.create_schedule(f"held{number}", "t", every=1, start=from_ms(first_ms))
            later_ms = first_ms + 1_000
            await client.create_schedule("free", "t", every=3_600, start=from_ms(later_ms))
            with psycopg.connect(url) as others:
                others.execute(
                    "SELECT name FROM chronoline.schedules WHERE name LIKE 'held%' FOR UPDATE"
                )
                broker.node.parts.gate.stopping = False
                broker.node.parts.schedules.clock_moved()
                await until(lambda: _is_there(client, occurrence_id("free", later_ms)))
                assert not await _is_there(client, occurrence_id("held0", first_ms))
                others.rollback()
            await until(lambda: _is_there(client, occurrence_id("held0", first_ms)))

    asyncio.run(play())


async def _is_there(client: AsyncClient, message_id: str) -> bool:
    return await client.lookup("t", message_id) is not None


@pytest.mark.parametrize("where", ["step before", "step after"])
def test_nothing_is_doubled_or_missing_when_a_broker_is_killed(
    postgres_server: PostgresServer, where: str
) -> None:
    async def play() -> None:
        url = postgres_server.create_database(f"schedules, killed at {where}")
        now_ms = SystemClock().now_ms() // 1000 * 1000
        first_ms, last_ms = now_ms - 120_000, now_ms - 10_000
        wanted = Counter(
            occurrence_id(f"s{number}", each)
            for number in range(20)
            for each in range(first_ms, last_ms, 1_000)
        )
        hours = [now_ms - HOUR_MS // 2 - each * HOUR_MS for each in range(6)]
        wanted.update(occurrence_id("all", each) for each in hours)
        wanted[occurrence_id("one", hours[0])] = 1
        async with (
            doomed_broker(url, where) as dying,
            running(url) as broker,
            broker.client() as client,
        ):
            assert broker.node.parts is not None
            broker.node.parts.gate.stopping = True  # until the other one is dead
            # Without a dedupe time no mark would hide a second creation.
            await client.create_topic("t", TopicSettings(dedupe=0))
            with open_store(url) as store:
                topic = store.find_topic("t")
                assert topic is not None
                for number in range(20):
                    first = (1_000, first_ms)
                    _put(store, topic.uid, f"s{number}", first, CatchUpRule.ALL)
                for rule in CatchUpRule:
                    _put(store, topic.uid, rule.value, (HOUR_MS, hours[-1]), rule)
            await dying.died()
            broker.node.parts.gate.stopping = False
            broker.node.parts.schedules.clock_moved()
            got = await _consumed(client, len(wanted), last_ms)
        assert {each: count for each, count in got.items() if count != 1} == {}
        assert set(got) == set(wanted)

    asyncio.run(play())


def _put(store: Store, uid: int, name: str, first: tuple[int, int], catch_up: CatchUpRule) -> None:
    every_ms, next_ms = first
    schedule = Schedule(
        name=name,
        topic_uid=uid,
        recurrence=Recurrence(every_ms=every_ms, start_ms=next_ms),
        catch_up=catch_up,
        next_ms=next_ms,
    )
    assert store.put_schedule(schedule, now_ms=next_ms) is not None


async def _consumed(client: AsyncClient, count: int, before_ms: int) -> Counter[str]:
    """The ids that a consumer gets of occurrences before a moment, until it has this number."""
    got: Counter[str] = Counter()
    acks = TaskSet()
    async for lease in client.consume("t", prefetch=500):
        acks.start(lease.ack())
        if seconds_of([lease.id])[0] * 1000 < before_ms:
            got[lease.id] += 1
        if len(got) >= count:
            break
    await acks.end(60)
    return got
