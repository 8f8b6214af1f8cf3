"""Each message is posted to the target of its topic at its due; 2xx acks, everything else retries."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from chronoline.broker.targets import target
from chronoline.broker.targets.requests import request_headers
from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient
from chronoline.core.errors import InvalidInput
from chronoline.core.message import LeasedMessage
from chronoline.core.topic import Topic
from tests.broker.nodes import Running, running
from tests.broker.targets.receivers import Answering, answers, calling, fine, receiving
from tests.callbacks.test_caller import serving
from tests.deadline import run_scene, until

_SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()


async def is_done(client: AsyncClient, topic: str) -> bool:
    return (await client.count(topic)).total == 0


def called(node: Running, outcome: str) -> float:
    """The number of calls of the topic t with this outcome."""
    families = {family.name: family for family in node.node.metrics.collect()}
    return sum(
        each.value
        for each in families["topic_target_calls_count"].samples
        if each.labels["topic"] == "t" and each.labels["outcome"] == outcome
    )


def test_due_message_is_posted_and_2xx_acks(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(answers(204)) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url("/in?x=%20")))
            due = datetime.now(UTC) + timedelta(seconds=0.5)
            await client.send("t", b"later", id="b", due=due)
            await client.send("t", b"hello", id="a")
            await until(lambda: is_done(client, "t"))
            first, second = receiver.calls
            assert (first.body, second.body) == (b"hello", b"later")
            assert (first.path, second.id, second.attempts) == ("/in", "b", 0)
            due_ms = int(second.headers["Chronoline-Due-Ms"])
            assert datetime.fromisoformat(second.headers["Chronoline-Due"]) >= due
            assert second.at_ms >= due_ms >= due.timestamp() * 1000
            assert called(node, "succeeded") == 2
            text = {family.name: family for family in node.node.metrics.collect()}
            lateness = text["chronoline_lateness_seconds"].samples
            assert max(each.value for each in lateness if each.labels["topic"] == "t") == 2

    run_scene(scene)


def test_calls_are_signed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(answers(500, 200)) as receiver,
            calling(secret=_SECRET) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            topic = await client.create_topic("t", TopicSettings(target=receiver.url()))
            await client.send("t", b"hello", id="a.b")
            await until(lambda: is_done(client, "t"))
        for each in receiver.calls:
            signed = f"{each.headers['webhook-id']}.{each.headers['webhook-timestamp']}.hello"
            digest = hmac.new(b"k" * 24, signed.encode(), hashlib.sha256).digest()
            assert each.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        ids = [each.headers["webhook-id"] for each in receiver.calls]
        assert ids == [f"{topic.uid:x}-a%2Eb"] * 2

    run_scene(scene)


@pytest.mark.parametrize(
    ("first", "outcome"),
    [(500, "answered_badly"), (404, "answered_badly"), (302, "redirected"), (307, "redirected")],
)
def test_other_statuses_are_retried(tmp_path: Path, first: int, outcome: str) -> None:
    async def scene() -> None:
        async with (
            receiving(answers(first, first, 200)) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url("/here")))
            await client.send("t", b"x")
            await until(lambda: is_done(client, "t"))
            assert [each.attempts for each in receiver.calls] == [0, 1, 2]
            assert {each.path for each in receiver.calls} == {"/here"}
            assert (called(node, outcome), called(node, "succeeded")) == (2, 1)
            assert await client.dead_letters("t") == []

    run_scene(scene)


def test_closed_port_is_retried_until_it_opens(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiving() as closed:
            pass
        async with (
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=closed.url(), max_attempts=1_000_000)
            await client.create_topic("t", settings)
            await client.send("t", b"x")
            await until(lambda: called(node, "unreachable") > 1)
            async with receiving(port=closed.port) as receiver:
                await until(lambda: is_done(client, "t"))
            (call,) = receiver.calls
            assert call.attempts >= 2

    run_scene(scene)


async def _silence(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.Event().wait()  # forever: the caller times out
    raise AssertionError("unreachable")


async def _endless_body(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 1_000)
        await asyncio.sleep(0.01)  # the server never ends its answer


def test_missing_answer_is_retried(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(_silence) as receiver,
            calling(timeout_ms=50) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url()))
            await client.send("t", b"x")
            await until(lambda: len(receiver.calls) > 2)
            attempts = [each.attempts for each in receiver.calls]
            assert attempts == sorted(set(attempts))  # one may time out before it arrives
            assert called(node, "timed_out") >= 2

    run_scene(scene)


@asynccontextmanager
async def _endless_head() -> AsyncIterator[int]:
    """The port of a server whose answers begin well, and never get to their end."""
    dripping: set[asyncio.Task[None]] = set()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while not writer.is_closing():
                writer.write(b"X-More: of it\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)  # the server never ends its answer
        finally:
            writer.close()
            await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dripping.add(asyncio.create_task(drip(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in dripping:
            task.cancel()
        await asyncio.gather(*dripping, return_exceptions=True)


def test_endless_response_head_is_retried(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            _endless_head() as port,
            calling(timeout_ms=50) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=f"http://127.0.0.1:{port}/"))
            await client.send("t", b"x")
            failed = ("timed_out", "unreachable")  # or its head was too long first
            await until(lambda: sum(called(node, each) for each in failed) > 1)
            assert called(node, "succeeded") == 0

    run_scene(scene)


def test_endless_response_body_counts_by_its_status(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(_endless_body) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url()))
            await client.send("t", b"x")
            await until(lambda: is_done(client, "t"))
            assert len(receiver.calls) == 1

    run_scene(scene)


async def _loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("answer", "allow", "words"),
    [
        (answers(503), ("127.0.0.0/8",), "3 attempts failed, the last: answered 503"),
        (answers(302), ("127.0.0.0/8",), "redirects are not followed"),
        (fine, (), "inside.test is 127.0.0.1, which may not be called: allow its network"),
    ],
)
def test_exhausted_attempts_bury_with_the_reason(
    tmp_path: Path, answer: Answering, allow: tuple[str, ...], words: str
) -> None:
    async def scene() -> None:
        async with (
            receiving(answer) as receiver,
            calling(allow=allow, lookup=_loopback) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            url = f"http://inside.test:{receiver.port}/"
            settings = TopicSettings(target=url, max_attempts=3)
            await client.create_topic("t", settings)
            await client.send("t", b"x", id="poison")
            await until(lambda: is_done(client, "t"))
            (letter,) = await client.dead_letters("t")
            assert (letter.message.id, letter.message.attempts) == ("poison", 3)
            assert words in letter.reason
            assert [each.attempts for each in receiver.calls] == ([0, 1, 2] if allow else [])

    run_scene(scene)


def _raises(message_id: str) -> Callable[..., dict[str, str]]:
    """The headers of a request, whose making fails for one message."""

    def headers(topic: Topic, leased: LeasedMessage) -> dict[str, str]:
        if leased.message.id == message_id:
            raise LookupError("of this message alone")
        return request_headers(topic, leased)

    return headers


def test_message_whose_call_raises_dies_by_its_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "request_headers", _raises("poison"))

    async def scene() -> None:
        async with (
            receiving() as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=receiver.url(), max_attempts=2)
            await client.create_topic("t", settings)
            await client.send("t", b"x", id="poison")
            await client.send("t", b"x", id="good")
            await until(lambda: is_done(client, "t"))
            (letter,) = await client.dead_letters("t")
            assert (letter.message.id, letter.message.attempts) == ("poison", 2)
            assert "LookupError: of this message alone" in letter.reason
            assert receiver.ids() == ["good"]
            assert called(node, "failed") == 2

    run_scene(scene)


def test_target_whose_name_cannot_be_decoded_costs_attempts(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target="http://xn--a/", max_attempts=2))
            await client.send("t", b"x", id="poison")
            await until(lambda: is_done(client, "t"))
            (letter,) = await client.dead_letters("t")
            assert (letter.message.attempts, called(node, "unknown_host")) == (2, 2)
            assert "xn--a has no address" in letter.reason

    run_scene(scene)


def test_target_at_a_forbidden_address_is_refused_when_it_is_set(tmp_path: Path) -> None:
    inside = TopicSettings(target="http://10.0.0.1/")
    refusal = "target: 10.0.0.1 may not be called: allow its network"

    async def scene() -> None:
        async with (
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            with pytest.raises(InvalidInput, match=refusal):
                await client.create_topic("t", inside)
            assert await client.topics() == []
            await client.create_topic("t", TopicSettings(target="http://inside.test/"))
            with pytest.raises(InvalidInput, match=refusal):
                await client.change_topic("t", target="http://10.0.0.1/")
        async with (
            calling(allow=("10.0.0.0/8",)) as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.change_topic("t", target="http://10.0.0.1/")
        async with (
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            changed = await client.change_topic("t", max_attempts=3)
            assert changed.settings.max_attempts == 3

    run_scene(scene)


def test_redriven_dead_letter_is_called_again(tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            receiving(answers(500, 200)) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            settings = TopicSettings(target=receiver.url(), max_attempts=1)
            await client.create_topic("t", settings)
            await client.send("t", b"x", id="a")
            await until(lambda: is_done(client, "t"))
            (await client.redrive("t", ["a"])).raise_for_refused()
            await until(lambda: is_done(client, "t"))
            assert receiver.ids() == ["a", "a"]
            assert await client.dead_letters("t") == []

    run_scene(scene)


def test_next_attempt_uses_the_next_address(tmp_path: Path) -> None:
    async def broken(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=500)

    async def scene() -> None:
        async with receiving() as receiver, serving(broken, "127.0.0.2", receiver.port):

            async def look_up(_: str, __: int) -> list[str]:
                return ["127.0.0.2", "127.0.0.1"]

            async with calling() as calls:
                calls.caller._lookup = look_up  # no name resolves to two loopback addresses
                async with running(tmp_path, calls=calls) as node, node.client() as client:
                    url = f"http://receivers.example:{receiver.port}/"
                    await client.create_topic("t", TopicSettings(target=url))
                    await client.send("t", b"x")
                    await until(lambda: is_done(client, "t"))
        (call,) = receiver.calls
        assert call.attempts == 1
        assert call.headers["Host"] == f"receivers.example:{receiver.port}"

    run_scene(scene)
