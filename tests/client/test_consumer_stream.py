"""Consumer streams: hand-over of leases, reconnects, and the return of prefetched leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from chronoline.client.aio import AsyncClient
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.client.leases import AsyncLease
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ClientClosed,
    ConsumerReplaced,
    InvalidInput,
    OutcomeUnknown,
    Refused,
    TopicNotFound,
)
from chronoline.core.outcome import Refusal
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.client.fake import TOPIC_UID, FakeBroker, FakeStream, delivery, done, now_ms


@asynccontextmanager
async def subscribed(
    broker: FakeBroker, *, prefetch: int = 4, renew_in_hand: bool = False, **given: Any
) -> AsyncIterator[tuple[AsyncClient, ConsumerStream]]:
    async with broker, broker.client(**given) as client:
        stream = await client.subscribe(
            ["t"], consumer="c", prefetch=prefetch, renew_in_hand=renew_in_hand
        )
        yield client, stream


async def _taken(broker: FakeBroker, stream: ConsumerStream, *ids: str) -> list[AsyncLease]:
    await broker.push(*(delivery(each, version=10) for each in ids))
    return [await stream.next() for _ in ids]


def _granted(broker: FakeBroker) -> int:
    """The total credit that the broker got."""
    asked = sum(each.subscribe.credit for each in broker.frames)
    return int(asked + sum(each.credit.more for each in broker.frames))


# Time


def test_early_push_is_handed_over_at_its_due() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker) as (_, stream):
            due_ms = now_ms() + 150
            pushed = [
                delivery("later", due_ms=due_ms + 50),
                delivery("early", due_ms=due_ms),
                delivery("overdue", due_ms=due_ms - 10_000),
            ]
            await broker.push(*pushed)
            leases = [await stream.next() for _ in pushed]
            assert [each.id for each in leases] == ["overdue", "early", "later"]
            assert all(each.late_ms >= 0 for each in leases)
            assert leases[1].handed_over_us is not None
            assert leases[1].handed_over_us >= due_ms * 1000

    asyncio.run(play())


def test_due_counts_by_the_broker_clock() -> None:
    async def play() -> None:
        broker = FakeBroker()
        hour_ms = 3_600_000
        broker.ahead_us = -hour_ms * 1000
        async with subscribed(broker) as (_, stream):
            due_ms = now_ms() - hour_ms + 100
            await broker.push(delivery("a", due_ms=due_ms))
            lease = await stream.next()
            assert lease.late_ms >= 0
            assert 0 < lease.seconds_left <= 30

    asyncio.run(play())


def test_lease_is_lost_at_its_end() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker) as (_, stream):
            await broker.push(delivery("a", lease_ms=200))
            lease = await stream.next()
            assert not lease.is_lost
            await asyncio.sleep(lease.seconds_left)  # until it is over
            while lease.seconds_left:
                await asyncio.sleep(0.001)  # timers may wake a little early
            assert lease.is_lost
            assert not lease.is_live

    asyncio.run(play())


# Renewing


def test_only_prefetched_leases_are_renewed() -> None:
    async def play() -> None:
        async def short(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "subscribe":
                told = pb.Subscribed(topic_uid=TOPIC_UID, lease_ms=600)
                await stream.reply(seq=frame.seq, subscribed=told)
            else:
                await done(stream, frame)

        broker = FakeBroker(short)
        async with subscribed(broker) as (_, stream):
            await broker.push(delivery("in-hand", lease_ms=600), delivery("waits", lease_ms=600))
            in_hand = await stream.next()
            moves = await broker.seen("move", 3)
            assert {move.id for frame in moves for move in frame.move.moves} == {"waits"}
            assert {frame.move.kind for frame in moves} == {pb.MoveBatch.KIND_EXTEND}
            await in_hand.lost.wait()  # its time is over, and its place is free
            await broker.seen("credit")
            waited = await stream.next()
            assert waited.id == "waits"
            assert waited.version > 1

    asyncio.run(play())


def test_ack_waits_for_a_pending_extension() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "move":
                held.append((stream, frame))
            else:
                await done(stream, frame)

        held: list[tuple[FakeStream, Any]] = []
        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            extending = asyncio.ensure_future(lease.extend(60))
            await broker.seen("move")
            acking = asyncio.ensure_future(lease.ack())
            await done(*held[0])
            await extending
            await acking
            (ack,) = await broker.seen("ack")
            assert [(ref.id, ref.version) for ref in ack.ack.leases] == [("a", 11)]

    asyncio.run(play())


_DUE = datetime(2100, 1, 1, tzinfo=UTC)
_WORDS: dict[str, Callable[[AsyncLease], Awaitable[None]]] = {
    "ack": lambda lease: lease.ack(),
    "retry": lambda lease: lease.retry(delay=5),
    "retry later": lambda lease: lease.retry(delay=6),
    "release": lambda lease: lease.release(due=_DUE),
    "bury": lambda lease: lease.bury("why"),
    "bury otherwise": lambda lease: lease.bury("why not"),
    "unreserve": lambda lease: lease.give_back(),
}
_PAIRS = list(product(_WORDS, _WORDS))


def _asked(broker: FakeBroker) -> int:
    """The number of settlements that the broker got."""
    return len(broker.of("ack") + broker.of("move"))


def test_only_the_same_settlement_may_be_repeated() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker) as (_, stream):
            for first, second in _PAIRS:
                (lease,) = await _taken(broker, stream, f"{first}, {second}")
                await _WORDS[first](lease)
                asked = _asked(broker)
                if first == second:
                    await _WORDS[second](lease)
                else:
                    with pytest.raises(ChronolineError, match=f"settled already, by {first[:3]}"):
                        await _WORDS[second](lease)
                with pytest.raises(ChronolineError, match="settled already"):
                    await lease.extend()
                assert not lease.is_lost
                assert _asked(broker) == asked

    asyncio.run(play())


def test_lapsed_lease_stays_refused() -> None:
    async def play() -> None:
        broker = FakeBroker(_refusing("lapsed"))
        async with subscribed(broker) as (_, stream):
            for place, (first, second) in enumerate(_PAIRS, 1):
                (lease,) = await _taken(broker, stream, f"{first}, {second}")
                for work in (_WORDS[first](lease), _WORDS[second](lease), lease.extend()):
                    with pytest.raises(Refused) as refused:
                        await work
                    assert refused.value.outcomes[0].refusal is Refusal.LAPSED
                assert lease.is_lost
                assert _asked(broker) == place

    asyncio.run(play())


def test_harmless_refusal_leaves_the_lease_open() -> None:
    async def play() -> None:
        broker = FakeBroker(_refusing("too_soon"))
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            for work in (lease.extend(1), lease.release(delay=1), lease.retry(delay=1)):
                with pytest.raises(Refused):
                    await work
                assert (lease.is_lost, lease.is_settled) == (False, False)
            broker.answer = done
            await lease.retry(delay=60)
            assert lease.is_settled

    asyncio.run(play())


def test_concurrent_acks_share_one_outcome() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            said = [lease.ack(), lease.ack(), lease.retry(), lease.ack()]
            results = await asyncio.gather(*said, return_exceptions=True)
            assert [type(each) for each in results] == [
                type(None),
                type(None),
                ChronolineError,
                type(None),
            ]
            assert _asked(broker) == 1

    asyncio.run(play())


def _refusing(refusal: str) -> Callable[[FakeStream, Any], Awaitable[None]]:
    async def answer(stream: FakeStream, frame: Any) -> None:
        match frame.WhichOneof("what"):
            case "ack":
                ids = [each.id for each in frame.ack.leases]
                await stream.outcomes(frame.seq, [pb.Outcome(id=i, refusal=refusal) for i in ids])
            case "move":
                outcomes = [pb.Outcome(id=m.id, refusal=refusal) for m in frame.move.moves]
                moved = pb.Moved(outcomes=outcomes, at_ms=[0] * len(outcomes))
                await stream.reply(seq=frame.seq, moved=moved)
            case _:
                await done(stream, frame)

    return answer


# Credit


def test_redelivered_message_takes_one_credit() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker, prefetch=1) as (_, stream):
            for version in range(1, 6):
                await broker.push(delivery("a", version=version))
                assert (await stream.next()).version == version
            await broker.until(lambda: _granted(broker) == 5)  # one for each that was pushed

    asyncio.run(play())


def test_credit_of_one_turn_is_granted_together() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker, prefetch=8) as (_, stream):
            leases = await _taken(broker, stream, *"abcdefgh")
            await asyncio.gather(*(lease.ack() for lease in leases))
            (ack,) = await broker.seen("ack")
            (credit,) = await broker.seen("credit")
            assert len(ack.ack.leases) == 8
            assert credit.credit.more == 8

    asyncio.run(play())


def test_credit_of_which_the_broker_has_enough_travels_with_another_frame() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker, prefetch=16) as (_, stream):
            first, second = await _taken(broker, stream, "a", "b")
            await first.ack()
            await asyncio.sleep(0)  # the turn in which it would leave by itself
            await second.ack()
            (credit,) = await broker.seen("credit")
            whats = [each.WhichOneof("what") for each in broker.frames]
            assert whats == ["subscribe", "ack", "ack", "credit"]
            assert credit.credit.more == 1

    asyncio.run(play())


def test_credit_leaves_at_once_when_the_broker_has_little() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker, prefetch=4) as (_, stream):
            leases = await _taken(broker, stream, "a", "b")
            await leases[0].ack()
            (credit,) = await broker.seen("credit")
            assert credit.credit.more == 1

    asyncio.run(play())


# A stream that breaks


def _keeping(*kept: str) -> Any:
    """Answers a subscribe with these leases, under new versions."""

    async def answer(stream: FakeStream, frame: Any) -> None:
        if frame.WhichOneof("what") != "subscribe":
            await done(stream, frame)
            return
        leases = [
            pb.KeptLease(id=each.id, version=20, until_ms=now_ms() + 30_000)
            for each in frame.subscribe.holding
            if each.id in kept
        ]
        told = pb.Subscribed(topic_uid=TOPIC_UID, lease_ms=30_000, kept=leases)
        await stream.reply(seq=frame.seq, subscribed=told)

    return answer


def test_reconnect_reports_leases_and_loses_unkept_ones() -> None:
    async def play() -> None:
        broker = FakeBroker(_keeping("kept"))
        async with subscribed(broker, prefetch=4) as (_, stream):
            kept, lost = await _taken(broker, stream, "kept", "lost")
            held = {each.id: (each.version, False) for each in (kept, lost)}
            broker.streams[0].end()
            again = (await broker.seen("subscribe", 2))[1].subscribe
            assert {each.id: (each.version, each.extending) for each in again.holding} == held
            assert again.credit == 2
            await lost.lost.wait()
            assert lost.is_lost
            assert not kept.is_lost
            await kept.ack()
            (ack,) = await broker.seen("ack")
            assert ack.ack.leases[0].version == 20
            await broker.until(lambda: _granted(broker) == 4 + 2 + 2)

    asyncio.run(play())


def test_unanswered_ack_is_repeated_under_the_new_version() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "ack" and stream is broker.streams[0]:
                stream.end()
            else:
                await _keeping("a")(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            await lease.ack()
            versions = [frame.ack.leases[0].version for frame in await broker.seen("ack", 2)]
            assert versions == [10, 20]

    asyncio.run(play())


def test_undecidable_retry_is_unknown() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") != "move":
                await _keeping()(stream, frame)
            elif stream is broker.streams[0]:
                stream.end()
            else:
                assert frame.move.again
                outcomes = [pb.Outcome(id="a", unknown=True)]
                await stream.reply(seq=frame.seq, moved=pb.Moved(outcomes=outcomes, at_ms=[0]))

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            with pytest.raises(OutcomeUnknown, match="an earlier attempt was not answered"):
                await lease.retry(delay=5)

    asyncio.run(play())


_SETTLED: dict[str, Callable[[AsyncLease], Awaitable[None]]] = {
    "ack": lambda lease: lease.ack(),
    "extend": lambda lease: lease.extend(),
    "release": lambda lease: lease.release(),
    "retry": lambda lease: lease.retry(),
    "bury": lambda lease: lease.bury("no use"),
    "unreserve": lambda lease: lease.give_back(),
}


@pytest.mark.parametrize("what", _SETTLED)
def test_refusal_after_an_unanswered_attempt_leaves_doubt(what: str) -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") not in ("ack", "move"):
                await done(stream, frame)
            elif len(broker.of("ack") + broker.of("move")) == 1:
                await stream.failure(frame.seq, "unknown", "outcome_unknown")
            else:
                await stream.failure(frame.seq, "refused", "topic_not_found")

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            for _ in range(2):  # the second call names the doubt that the first left
                with pytest.raises(OutcomeUnknown) as raised:
                    await _SETTLED[what](lease)
                assert isinstance(raised.value.__cause__, TopicNotFound)

    asyncio.run(play())


def test_ack_sent_before_a_replacement_is_unknown() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") != "ack":
                await done(stream, frame)
                return
            await stream.reply(go_away=pb.GoAway(code="replaced", message="connected anew"))
            stream.end()

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            with pytest.raises(OutcomeUnknown, match="connected anew"):
                await lease.ack()

    asyncio.run(play())


def test_failing_subscription_is_repeated() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            fails = len(broker.streams) == 2 and len(stream.frames) < 4
            if frame.WhichOneof("what") == "subscribe" and fails:
                await stream.failure(frame.seq, "try_again", "store_unavailable")
            else:
                await done(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            broker.streams[0].end()
            await broker.seen("subscribe", 1 + 4)
            await broker.push(delivery("a"))
            assert (await stream.next()).id == "a"

    asyncio.run(play())


def test_break_does_not_repeat_a_subscription_twice() -> None:
    async def play() -> None:
        held: list[tuple[FakeStream, Any]] = []

        async def answer(stream: FakeStream, frame: Any) -> None:
            if stream is broker.streams[0]:
                await stream.failure(frame.seq, "try_again", "store_busy", retry_after_ms=300)
                stream.end()
            elif stream.frames[0] is not frame:  # as a broker answers while the first one waits
                await stream.failure(frame.seq, "refused", "already_subscribed")
            else:
                held.append((stream, frame))

        async with FakeBroker(answer) as broker, broker.client() as client:
            subscribing = asyncio.ensure_future(client.subscribe(["t"], consumer="c"))
            await broker.until(lambda: bool(held))
            await asyncio.sleep(0.4)  # past the time after which the first stream was to ask again
            await done(*held[0])
            stream = await subscribing
            broker.answer = done
            await broker.push(delivery("a"))
            assert (await stream.next()).id == "a"
            assert len(broker.of("subscribe")) == 2

    asyncio.run(play())


def test_topic_missing_after_a_break_ends_the_consumer() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(broker.streams) > 1 and frame.WhichOneof("what") == "subscribe":
                await stream.failure(frame.seq, "refused", "topic_not_found")
            else:
                await done(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            waiting = asyncio.ensure_future(stream.next())
            broker.streams[0].end()
            with pytest.raises(TopicNotFound):
                await waiting
            assert lease.is_lost

    asyncio.run(play())


def test_stream_broken_during_subscribe_is_reopened() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(broker.streams) < 3:
                stream.end()
            else:
                await done(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (_, stream):
            await broker.push(delivery("a"))
            assert (await stream.next()).id == "a"
            assert len(broker.streams) == 3

    asyncio.run(play())


def test_refused_subscription_says_why() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            await stream.failure(frame.seq, "refused", "invalid_input")

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(InvalidInput):
                await client.subscribe(["t"])

    asyncio.run(play())


def test_unanswered_subscription_is_unavailable() -> None:
    async def play() -> None:
        async def never(stream: FakeStream, frame: Any) -> None:
            """Never answer."""

        async with FakeBroker(never) as broker, broker.client(timeout=2) as client:
            with pytest.raises(BrokerUnavailable, match="did not accept the subscription"):
                await client.subscribe(["t"])

    asyncio.run(play())


def test_closing_the_client_ends_a_waiting_subscription() -> None:
    async def play() -> None:
        async def busy(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "subscribe":
                await stream.failure(frame.seq, "try_again", "store_busy", retry_after_ms=60_000)
            else:
                await done(stream, frame)

        async with FakeBroker(busy) as broker, broker.client() as client:
            subscribing = asyncio.ensure_future(client.subscribe(["t"], consumer="c"))
            await broker.seen("subscribe")
            await client.close()
            with pytest.raises(ClientClosed):
                await subscribing

    asyncio.run(play())


def test_replaced_consumer_raises_and_stays_away() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with subscribed(broker) as (_, stream):
            (lease,) = await _taken(broker, stream, "a")
            away = pb.GoAway(
                code="replaced", message="consumer 'c' was replaced by a new connection"
            )
            await broker.streams[0].reply(go_away=away)
            broker.streams[0].end()
            with pytest.raises(ConsumerReplaced, match="was replaced by a new connection"):
                await stream.next()
            assert lease.is_lost
            with pytest.raises(ConsumerReplaced):
                await lease.ack()
            assert len(broker.streams) == 1

    asyncio.run(play())


# Leaving


def test_prefetched_leases_are_returned_unchanged() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "unsubscribe":  # it crossed a push on its way
                late = pb.Push(topic_uid=TOPIC_UID, deliveries=[delivery("crossed")])
                await stream.reply(push=late)
            await done(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (client, stream):
            due_ms = now_ms() + 10_000
            await broker.push(
                delivery("in-hand"), delivery("waits"), delivery("early", due_ms=due_ms)
            )
            in_hand = await stream.next()
            await client.unsubscribe(stream)
            frames = await broker.seen("move")
            assert {each.move.kind for each in frames} == {pb.MoveBatch.KIND_UNRESERVE}
            moves = {move.id: move for each in frames for move in each.move.moves}
            assert moves.keys() == {"waits", "early", "crossed"}
            assert all(move.WhichOneof("when") is None for move in moves.values())
            assert not in_hand.is_settled

    asyncio.run(play())


def test_lease_held_after_leaving_survives_a_break() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if stream is not broker.streams[0] and len(stream.frames) == 1:
                await stream.failure(frame.seq, "try_again", "store_unavailable")
            else:
                await _keeping("a")(stream, frame)

        broker = FakeBroker(answer)
        async with subscribed(broker) as (client, stream):
            (lease,) = await _taken(broker, stream, "a")
            await client.unsubscribe(stream)
            broker.streams[0].end()
            await lease.ack()
            (ack,) = broker.of("ack")
            assert ack.ack.leases[0].version == 20
            again = [
                each.subscribe for each in broker.streams[1].frames if each.HasField("subscribe")
            ]
            assert [(each.credit, [held.id for held in each.holding]) for each in again] == [
                (0, ["a"])
            ] * 2
            await broker.seen("unsubscribe", 2)

    asyncio.run(play())


def test_closing_the_client_returns_prefetched_leases() -> None:
    async def play() -> None:
        broker = FakeBroker()
        async with broker, broker.client() as client:
            stream = await client.subscribe(["t"])
            await broker.push(delivery("waits"), delivery("in-hand"))
            await stream.next()
            await client.close()
            (frame,) = await broker.seen("move")
            assert len(frame.move.moves) == 1

    asyncio.run(play())
