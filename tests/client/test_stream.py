"""Producer streams: shared frames, repetition, and the errors for missing answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.brokers import Brokers
from chronoline.client.producer_stream import ProducerStream
from chronoline.client.requests import FrameLimits, Part, Request, RequestKind, RequestQueue
from chronoline.core.change import Change
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    ConsumerReplaced,
    InvalidInput,
    OutcomeUnknown,
    Refused,
    TopicNotFound,
    Unauthenticated,
)
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import running
from tests.client.fake import TOPIC_UID, FakeBroker, FakeStream, done
from tests.deadline import until

_SHORT_S = 0.3


def test_sends_of_one_turn_share_a_frame() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            await client.send("t", b"first")  # the stream is open
            await asyncio.gather(*(client.send("t", b"x", delay=60) for _ in range(64)))
            sizes = [len(frame.create.messages) for frame in broker.frames]
            assert sizes == [1, 64]

    asyncio.run(play())


def test_sends_before_the_stream_opens_share_a_frame() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            await asyncio.gather(*(client.send("t", b"x") for _ in range(64)))
            assert [len(frame.create.messages) for frame in broker.frames] == [64]

    asyncio.run(play())


def test_each_kind_has_its_own_frames_and_answers() -> None:
    async def play() -> None:
        async def refuse_cancels(stream: FakeStream, frame: Any) -> None:
            if frame.WhichOneof("what") == "cancel":
                outcomes = [pb.Outcome(id=each, refusal="leased") for each in frame.cancel.ids]
                await stream.outcomes(frame.seq, outcomes)
            else:
                await done(stream, frame)

        async with FakeBroker(refuse_cancels) as broker, broker.client() as client:
            await client.send("t", b"first")
            answers = await asyncio.gather(
                client.send("t", id="a"),
                client.cancel("t", "b"),
                client.reschedule("t", "c", delay=1),
                client.send("t", id="d", if_exists="replace"),
                client.send("t", id="e"),
                return_exceptions=True,
            )
            sent, refused, moved, *others = answers
            assert (sent, moved, others) == ("a", None, ["d", "e"])
            assert isinstance(refused, Refused)
            kinds = [frame.WhichOneof("what") for frame in broker.frames[1:]]
            assert sorted(kinds) == ["cancel", "create", "create", "reschedule"]

    asyncio.run(play())


def _break_once(broker: FakeBroker, refusal: str) -> None:
    """The first stream breaks at its first request; later streams answer with `refusal`."""

    async def answer(stream: FakeStream, frame: Any) -> None:
        if stream is broker.streams[0]:
            stream.end()
            return
        outcomes = [pb.Outcome(id=m.id, refusal=refusal) for m in frame.create.messages]
        await stream.outcomes(frame.seq, outcomes)

    broker.answer = answer


def test_existing_generated_id_after_a_break_is_done() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            _break_once(broker, "exists")
            sent = await client.send("t", b"x")
            first, second = broker.frames
            assert first.create.messages[0].id == second.create.messages[0].id == sent

    asyncio.run(play())


def test_existing_own_id_after_a_break_names_the_doubt() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            _break_once(broker, "exists")
            with pytest.raises(Refused, match="perhaps by an earlier attempt") as refused:
                await client.send("t", b"x", id="u1")
            assert refused.value.outcomes[0].refusal is Refusal.EXISTS

    asyncio.run(play())


def test_existing_id_at_first_attempt_is_refused() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            await stream.outcomes(frame.seq, [pb.Outcome(id="u1", refusal="exists")])

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(Refused) as refused:
                await client.send("t", b"x", id="u1")
            assert "earlier attempt" not in str(refused.value)

    asyncio.run(play())


# No answer


async def _never(stream: FakeStream, frame: Any) -> None:
    """Accept the frame and never answer."""


def test_sent_and_unanswered_request_is_unknown() -> None:
    async def play() -> None:
        async with FakeBroker(_never) as broker, broker.client(timeout=_SHORT_S) as client:
            with pytest.raises(
                OutcomeUnknown, match=r"ask again with the same ids: no answer came"
            ):
                await client.send("t", b"x", id="u1")
            assert len(broker.frames) == 1

    asyncio.run(play())


def test_unsent_request_is_unavailable() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client(timeout=_SHORT_S) as client:
            broker.silent = True
            with pytest.raises(BrokerUnavailable, match="nothing was changed"):
                await client.send("t", b"x", id="u1")
            assert broker.frames == []

    asyncio.run(play())


def test_missing_broker_error_shows_how_to_start_one() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            client = broker.client()
        with pytest.raises(BrokerUnavailable, match="start one with `chronoline up`"):
            await client.send("t", b"x")
        await client.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("kind", "code", "error"),
    [
        ("try_again", "store_busy", BrokerUnavailable),
        ("unknown", "outcome_unknown", OutcomeUnknown),
    ],
)
def test_failing_request_is_repeated_until_the_timeout(
    kind: str, code: str, error: type[Exception]
) -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            last = len(broker.frames) == 3
            await stream.failure(frame.seq, kind, code, retry_after_ms=60_000 if last else 1)

        async with FakeBroker(answer) as broker, broker.client(timeout=2) as client:
            with pytest.raises(error, match=f"not done within 2 s; .* last answered: {kind}"):
                await client.send("t", b"x")
            ids = {frame.create.messages[0].id for frame in broker.frames}
            assert len(broker.frames) == 3
            assert len(ids) == 1

    asyncio.run(play())


def test_request_succeeds_after_transient_failures() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(broker.frames) < 4:
                await stream.failure(frame.seq, "try_again", "store_unavailable")
            else:
                await done(stream, frame)

        async with FakeBroker(answer) as broker, broker.client() as client:
            assert await client.send("t", b"x", id="u1") == "u1"
            assert len(broker.frames) == 4

    asyncio.run(play())


def test_refused_request_is_not_repeated() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            await stream.failure(frame.seq, "refused", "invalid_input")

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(InvalidInput):
                await client.send("t", b"x")
            assert len(broker.frames) == 1

    asyncio.run(play())


_CODES = {
    "topic_not_found": TopicNotFound,
    "invalid_input": InvalidInput,
    "unauthenticated": Unauthenticated,
    "of_a_newer_broker": InvalidInput,
}
_CHANGES: dict[str, Callable[[AsyncClient], Awaitable[Any]]] = {
    "create": lambda client: client.send("t", id="u1"),
    "reschedule": lambda client: client.reschedule("t", "u1", delay=1),
    "cancel": lambda client: client.cancel("t", "u1"),
}


@pytest.mark.parametrize("first", ["unknown", "try_again"])
@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("code", _CODES)
def test_refusal_after_an_unanswered_attempt_is_unknown(code: str, change: str, first: str) -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(broker.frames) == 1:
                await stream.failure(frame.seq, first)
            else:
                await stream.failure(frame.seq, "refused", code)

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(ChronolineError) as raised:
                await _CHANGES[change](client)
            assert len(broker.frames) == 2
            if first == "unknown":
                assert type(raised.value) is OutcomeUnknown
                assert type(raised.value.__cause__) is _CODES[code]
            else:  # nothing was changed by the first
                assert type(raised.value) is _CODES[code]

    asyncio.run(play())


@pytest.mark.parametrize("first", ["unknown", "the stream ends"])
def test_unknown_replacement_is_not_repeated(first: str) -> None:
    """A repetition could create again a message that was delivered and acked meanwhile."""

    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if first == "unknown":
                await stream.failure(frame.seq, "unknown", "outcome_unknown", retry_after_ms=1)
            else:
                stream.end()

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(OutcomeUnknown, match="is not repeated"):
                await client.send("t", b"x", id="u1", if_exists="replace")
            assert len(broker.frames) == 1

    asyncio.run(play())


def test_replacement_that_changed_nothing_is_repeated() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(broker.frames) == 1:
                await stream.failure(frame.seq, "try_again", "store_busy", retry_after_ms=1)
            else:
                await done(stream, frame)

        async with FakeBroker(answer) as broker, broker.client() as client:
            assert await client.send("t", b"x", id="u1", if_exists="replace") == "u1"

    asyncio.run(play())


@pytest.mark.parametrize("done_first", [True, False])
def test_refusal_of_one_part_waits_for_the_others(done_first: bool) -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if len(stream.frames) < 3:
                return  # three are under way
            if done_first:
                await stream.failure(stream.frames[1].seq, "refused", "topic_not_found")
                await done(stream, stream.frames[0])
            else:
                await stream.failure(stream.frames[0].seq, "refused", "topic_not_found")
                await stream.failure(stream.frames[1].seq, "refused", "topic_not_found")
            await stream.failure(frame.seq, "refused", "topic_not_found")

        limits = pb.Limits(frame_bytes=1024 * 1024, batch=10, credit=1, ping_interval_ms=60_000)
        async with FakeBroker(answer, limits=limits) as broker, broker.client() as client:
            messages = [ToSend(id=f"m{number}") for number in range(30)]
            with pytest.raises(OutcomeUnknown if done_first else TopicNotFound):
                await client.send_many("t", messages)

    asyncio.run(play())


def test_unsent_parts_stay_unsent_after_a_refusal() -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        request = Request("k", [1, 2, 3], [1, 1, 1], loop.create_future())
        line, limits = RequestQueue(), FrameLimits(1, 100, 100)
        line.add(Part(request, 0, 3))
        (first,) = line.take(limits)
        first.left()
        first.refused(TopicNotFound())
        assert not request.done
        assert line.take(limits) == []
        with pytest.raises(TopicNotFound):
            await request.future

    asyncio.run(play())


def test_rejected_stream_fails_all_waiting_requests() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            broker.answer_hello = pb.Failure(
                code="unauthenticated", kind="refused", message="no such token"
            )
            stream.end()

        async with FakeBroker(answer) as broker, broker.client() as client:
            sends = [client.send("t", b"x") for _ in range(3)]
            answers = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(each) for each in answers] == [OutcomeUnknown] * 3  # they had left
            assert all("no such token" in str(each) for each in answers)
            with pytest.raises(Unauthenticated):
                await client.send("t", b"x")

    asyncio.run(play())


def _cancel(message_id: str) -> Change:
    return Change(Operation.CANCEL, message_id, "g")


class _Id(str):
    """An id of which one can tell whether it is still kept."""

    __slots__ = ("__weakref__",)


_CANCEL = RequestKind(Operation.CANCEL, TOPIC_UID)


def test_abandoned_requests_are_freed_while_disconnected() -> None:
    async def play() -> None:
        async with FakeBroker() as broker:
            broker.silent = True
            brokers = Brokers(broker.address, None, False)
            stream = ProducerStream(brokers, "g", timeout_s=_SHORT_S)
            kept = [
                await _timed_out(stream),
                await _cancelled(stream),
            ]
            gc.collect()
            assert [each() for each in kept] == [None, None]
            await stream.close()
            await brokers.close()

    async def _timed_out(stream: ProducerStream) -> weakref.ref[_Id]:
        message_id = _Id("timed-out")
        with pytest.raises(BrokerUnavailable):
            await stream.request(_CANCEL, [_cancel(message_id)])
        return weakref.ref(message_id)

    async def _cancelled(stream: ProducerStream) -> weakref.ref[_Id]:
        message_id = _Id("cancelled")
        asking = asyncio.ensure_future(stream.request(_CANCEL, [_cancel(message_id)]))
        await asyncio.sleep(0)  # it waits to be sent
        asking.cancel()
        await asyncio.wait([asking])
        return weakref.ref(message_id)

    asyncio.run(play())


# Large requests


def test_large_batch_is_split_by_the_broker_limits() -> None:
    async def play() -> None:
        limits = pb.Limits(frame_bytes=64 * 1024, batch=1_000, credit=1, ping_interval_ms=60_000)
        async with FakeBroker(limits=limits) as broker, broker.client() as client:
            messages = [ToSend(id=f"m{number}", body=b"x" * 100) for number in range(25_000)]
            outcomes = await client.send_many("t", messages)
            assert [each.id for each in outcomes] == [each.id for each in messages]
            assert max(len(frame.create.messages) for frame in broker.frames) <= 1_000
            assert max(frame.ByteSize() for frame in broker.frames) <= 64 * 1024
            sent = [each.id for frame in broker.frames for each in frame.create.messages]
            assert sent == [each.id for each in messages]

    asyncio.run(play())


def test_only_unanswered_parts_of_a_batch_are_repeated() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if stream is broker.streams[0] and len(stream.frames) == 3:
                stream.end()
            else:
                await done(stream, frame)

        limits = pb.Limits(frame_bytes=1024 * 1024, batch=10, credit=1, ping_interval_ms=60_000)
        async with FakeBroker(answer, limits=limits) as broker, broker.client() as client:
            messages = [ToSend(id=f"m{number}") for number in range(100)]
            outcomes = await client.send_many("t", messages)
            assert [each.id for each in outcomes] == [each.id for each in messages]
            first, second = broker.streams
            again = {each.id for frame in second.frames for each in frame.create.messages}
            assert {"m0", "m19"}.isdisjoint(again)  # answered before the stream broke
            assert {f"m{number}" for number in range(20, 100)} <= again
            assert len(first.frames) >= 3

    asyncio.run(play())


def test_oversized_message_is_refused_by_the_client() -> None:
    async def play() -> None:
        limits = pb.Limits(frame_bytes=64 * 1024, batch=1_000, credit=1, ping_interval_ms=60_000)
        async with FakeBroker(limits=limits) as broker, broker.client() as client:
            small = ToSend(id="small")
            large = ToSend(id="large", body=b"x" * 70_000)
            answers = await asyncio.gather(
                client.send_many("t", [small, large]),
                client.send("t", id="other"),
                return_exceptions=True,
            )
            assert isinstance(answers[0], InvalidInput)
            assert "nothing was sent" in str(answers[0])
            assert answers[1] == "other"
            sent = [each.id for frame in broker.frames for each in frame.create.messages]
            assert sent == ["other"]
            assert len(broker.streams) == 1

    asyncio.run(play())


def test_any_number_of_messages_can_be_sent_at_once() -> None:
    async def play() -> None:
        async with running("memory:") as broker, broker.client() as client:
            await client.create_topic("t")
            messages = [ToSend(id=f"m{number}", delay=3_600) for number in range(25_000)]
            outcomes = await client.send_many("t", [*messages, messages[0]])
            assert [each.id for each in outcomes.refused] == ["m0"]
            assert len(outcomes) == 25_001
            assert (await client.count("t")).waiting == 25_000

    asyncio.run(play())


def test_empty_batch_sends_nothing() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            assert await client.send_many("t", []) == []
            assert broker.frames == []

    asyncio.run(play())


# The end of a stream


def test_go_away_moves_unsent_requests_to_another_stream() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            if stream is broker.streams[0]:
                away = pb.GoAway(code="stopping", message="the broker is stopping")
                await stream.reply(go_away=away)
            await done(stream, frame)

        async with FakeBroker(answer) as broker, broker.client() as client:
            assert await client.send("t", id="under-way") == "under-way"
            later = asyncio.ensure_future(client.send("t", id="later"))
            await asyncio.sleep(0)  # it waits to be sent
            broker.streams[0].end()
            assert await later == "later"
            first, second = broker.streams
            assert [m.id for f in first.frames for m in f.create.messages] == ["under-way"]
            assert [m.id for f in second.frames for m in f.create.messages] == ["later"]

    asyncio.run(play())


async def _busy(stream: FakeStream, frame: Any) -> None:
    """Answer: try again in a minute."""
    await stream.failure(frame.seq, "try_again", "store_busy", retry_after_ms=60_000)


def test_closing_the_client_fails_requests_in_back_off() -> None:
    async def play() -> None:
        async with FakeBroker(_busy) as broker, broker.client() as client:
            sending = asyncio.ensure_future(client.send("t", b"x"))
            await broker.seen("create")
            await client.close()
            with pytest.raises(
                BrokerUnavailable, match="nothing was changed: the client was closed"
            ):
                await sending

    asyncio.run(play())


def test_rejected_stream_fails_requests_in_back_off() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            await _busy(stream, frame)
            broker.answer_hello = pb.Failure(
                code="unauthenticated", kind="refused", message="no such token"
            )
            stream.end()

        async with FakeBroker(answer) as broker, broker.client() as client:
            with pytest.raises(Unauthenticated):
                await client.send("t", b"x")

    asyncio.run(play())


def test_silent_broker_is_reconnected() -> None:
    async def play() -> None:
        limits = pb.Limits(
            frame_bytes=1024 * 1024, batch=10, credit=1, ping_interval_ms=50, ping_timeout_ms=200
        )
        async with FakeBroker(limits=limits) as broker, broker.client() as client:
            await client.send("t", b"first")
            broker.deaf = True
            assert await client.send("t", b"x", id="u1") == "u1"
            assert len(broker.streams) == 2
            assert await client.send("t", b"x", id="u2") == "u2"
            assert len(broker.streams) == 2

    asyncio.run(play())


def test_outage_is_logged_once_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    def told(words: str) -> int:
        return sum(words in each for each in caplog.messages)

    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            await client.send("t")
            broker.answer_hello = pb.Failure(code="unavailable", message="no", kind="try_again")
            broker.streams[0].end()
            await until(lambda: len(broker.hellos) > 4)
            assert told("connection is lost") == 1
            broker.answer_hello = None
            await client.send("t")
            assert told("connected again") == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())


def test_unknown_reply_is_ignored() -> None:
    async def play() -> None:
        async def answer(stream: FakeStream, frame: Any) -> None:
            await stream.reply(seq=12345)
            await done(stream, frame)

        async with FakeBroker(answer) as broker, broker.client() as client:
            assert await client.send("t", id="a") == "a"
            assert len(broker.streams) == 1

    asyncio.run(play())


# Frames that travel together


def test_combined_answers_reach_every_request() -> None:
    async def play() -> None:
        held: list[pb.ProducerReply] = []

        async def answer(stream: FakeStream, frame: Any) -> None:
            outcomes = [pb.Outcome(id=each) for each in _ids_of(frame)]
            held.append(pb.ProducerReply(seq=frame.seq, outcomes=pb.Outcomes(outcomes=outcomes)))
            if len(held) == 2:
                first, second = held
                await stream.reply(seq=first.seq, outcomes=first.outcomes, more=[second])

        async with FakeBroker(answer) as broker, broker.client() as client:
            sent, _ = await asyncio.gather(client.send("t", id="a"), client.cancel("t", "b"))
            assert sent == "a"
            assert len(broker.frames) == 2

    asyncio.run(play())


def _ids_of(frame: Any) -> list[str]:
    if frame.WhichOneof("what") == "cancel":
        return list(frame.cancel.ids)
    return [each.id for each in frame.create.messages]


def test_reply_combined_with_the_welcome_is_handled() -> None:
    async def play() -> None:
        go_away = pb.ConsumerReply(go_away=pb.GoAway(code="replaced", message="by another"))
        async with FakeBroker() as broker, broker.client() as client:
            broker.behind_welcome = [go_away]
            with pytest.raises(ConsumerReplaced, match="by another"):
                await anext(client.consume("t", consumer="c"))

    asyncio.run(play())


def test_drift_of_the_machine_is_logged_when_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    often = pb.Limits(frame_bytes=1 << 20, batch=100, ping_interval_ms=50)

    async def play() -> None:
        async with FakeBroker(limits=often) as broker, broker.client() as client:
            await client.send("t")
            for drift_us in (2_500_000, 0, -3_000_000):
                pongs, broker.drift_us = broker.pongs, drift_us
                await until(lambda: broker.pongs >= pongs + 3)  # noqa: B023 - awaited here
                await client.send("t")  # its answer comes after the pongs

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert [each for each in caplog.messages if "clock" in each] == [
        "this machine's clock is 2.500 s ahead of the broker's",
        "this machine's clock is 3.000 s behind the broker's",
    ]


def test_ping_names_the_one_that_it_measured() -> None:
    async def play() -> None:
        often = pb.Limits(frame_bytes=1 << 20, batch=100, ping_interval_ms=50)
        async with FakeBroker(limits=often) as broker, broker.client() as client:
            await client.send("t")
            await until(lambda: len(broker.pings) >= 4)
            assert broker.pings[0].measured_us == 0
            sent_us = {each.sent_us for each in broker.pings}
            measured = [each for each in broker.pings if each.round_trip_us]
            assert measured
            assert {each.measured_us for each in measured} <= sent_us

    asyncio.run(play())


def test_pongs_set_the_interval_of_pings() -> None:
    async def play() -> None:
        rarely = pb.Limits(frame_bytes=1 << 20, batch=100, ping_interval_ms=2_000)
        async with FakeBroker(limits=rarely) as broker, broker.client() as client:
            broker.ping_interval_ms = 1
            await client.send("t")
            await until(lambda: len(broker.pings) >= 40)  # at the first interval that takes longer

    asyncio.run(play())
