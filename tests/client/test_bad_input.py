"""Bad input raises an error with the reason, and nothing is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.worker import Retry, Worker
from chronoline.core.errors import InvalidInput
from tests.client.fake import FakeBroker, delivery

Ask = Callable[[AsyncClient], Awaitable[Any]]
_NAIVE = datetime(2030, 1, 1)
_LATER = datetime(2030, 1, 1, tzinfo=UTC)

_ANY: Any = object()
_BAD: dict[str, tuple[Ask, str]] = {
    "naive due": (lambda c: c.send("t", due=_NAIVE), "due 2030-01-01 00:00:00 has no time zone"),
    "naive expires": (lambda c: c.send("t", expires=_NAIVE), "expires .* has no time zone"),
    "due as text": (lambda c: c.send("t", due="tomorrow"), "due must be a datetime"),  # type: ignore[arg-type]  # what is tested
    "due as number": (lambda c: c.send("t", due=1.5), "due must be a datetime"),  # type: ignore[arg-type]  # what is tested
    "due before 1970": (
        lambda c: c.send("t", due=datetime(1960, 1, 1, tzinfo=UTC)),
        "not between 1970 and the year 9999",
    ),
    "negative delay": (lambda c: c.send("t", delay=-1), "delay must not be negative"),
    "negative timedelta": (
        lambda c: c.send("t", delay=timedelta(seconds=-1)),
        "delay must not be negative",
    ),
    "delay as text": (lambda c: c.send("t", delay="5s"), "delay must be seconds or a timedelta"),  # type: ignore[arg-type]  # what is tested
    "delay as bool": (lambda c: c.send("t", delay=True), "delay must be seconds or a timedelta"),
    "endless delay": (lambda c: c.send("t", delay=float("inf")), "delay of inf seconds"),
    "no delay at all": (lambda c: c.send("t", delay=float("nan")), "delay of nan seconds"),
    "due and delay": (lambda c: c.send("t", due=_LATER, delay=1), "give due or delay, not both"),
    "body and json": (lambda c: c.send("t", b"x", json={}), "give a body or json, not both"),
    "body as number": (lambda c: c.send("t", 5), "a body must be bytes, text or a pydantic"),  # type: ignore[arg-type]  # what is tested
    "body that is no text": (lambda c: c.send("t", "\ud800"), "the body is not valid UTF-8"),
    "no JSON": (lambda c: c.send("t", json={1, 2}), "cannot be written as JSON"),
    "not a number in JSON": (lambda c: c.send("t", json=float("nan")), "written as JSON"),
    "empty id": (lambda c: c.send("t", id=""), "id is empty"),
    "id as number": (lambda c: c.send("t", id=5), "id must be text, not int"),  # type: ignore[arg-type]  # what is tested
    "id that is too long": (lambda c: c.send("t", id="x" * 513), "at most 512 are allowed"),
    "key as text": (lambda c: c.send("t", key="k"), "key must be bytes, not str"),  # type: ignore[arg-type]  # what is tested
    "headers as text": (lambda c: c.send("t", headers="abc"), "headers must be"),  # type: ignore[arg-type]  # what is tested
    "headers as number": (lambda c: c.send("t", headers=5), "headers must be"),  # type: ignore[arg-type]  # what is tested
    "header value as number": (lambda c: c.send("t", headers={"a": 1}), "header 'a' must be bytes"),  # type: ignore[dict-item]  # what is tested
    "header name as number": (lambda c: c.send("t", headers={1: b"x"}), "header name must be text"),  # type: ignore[dict-item]  # what is tested
    "topic as number": (lambda c: c.send(5), "topic must be text, not int"),  # type: ignore[arg-type]  # what is tested
    "empty topic": (lambda c: c.send(""), "topic is empty"),
    "if_exists": (lambda c: c.send("t", if_exists="ignore"), 'must be "refuse" or "replace"'),
    "one for many": (lambda c: c.send_many("t", ToSend()), "messages must be a list of ToSend"),  # type: ignore[arg-type]  # what is tested
    "bytes for many": (lambda c: c.send_many("t", [b"x"]), "each message must be a ToSend"),  # type: ignore[list-item]  # what is tested
    "one of many": (
        lambda c: c.send_many("t", [ToSend(id="good"), ToSend(id="bad", delay=-1)]),
        "delay must not be negative",
    ),
    "move to no time": (lambda c: c.reschedule("t", "x", due=_NAIVE), "has no time zone"),
    "move without a time": (lambda c: c.reschedule("t", "x"), "give due or delay"),
    "move of many without a time": (lambda c: c.reschedule_many("t", ["x"]), "give due or delay"),
    "expires before 1970": (
        lambda c: c.send("t", expires=datetime(1960, 1, 1, tzinfo=UTC)),
        r"expires 1960-01-01 .* is not between 1970 and the year 9999$",
    ),
    "move of no id": (lambda c: c.reschedule("t", 5, delay=1), "id must be text"),  # type: ignore[arg-type]  # what is tested
    "cancel of no id": (lambda c: c.cancel("t", b"x"), "id must be text, not bytes"),  # type: ignore[arg-type]  # what is tested
    "redrive of text": (lambda c: c.redrive("t", "abc"), "ids must be a list"),
    "one id for many": (lambda c: c.cancel_many("t", "abc"), "ids must be a list of texts"),
    "no ids at all": (lambda c: c.discard("t", None), "ids must be a list of texts, not NoneType"),  # type: ignore[arg-type]  # what is tested
    "one topic for many": (lambda c: c.subscribe("abc"), "topics must be a list of texts"),
    "lookup of no id": (lambda c: c.lookup("t", ""), "id is empty"),
    "naive forecast": (lambda c: c.forecast("t", _NAIVE, _LATER, 60), "start .* has no time zone"),
    "no prefetch": (lambda c: anext(c.consume("t", prefetch=0)), "prefetch must be a number"),
    "lease of nothing": (lambda c: anext(c.consume("t", lease=0)), "at least 10 ms"),
    "consumer as number": (lambda c: anext(c.consume("t", consumer=_ANY)), "consumer must be text"),
}


@pytest.mark.parametrize("name", _BAD)
def test_bad_input_is_refused_before_sending(name: str) -> None:
    ask, words = _BAD[name]

    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            with pytest.raises(InvalidInput, match=words):
                await ask(client)
            assert broker.frames == []

    asyncio.run(play())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": "5"}, "timeout must be seconds"),
        ({"producer_group": ""}, "producer_group is empty"),
        ({"producer_group": 5}, "producer_group must be text"),
    ],
)
def test_invalid_client_says_why(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        AsyncClient("127.0.0.1:1", **given)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Worker(concurrency=0), "concurrency must be a number, at least 1"),
        (lambda: Worker(lease=0.001), "at least 10 ms"),
        (lambda: Worker(lease=-1), "lease must not be negative"),
        (lambda: Retry(factor=0.5), "factor >= 1"),
        (lambda: Worker().run(), "the worker has no handlers"),
    ],
)
def test_invalid_worker_says_why(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_bad_settlement_leaves_the_lease_unsettled() -> None:
    async def play() -> None:
        async with FakeBroker() as broker, broker.client() as client:
            leases = client.consume("t")
            waiting = asyncio.ensure_future(anext(leases))
            await broker.seen("subscribe")
            await broker.push(delivery("a"))
            lease = await waiting
            for work, words in (
                (lease.retry(delay=-1), "delay must not be negative"),
                (lease.release(due=_NAIVE), "has no time zone"),
                (lease.extend(0), "at least 10 ms"),
                (lease.bury("x" * 1_001), "at most 1000"),
                (lease.bury("a\0b"), "NUL"),
                (lease.bury(5), "reason must be text"),  # type: ignore[arg-type]  # what is tested
            ):
                with pytest.raises(InvalidInput, match=words):
                    await work
            assert {frame.WhichOneof("what") for frame in broker.frames} == {"subscribe"}
            await lease.ack()
            await leases.aclose()

    asyncio.run(play())
