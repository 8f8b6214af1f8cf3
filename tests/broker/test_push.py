"""From a client through a broker to a consumer."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from chronoline.broker.store_watch import StoreWatch
from chronoline.broker.subscription import Subscription
from chronoline.client import TopicSettings
from chronoline.client.aio import ToSend
from chronoline.core.errors import Refused, TopicNotFound
from chronoline.core.outcome import Refusal
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import to_ms
from tests.broker.nodes import Running, running
from tests.deadline import until


def test_message_arrives_at_its_due(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("reminders")
            due = datetime.now(UTC) + timedelta(milliseconds=400)
            await client.send("reminders", b"hello", id="u1", due=due, headers={"a": "b"})
            async for lease in client.consume("reminders"):
                assert time.time() >= due.timestamp() - 0.001
                assert (lease.id, lease.body, lease.headers) == ("u1", b"hello", (("a", b"b"),))
                await lease.ack()
                break
            assert await client.lookup("reminders", "u1") is None

    asyncio.run(play())


def test_messages_arrive_in_order_of_due_and_never_early(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("many")
            begin = datetime.now(UTC) + timedelta(milliseconds=300)
            outcomes = await client.send_many(
                "many",
                [
                    ToSend(id=f"m{number}", due=begin + timedelta(milliseconds=number))
                    for number in reversed(range(200))
                ],
            )
            assert not outcomes.refused
            came = []
            async for lease in client.consume("many", prefetch=50):
                assert time.time() * 1000 >= to_ms(lease.due)
                came.append(lease.id)
                await lease.ack()
                if len(came) == 200:
                    break
            assert came == [f"m{number}" for number in range(200)]

    asyncio.run(play())


def test_rescheduled_message_does_not_arrive_at_its_old_due(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("moved")
            soon = datetime.now(UTC) + timedelta(seconds=1.5)
            await client.send("moved", id="x", due=soon)
            await client.send("moved", id="gone", due=soon)
            leases = client.consume("moved")
            waiting = asyncio.ensure_future(anext(leases))
            await until(lambda: len(broker.subscriptions) == 1)
            await client.reschedule("moved", "x", due=soon + timedelta(milliseconds=400))
            await client.cancel("moved", "gone")
            lease = await waiting
            assert lease.id == "x"
            assert time.time() >= (soon + timedelta(milliseconds=399)).timestamp()
            await lease.ack()
            await leases.aclose()

    asyncio.run(play())


def test_overdue_message_is_pushed_at_once(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("now")
            leases = client.consume("now")
            waiting = asyncio.ensure_future(anext(leases))
            await until(lambda: len(broker.subscriptions) == 1)
            sent = await client.send("now", b"at once")
            lease = await asyncio.wait_for(waiting, 5)
            assert lease.id == sent
            await lease.ack()
            await leases.aclose()

    asyncio.run(play())


def test_own_create_reaches_its_loader_without_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store's watch passes on no notice.
    monkeypatch.setattr(StoreWatch, "_pass_on", lambda *_: None)

    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("now")
            leases = client.consume("now")
            coming = asyncio.ensure_future(anext(leases))
            (subscription,) = await until_subscribed(broker)
            # Its agenda would look again after nine seconds.
            await until(lambda: is_asleep(subscription))
            await client.send("now", b"x", id="a")
            lease = await asyncio.wait_for(coming, 5)
            assert lease.id == "a"
            await lease.ack()
            await leases.aclose()

    asyncio.run(play())


def is_asleep(subscription: Subscription) -> bool:
    now_ms = SystemClock().now_ms()
    return (subscription.reserve_at(now_ms) or 0) > now_ms + 5_000


async def until_subscribed(broker: Running) -> list[Subscription]:
    await until(lambda: bool(broker.subscriptions))
    return broker.subscriptions


def test_unbegun_message_is_returned_unchanged(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("left", TopicSettings(window=0.1))
            due = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)
            ids = [f"m{number}" for number in range(8)]
            await client.send_many("left", [ToSend(id=each, due=due) for each in ids])
            leaving = client.consume("left", consumer="leaves", prefetch=8)
            begun = await anext(leaving)

            async def all_are_taken() -> bool:
                return (await client.count("left")).processing == 8

            await until(all_are_taken)
            staying = client.consume("left", consumer="stays")
            waiting = asyncio.ensure_future(anext(staying))
            await until(lambda: len(broker.subscriptions) == 2)
            await leaving.aclose()
            came = [await waiting, *[await anext(staying) for _ in range(6)]]
            assert {each.id for each in (begun, *came)} == set(ids)
            seen = {(each.due, each.attempts, each.redelivered) for each in came}
            assert seen == {(due, 0, False)}
            for lease in (begun, *came):
                await lease.ack()
            await staying.aclose()

    asyncio.run(play())


def test_two_consumers_share_a_topic_without_duplicates(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("shared", TopicSettings(window=0.1))
            came: dict[str, list[str]] = {"a": [], "b": []}

            async def consume(name: str) -> None:
                async for lease in client.consume("shared", consumer=name):
                    came[name].append(lease.id)
                    await lease.ack()

            tasks = [asyncio.ensure_future(consume(name)) for name in came]
            await until(lambda: sum(each.share != (0, 0) for each in broker.subscriptions) == 2)
            begin = datetime.now(UTC)
            await client.send_many(
                "shared",
                [
                    ToSend(id=f"m{number}", due=begin + timedelta(milliseconds=200 + number))
                    for number in range(300)
                ],
            )
            await until(lambda: len(came["a"]) + len(came["b"]) >= 300)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert sorted(came["a"] + came["b"]) == sorted(f"m{number}" for number in range(300))
            assert came["a"]
            assert came["b"]

    asyncio.run(play())


def test_release_retry_extend_and_bury_change_the_message(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.create_topic("jobs")
            await client.send("jobs", b"work", id="j")
            leases = client.consume("jobs", lease=30)
            first = await anext(leases)
            await first.extend(60)
            assert first.seconds_left > 50
            await first.release(delay=0.1)
            second = await anext(leases)
            assert (second.id, second.attempts) == ("j", 0)
            assert second.version > first.version
            await second.retry(delay=0.05)
            third = await anext(leases)
            assert third.attempts == 1
            await third.bury("no use")
            (letter,) = await client.dead_letters("jobs")
            assert (letter.message.id, letter.reason) == ("j", "no use")
            await client.redrive("jobs", ["j"])
            fourth = await anext(leases)
            assert fourth.attempts == 0
            await fourth.ack()
            await leases.aclose()

    asyncio.run(play())


def test_refusals_are_raised(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            with pytest.raises(TopicNotFound, match="topic create"):
                await client.send("nowhere", b"x")
            await client.create_topic("here")
            await client.send("here", b"x", id="one", delay=60)
            with pytest.raises(Refused) as refused:
                await client.send("here", b"x", id="one", delay=60)
            assert refused.value.outcomes[0].refusal is Refusal.EXISTS
            async with broker.client(producer_group="others") as other:
                with pytest.raises(Refused) as refused:
                    await other.cancel("here", "one")
                assert refused.value.outcomes[0].refusal is Refusal.NOT_OWNER

    asyncio.run(play())


def test_clients_carry_on_after_a_broker_restart(tmp_path: Path) -> None:
    async def play() -> None:
        async with running(tmp_path) as broker:
            address, port = broker.address, int(broker.address.rpartition(":")[2])
            client = broker.client()
            await client.create_topic("long")
            await client.send("long", b"before", id="before")
            leases = client.consume("long", consumer="c", lease=30)
            held = await anext(leases)
        sending = asyncio.ensure_future(client.send("long", b"while it is away", id="while"))
        await asyncio.sleep(0.2)  # the client tries without a broker
        async with running(tmp_path, port) as broker:
            assert broker.address == address
            assert await sending == "while"
            another = await asyncio.wait_for(anext(leases), 60)
            assert another.id == "while"
            await held.ack()
            await another.ack()
            assert (await client.count("long")).total == 0
            await leases.aclose()
            await client.close()

    asyncio.run(play())
