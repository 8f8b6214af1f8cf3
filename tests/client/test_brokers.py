"""Several brokers: which one a client uses, and how it goes on at another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import chronoline.client.brokers as brokers_module
from chronoline.client.aio import AsyncClient
from chronoline.client.brokers import AddressBook, Brokers, read_addresses
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    CoordinationUnavailable,
    InvalidInput,
    NodeBusy,
    StoreUnavailable,
    TopicNotFound,
    TopicNotReady,
    WrongBroker,
)
from chronoline.runtime.child_process import free_addresses
from chronoline.wire.codes import failure_of
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.client.fake import TOPIC_UID, FakeBroker, FakeStream, delivery, done, now_ms
from tests.deadline import until

_TINY = pb.Limits(
    frame_bytes=1 << 20, batch=100, credit=100, ping_interval_ms=50, ping_timeout_ms=60_000
)


# Addresses


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2,,a:1", ["a:1", "b:2"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        ([], ["127.0.0.1:7400"]),
        (None, ["c:3", "d:4"]),
    ],
)
def test_addresses_are_a_text_or_a_list(
    given: Any, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHRONOLINE_ADDRESS", "c:3,d:4")
    assert read_addresses(given) == read


def test_every_given_address_is_checked_for_the_token() -> None:
    with pytest.raises(InvalidInput, match=r"192\.0\.2\.1"):
        AsyncClient("127.0.0.1:7400,192.0.2.1:7400", token="t")


def test_failed_broker_comes_last_for_five_seconds() -> None:
    book = AddressBook(["a", "b", "c"])
    book.failed("a", 100.0)
    assert book.order(104.9) == ["b", "c", "a"]
    assert book.fresh(104.9) == ["b", "c"]
    assert set(book.fresh(105.0)) == {"a", "b", "c"}


def test_oldest_failure_is_tried_first_when_all_failed() -> None:
    book = AddressBook(["a", "b", "c"])
    for now_s, address in enumerate(["b", "c", "a"]):
        book.failed(address, float(now_s))
    assert book.fresh(3.0) == []
    assert book.order(3.0) == ["b", "c", "a"]


def test_preferred_broker_comes_first_unless_it_failed() -> None:
    book = AddressBook(["a", "b"])
    book.answered("a")
    assert book.order(0.0, ["c", "b"]) == ["c", "b", "a"]
    book.learn(["c"], 0.0)
    book.failed("c", 0.0)
    assert book.order(1.0, ["c", "b"]) == ["b", "a", "c"]


def test_address_that_is_not_named_any_more_is_kept_for_five_minutes() -> None:
    book = AddressBook(["a"])
    book.learn(["b", "c"], 0.0)
    book.learn(["d", "c"], 1.0)
    assert book.known == ["a", "d", "c", "b"]
    book.learn([], 299.9)
    assert book.known == ["a", "d", "c", "b"]
    book.learn([], 300.5)
    assert book.known == ["a", "d", "c"]


def test_learned_addresses_are_bounded() -> None:
    book = AddressBook(["a"])
    for number in range(300):
        book.learn([f"b{number}"], 0.0)
    assert len(book.known) == 101
    assert book.known[1] == "b299"


def test_broker_that_answered_last_is_used_first() -> None:
    book = AddressBook(["a", "b"])
    book.answered("b")
    assert book.known == ["b", "a"]


def test_unused_connection_to_an_unknown_broker_is_dropped() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            brokers = Brokers("127.0.0.1:1", None, tls=False)
            given, unknown = brokers.at("127.0.0.1:1"), brokers.at("127.0.0.1:2")
            used = brokers.at(broker.address)
            call = used.stream("Produce", pb.ProducerReply)
            await call.write(pb.ProducerFrame(hello=pb.Hello()))
            brokers.at("127.0.0.1:3")
            assert brokers.at("127.0.0.1:1") is given
            assert brokers.at("127.0.0.1:2") is not unknown
            assert brokers.at(broker.address) is used
            call.cancel()
            await until(lambda: not used.is_used)
            brokers.at("127.0.0.1:4")
            assert brokers.at(broker.address) is not used
            await brokers.close()

    asyncio.run(play())


# Fail-over


@asynccontextmanager
async def _two(**given: Any) -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    async with FakeBroker(**given) as one, FakeBroker(**given) as other:
        one.others, other.others = [other.address], [one.address]
        yield one, other


def test_first_calls_go_to_the_broker_that_answers() -> None:
    async def play() -> None:
        (dead,) = free_addresses(1)
        async with FakeBroker() as broker, AsyncClient([dead, broker.address]) as client:
            assert (await client.topic("t")).uid == TOPIC_UID
            assert await client.send("t", id="a") == "a"

    asyncio.run(play())


def test_no_broker_of_several_answers_at_once() -> None:
    async def play() -> None:
        async with AsyncClient(free_addresses(2)) as client:
            with pytest.raises(BrokerUnavailable, match="`chronoline up`") as error:
                await client.topic("t")
            assert error.type is BrokerUnavailable  # users see the name of the class
            with pytest.raises(BrokerUnavailable) as error:
                await client.create_topic("t", if_missing=False)
            assert error.type is BrokerUnavailable

    asyncio.run(play())


def test_send_is_repeated_at_a_broker_learned_from_the_welcome() -> None:
    async def play() -> None:
        async def mute(_: FakeStream, frame: Any) -> None:
            """The first send is answered, the second never."""
            if frame.create.messages[0].id == "first":
                await done(_, frame)

        async with _two() as (one, other), one.client() as client:
            one.answer = mute
            await client.send("t", id="first")
            sending = asyncio.create_task(client.send("t", id="second"))
            await one.seen("create", 2)
            await one.stop()
            assert await sending == "second"
            assert [each.create.messages[0].id for each in other.of("create")] == ["second"]
            assert (await client.topic("t")).uid == TOPIC_UID  # calls go there too

    asyncio.run(play())


def test_consumer_returns_with_its_leases_at_another_broker() -> None:
    async def play() -> None:
        async with _two(answer=_keeping) as (one, other), one.client(rack="r1") as client:
            stream = await client.subscribe(["t"], consumer="me", prefetch=4)
            await one.push(delivery("m"))
            lease = await stream.next()
            await one.stop()
            (subscribe,) = await other.seen("subscribe")
            assert [each.id for each in subscribe.subscribe.holding] == ["m"]
            assert subscribe.subscribe.returning
            await lease.ack()
            assert (await other.seen("ack"))[0].ack.leases[0].version == _KEPT_VERSION
            (before, after) = (*one.hellos, *other.hellos)
            assert before == after
            assert (after.name, after.rack) == ("me", "r1")

    asyncio.run(play())


def test_other_brokers_are_remembered_when_a_broker_names_none() -> None:
    async def play() -> None:
        async with _two() as (one, other), one.client() as client:
            await client.send("t", id="a")
            await one.streams[-1].reply(known_brokers=pb.KnownBrokers())
            await client.send("t", id="b")  # its answer comes after
            await one.stop()
            assert await client.send("t", id="c") == "c"
            assert len(other.of("create")) == 1

    asyncio.run(play())


def test_silent_broker_is_left_for_another() -> None:
    async def play() -> None:
        async with _two(limits=_TINY) as (one, other), one.client() as client:
            await client.send("t", id="first")
            one.deaf = True
            assert await client.send("t", id="second") == "second"
            assert [each.create.messages[0].id for each in other.of("create")] == ["second"]

    asyncio.run(play())


@pytest.mark.parametrize(
    "failure",
    [TopicNotReady, CoordinationUnavailable, StoreUnavailable, NodeBusy, BrokerUnavailable],
)
def test_call_that_may_succeed_later_is_repeated(failure: type[ChronolineError]) -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client(timeout=60) as client:
            broker.call_failures = [failure(), failure()]
            assert (await client.topic("t")).uid == TOPIC_UID
            assert broker.call_failures == []

    asyncio.run(play())


@pytest.mark.parametrize("failure", [CoordinationUnavailable, StoreUnavailable])
def test_call_goes_to_a_broker_that_is_not_cut_off(failure: type[ChronolineError]) -> None:
    async def play() -> None:
        async with FakeBroker() as one, FakeBroker() as other:
            one.call_failures = [failure() for _ in range(1_000)]
            async with AsyncClient([one.address, other.address], timeout=60) as client:
                assert (await client.topic("t")).uid == TOPIC_UID
                assert len(one.call_failures) == 999

    asyncio.run(play())


def test_call_goes_to_the_broker_that_a_refusal_names() -> None:
    async def play() -> None:
        async with FakeBroker() as one, FakeBroker() as other, one.client() as client:
            one.call_failures = [WrongBroker(brokers=[other.address])]
            assert (await client.topic("t")).uid == TOPIC_UID
            await one.stop()
            assert (await client.topic("t")).uid == TOPIC_UID

    asyncio.run(play())


def test_call_that_takes_long_everywhere_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers_module, "_ATTEMPT_S", 0.05)  # or the test would take much longer

    async def play() -> None:
        async with _two() as (one, other), one.client(timeout=20) as client:
            await client.topic("t")
            one.answers_after_s = other.answers_after_s = 0.3
            assert (await client.topic("t")).uid == TOPIC_UID

    asyncio.run(play())


def test_named_broker_that_is_gone_is_asked_for_again() -> None:
    async def play() -> None:
        (dead,) = free_addresses(1)
        async with FakeBroker() as one, FakeBroker() as other, one.client(timeout=60) as client:
            named = [dead, dead, other.address]
            one.call_failures = [WrongBroker(brokers=[each]) for each in named]
            assert (await client.topic("t")).uid == TOPIC_UID
            assert one.call_failures == []

    asyncio.run(play())


def test_call_learns_the_other_brokers_from_its_answer() -> None:
    async def play() -> None:
        async with _two() as (one, other), one.client() as client:
            await client.topic("t")
            await one.stop()
            assert (await client.topic("t")).uid == TOPIC_UID
            assert other.streams == []

    asyncio.run(play())


def test_stream_goes_to_the_broker_that_a_refusal_names() -> None:
    async def play() -> None:
        async with FakeBroker() as one, FakeBroker() as other, one.client() as client:
            one.answer_hello = failure_of(WrongBroker(brokers=[other.address]))
            assert await client.send("t", id="a") == "a"
            assert len(other.of("create")) == 1

    asyncio.run(play())


def test_refused_call_is_not_repeated() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client(timeout=60) as client:
            broker.call_failures = [TopicNotFound()]
            with pytest.raises(TopicNotFound):
                await client.topic("t")

    asyncio.run(play())


# Preferences and moves

_KEPT_VERSION = 20


async def _keeping(stream: FakeStream, frame: Any) -> None:
    """A broker that knows all leases."""
    if frame.WhichOneof("what") != "subscribe":
        await done(stream, frame)
        return
    kept = [
        pb.KeptLease(id=each.id, version=_KEPT_VERSION, until_ms=now_ms() + 30_000)
        for each in frame.subscribe.holding
    ]
    subscribed = pb.Subscribed(topic_uid=TOPIC_UID, lease_ms=30_000, kept=kept)
    await stream.reply(seq=frame.seq, subscribed=subscribed)


def test_stream_opens_at_the_preferred_broker() -> None:
    async def play() -> None:
        async with _two() as (one, other), one.client() as client:
            one.preferred = [other.address, one.address]
            assert await client.send("t", id="a") == "a"
            assert one.hellos == []
            assert len(other.of("create")) == 1

    asyncio.run(play())


def test_preferred_broker_that_is_gone_is_passed_over() -> None:
    async def play() -> None:
        (dead,) = free_addresses(1)
        async with FakeBroker() as broker, broker.client() as client:
            broker.preferred = [dead, broker.address]
            assert await client.send("t", id="a") == "a"

    asyncio.run(play())


def test_consumer_moves_with_its_leases() -> None:
    async def play() -> None:
        async with _two(answer=_keeping) as (one, other), one.client() as client:
            stream = await client.subscribe(["t"], prefetch=4)
            await one.push(delivery("m"))
            lease = await stream.next()
            move = pb.MoveTo(reason="load", address=other.address, message="it is busy")
            await one.streams[-1].reply(move_to=move)
            (subscribe,) = await other.seen("subscribe")
            assert [each.id for each in subscribe.subscribe.holding] == ["m"]
            await lease.ack()
            assert (await other.seen("ack"))[0].ack.leases[0].id == "m"
            assert one.of("ack") == []
            assert stream.address == other.address

    asyncio.run(play())


def test_move_lets_requests_under_way_be_answered() -> None:
    async def play() -> None:
        async def move_first(stream: FakeStream, frame: Any) -> None:
            move = pb.MoveTo(reason="load", address=other.address)
            await stream.reply(move_to=move)
            await done(stream, frame)

        async with _two() as (one, other), one.client() as client:
            one.answer = move_first
            assert await client.send("t", id="a") == "a"
            assert await client.send("t", id="b") == "b"
            assert [each.create.messages[0].id for each in one.of("create")] == ["a"]
            assert [each.create.messages[0].id for each in other.of("create")] == ["b"]

    asyncio.run(play())


def test_consumer_that_is_not_accepted_goes_to_another_broker() -> None:
    async def play() -> None:
        async def try_again(stream: FakeStream, frame: Any) -> None:
            await stream.failure(frame.seq, "try_again", "store_unavailable", retry_after_ms=100)

        async with _two() as (one, other), one.client(timeout=60) as client:
            one.answer = try_again
            stream = await client.subscribe(["t"])
            assert stream.address == other.address

    asyncio.run(play())


async def _send_away(broker: FakeBroker, to: str) -> None:
    await broker.streams[-1].reply(move_to=pb.MoveTo(reason="degraded", address=to))


def test_stream_stays_where_it_is_if_the_other_broker_is_degraded_too() -> None:
    async def play() -> None:
        async with _two() as (one, other), one.client() as client:
            one.preferred = [one.address, other.address]
            other.preferred, other.health = [one.address, other.address], "degraded"
            await client.send("t", id="a")
            for times in (1, 2):  # the second question comes after the first was decided
                await _send_away(one, other.address)
                await other.until(lambda: len(other.questions) == times)  # noqa: B023 - awaited here
            assert all(each.only_look for each in other.questions)
            assert await client.send("t", id="b") == "b"
            assert other.hellos == []
            other.health = "healthy"
            await _send_away(one, other.address)
            await other.until(lambda: bool(other.hellos))

    asyncio.run(play())


def test_stream_leaves_a_degraded_broker_for_one_that_answers() -> None:
    async def play() -> None:
        (dead,) = free_addresses(1)
        async with _two() as (one, other), one.client() as client:
            one.preferred = [one.address, other.address]
            other.preferred = [dead, other.address]
            await client.send("t", id="a")
            await _send_away(one, dead)
            await other.until(lambda: bool(other.hellos))

    asyncio.run(play())


def test_only_carrier_is_found_by_way_of_an_overseer() -> None:
    async def play() -> None:
        async with FakeBroker() as overseer, FakeBroker() as carrier, overseer.client() as client:
            overseer.preferred = overseer.others = [carrier.address]
            assert await client.send("t", id="a") == "a"
            assert overseer.hellos == []

    asyncio.run(play())


@pytest.mark.parametrize("names_itself", [True, False])
def test_broker_that_is_alone_is_used_under_the_given_address(names_itself: bool) -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            broker.preferred, broker.names_itself = ["10.255.255.1:1"], names_itself
            own, broker.address = broker.address, "10.255.255.1:1"  # as it knows itself
            assert await client.send("t", id="a") == "a"
            broker.address = own

    asyncio.run(play())


def test_broker_that_comes_later_is_learned() -> None:
    async def play() -> None:
        async with FakeBroker() as one, FakeBroker() as other, one.client() as client:
            await client.send("t", id="a")
            known = pb.KnownBrokers(others=[other.address])
            await one.streams[-1].reply(known_brokers=known)
            await client.send("t", id="b")  # its answer comes after
            await one.stop()
            assert await client.send("t", id="c") == "c"
            assert len(other.of("create")) == 1

    asyncio.run(play())
