"""Malformed frames are answered as invalid input; the stream continues, and other clients are unaffected."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.core.limits import MAX_TIME_MS
from chronoline.testing.postgres import PostgresServer
from chronoline.wire.codes import CODES, FAILURE_KEY, FailureKind
from chronoline.wire.v1 import chronoline_pb2 as pb
from tests.broker.nodes import Running, running

Result = TypeVar("Result")
_EXAMPLES = {"sqlite": 50, "postgres": 20}
_LAST_US = 4_711
"""Of the ping that ends every attempt."""
_STREAMS: dict[str, tuple[Any, Any]] = {
    "Produce": (pb.ProducerFrame, pb.ProducerReply),
    "Consume": (pb.ConsumerFrame, pb.ConsumerReply),
}
_QUESTIONS: dict[str, tuple[Any, Any]] = {
    "Overseer/Info": (pb.InfoRequest, pb.Cluster),
    "Overseer/CreateTopic": (pb.CreateTopicRequest, pb.Topic),
    "Overseer/DropTopic": (pb.TopicRef, pb.Dropped),
    "Overseer/GetTopic": (pb.GetTopicRequest, pb.Topic),
    "Overseer/ListTopics": (pb.ListTopicsRequest, pb.Topics),
    "Carrier/Lookup": (pb.LookupRequest, pb.Found),
    "Carrier/ReadBodies": (pb.BodiesRequest, pb.BodiesFound),
    "Carrier/Count": (pb.CountRequest, pb.Counts),
    "Carrier/Forecast": (pb.ForecastRequest, pb.ForecastSteps),
    "Carrier/DeadLetters": (pb.DeadLettersRequest, pb.DeadLetterPage),
    "Carrier/Redrive": (pb.RedriveRequest, pb.Outcomes),
    "Carrier/Discard": (pb.DiscardRequest, pb.Outcomes),
}

# Requests

_NUMBERS = [0, 1, -1, 9, 10_001, 2**31, MAX_TIME_MS, MAX_TIME_MS + 1, 2**63 - 1, -(2**63)]
_TEXTS = ["", "a", "b", "fuzzed", "\0", "a\0b", "ü\u2028", "x" * 513, "\U0010ffff" * 128]


def _values(field: FieldDescriptor, topic_uid: int, depth: int) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_MESSAGE:
            assert field.message_type is not None
            return _messages(field.message_type, topic_uid, depth - 1)
        case FieldDescriptor.TYPE_STRING:
            return st.sampled_from(_TEXTS) | st.text(max_size=10)
        case FieldDescriptor.TYPE_BYTES:
            return st.binary(max_size=10) | st.just(b"\xff" * 500)
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_ENUM:
            return st.integers(-1, 9)
    numbers = st.sampled_from(_NUMBERS) | st.integers(-(2**63), 2**63 - 1)
    return st.just(topic_uid) | numbers if field.name in ("topic_uid", "uid") else numbers


@st.composite
def _messages(
    draw: st.DrawFn, descriptor: Descriptor, topic_uid: int, depth: int = 4
) -> dict[str, Any]:
    """Any message of a kind, as its fields: some of them, with odd values; of a oneof only one."""
    names = {each.name for each in descriptor.fields if not each.containing_oneof}
    names |= {draw(st.sampled_from(list(each.fields))).name for each in descriptor.oneofs}
    drawn: dict[str, Any] = {}
    for name in sorted(names):
        field = descriptor.fields_by_name[name]
        if depth == 0 and field.type == FieldDescriptor.TYPE_MESSAGE:
            continue
        if not draw(st.integers(0, 9)):
            continue
        values = _values(field, topic_uid, depth)
        drawn[name] = draw(st.lists(values, max_size=3) if field.is_repeated else values)
    return drawn


def _bytes(kind: Callable[..., Message], topic_uid: int) -> st.SearchStrategy[bytes]:
    """Messages of a kind, some of them mangled, and bytes that are nothing at all."""
    described: Descriptor = kind.DESCRIPTOR  # type: ignore[attr-defined]  # of every kind of message
    whole = _messages(described, topic_uid).map(lambda given: kind(**given).SerializeToString())
    return st.one_of(whole, whole, whole.flatmap(_mangled), st.binary(max_size=100))


def _mangled(data: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(data))
    return st.one_of(
        places.map(lambda place: data[:place]),
        places.map(lambda place: data[place:]),
        st.tuples(places, st.integers(1, 255)).map(lambda flip: _flipped(data, *flip)),
        st.tuples(places, st.binary(max_size=12)).map(
            lambda put: data[: put[0]] + put[1] + data[put[0] :]
        ),
    )


def _flipped(data: bytes, place: int, bits: int) -> bytes:
    return data[:place] + bytes(each ^ bits for each in data[place : place + 1]) + data[place + 1 :]


# Answers


def _check(failure: pb.Failure) -> None:
    """Check that the failure is a refusal or asks for a smaller request, not an internal error."""
    _, kind = CODES[failure.code]
    assert failure.kind == kind.value != FailureKind.UNKNOWN.value, failure
    assert failure.message


async def _say(address: str, stream: str, frames: Sequence[bytes]) -> list[Any]:
    """Send frames and a final ping on one stream; returns all replies."""
    frame_type, reply_type = _STREAMS[stream]
    ping = frame_type(ping=pb.Ping(sent_us=_LAST_US)).SerializeToString()
    async with aio.insecure_channel(address) as channel:
        call: Any = channel.stream_stream(f"/chronoline.v1.Carrier/{stream}")()
        for each in (*frames, ping):
            await call.write(each)
        await call.done_writing()
        replies = [reply_type.FromString(each) async for each in call]
    together = [each for reply in replies for each in (reply, *reply.more)]
    for reply in together:
        if reply.WhichOneof("what") == "failure":
            _check(reply.failure)
    assert _LAST_US in [each.pong.sent_us for each in together]
    return together


async def _ask(address: str, question: str, asked: bytes) -> Any:
    """The answer, or the failure that came instead."""
    _, answer = _QUESTIONS[question]
    async with aio.insecure_channel(address) as channel:
        ask: Any = channel.unary_unary(f"/chronoline.v1.{question}")
        try:
            return answer.FromString(await ask(asked))
        except aio.AioRpcError as error:
            told = dict(error.trailing_metadata() or ())
    failure = pb.Failure.FromString(told[FAILURE_KEY])
    _check(failure)
    return failure


@contextmanager
def _nothing_fails() -> Iterator[None]:
    """No part of the broker may say that it failed."""
    failed: list[str] = []
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: failed.append(record.getMessage())  # type: ignore[method-assign]  # of this one
    logging.getLogger().addHandler(listener)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(listener)
    assert failed == []


class _Fuzzing:
    """A node that is fuzzed, with a good client beside it."""

    def __init__(self, runner: asyncio.Runner, broker: Running, examples: int) -> None:
        self._runner = runner
        self.address = broker.address
        self.settings = settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        self.topic_uid = self.run(self._make_topic())

    async def _make_topic(self) -> int:
        """The topic on which the nonsense is tried."""
        async with AsyncClient(self.address) as client:
            quick = TopicSettings(window=0.1, max_attempts=2)
            return (await client.create_topic("fuzzed", quick, if_missing=True)).uid

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with _nothing_fails():
            return self._runner.run(work)

    def produce(self, frame: pb.ProducerFrame | bytes) -> list[Any]:
        """Send a producer's frame; returns the replies."""
        hello = pb.ProducerFrame(hello=pb.Hello(name="p"))
        return self.run(_say(self.address, "Produce", [_packed(hello), _packed(frame)]))

    def consume(self, frame: pb.ConsumerFrame | bytes) -> list[Any]:
        """Send a consumer's frame; returns the replies."""
        hello = pb.ConsumerFrame(hello=pb.Hello(name="c"))
        return self.run(_say(self.address, "Consume", [_packed(hello), _packed(frame)]))

    async def serves(self) -> None:
        """A good client gets what it sends."""
        async with AsyncClient(self.address) as client, asyncio.timeout(60):
            await client.create_topic("good", if_missing=True)
            leases = client.consume("good")
            sent = await client.send("good", b"body")
            lease = await anext(leases)
            assert (lease.id, lease.body) == (sent, b"body")
            await lease.ack()
            await leases.aclose()


@pytest.fixture(params=_EXAMPLES)
def fuzzing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[_Fuzzing]:
    engine: str = request.param
    place: Path | str = tmp_path
    if engine == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        place = server.create_database(f"fuzz_{tmp_path.name}")
    with asyncio.Runner() as runner:
        node = running(place)
        broker = runner.run(node.__aenter__())
        fuzzing = _Fuzzing(runner, broker, _EXAMPLES[engine])
        yield fuzzing
        fuzzing.run(fuzzing.serves())  # after all of it
        runner.run(node.__aexit__(None, None, None))


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # threads of the pool do
@pytest.mark.parametrize("stream", _STREAMS)
def test_fuzzed_stream_frames_are_answered(fuzzing: _Fuzzing, stream: str) -> None:
    frame_type, _ = _STREAMS[stream]
    hello = frame_type(hello=pb.Hello(name="fuzzer")).SerializeToString()
    frames_of = st.lists(_bytes(frame_type, fuzzing.topic_uid), max_size=5)

    @fuzzing.settings
    @given(greets=st.integers(0, 9), frames=frames_of)
    def fuzz(greets: int, frames: list[bytes]) -> None:
        fuzzing.run(_say(fuzzing.address, stream, [*[hello] * bool(greets), *frames]))

    fuzz()


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # threads of the pool do
def test_fuzzed_requests_are_answered(fuzzing: _Fuzzing) -> None:
    uid = fuzzing.topic_uid
    asked = st.one_of(
        [st.tuples(st.just(name), _bytes(kinds[0], uid)) for name, kinds in _QUESTIONS.items()]
    )

    @fuzzing.settings
    @given(questions=st.lists(asked, max_size=5))
    def fuzz(questions: list[tuple[str, bytes]]) -> None:
        for question, data in questions:
            fuzzing.run(_ask(fuzzing.address, question, data))

    fuzz()


# Regressions


def test_too_large_numbers_are_refused(fuzzing: _Fuzzing) -> None:
    uid, most = fuzzing.topic_uid, 2**63 - 1
    pings = [pb.Ping(client_us=each, round_trip_us=most) for each in (most, -most - 1)]
    for ping in pings:
        second = pb.ProducerFrame(seq=2, ping=ping)  # it tells the round trip of the first
        replies = fuzzing.produce(pb.ProducerFrame(seq=1, ping=ping, more=[second]))
        assert any(each.pong.drifting for each in replies)
    delays = [pb.LeaseMove(id="a", version=1, delay_ms=each) for each in (most, -most - 1)]
    for kind in (pb.MoveBatch.KIND_EXTEND, pb.MoveBatch.KIND_RELEASE, pb.MoveBatch.KIND_RETRY):
        move = pb.MoveBatch(topic_uid=uid, kind=kind, moves=delays)
        (moved,) = _only("moved", fuzzing.consume(pb.ConsumerFrame(seq=1, move=move)))
        assert [each.refusal for each in moved.outcomes] == ["invalid", "invalid"]
        assert list(moved.at_ms) == [0, 0]
    credits = [pb.Credit(topic_uid=uid, more=each) for each in (-1, most)]
    for credit in credits:
        (failure,) = _only("failure", fuzzing.consume(pb.ConsumerFrame(seq=1, credit=credit)))
        assert failure.code == "invalid_input"


def test_malformed_and_nested_frames_are_refused(fuzzing: _Fuzzing) -> None:
    ping = pb.ProducerFrame(ping=pb.Ping())
    for data in (b"\xff", b"\x12\x03\x0a\x01\xff"):  # of the wrong form, and a name that is no text
        (failure,) = _only("failure", fuzzing.produce(data))
        assert (failure.code, failure.kind) == ("invalid_input", "refused")
    nested = pb.ProducerFrame(seq=7, ping=pb.Ping(), more=[ping])
    replies = fuzzing.produce(pb.ProducerFrame(seq=6, ping=pb.Ping(), more=[nested, ping]))
    assert [each.seq for each in replies if each.WhichOneof("what") == "failure"] == [7]
    assert len(_only("pong", replies)) == 3  # the first, the one behind the bad one, and the last
    deep = b""
    for _ in range(150):  # each is the only one in the `more` of the next
        deep = b"\x7a" + bytes([len(deep) % 128 + 128, len(deep) // 128]) + deep
    (failure,) = _only("failure", fuzzing.produce(deep))
    assert failure.code == "invalid_input"


def test_malformed_requests_are_refused(fuzzing: _Fuzzing) -> None:
    uid = fuzzing.topic_uid
    for question, asked in {
        "Overseer/GetTopic": b"\x0a\x01\xff",
        "Carrier/Lookup": b"\xff",
        "Carrier/DeadLetters": pb.DeadLettersRequest(
            topic_uid=uid, after_id="a\0b", after_died_ms=1
        ).SerializeToString(),
    }.items():
        failure = fuzzing.run(_ask(fuzzing.address, question, asked))
        assert (failure.code, failure.kind) == ("invalid_input", "refused")


def _packed(frame: Message | bytes) -> bytes:
    return frame if isinstance(frame, bytes) else frame.SerializeToString()


def _only(what: str, replies: Sequence[Any]) -> list[Any]:
    return [getattr(each, what) for each in replies if each.WhichOneof("what") == what]
