"""The three doors to a timeline that the scene uses: gRPC by the SDK, HTTP, and the store as a library.

Each call returns an `Answer`: done, refused (nothing was changed) or unknown.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from urllib.parse import quote

import httpx

from chronoline import AsyncClient, ToSend
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    InvalidInput,
    Refused,
    StoreUnavailable,
    TooMuch,
    TopicExists,
    TopicNotFound,
    TopicNotReady,
)
from chronoline.core.message import NewMessage
from chronoline.core.outcome import BaseOutcome, Outcome
from chronoline.stores.factory import open_store
from tests.torture.history import DONE, REFUSED, UNKNOWN

IfExists = Literal["refuse", "replace"]

# Texts of the SDK after a repeated request: the refusal may be due to its own first attempt.
_PERHAPS_DONE = "perhaps by an earlier attempt"
_NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call."""

    outcome: str
    reason: str = ""
    version: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to send."""

    id: str
    due_ms: int
    body: bytes
    key: bytes | None = None
    expires_ms: int | None = None

    @property
    def content(self) -> str:
        return digest(self.body, self.key)


class ProducerDoor(Protocol):
    """The requests of a producer in one group."""

    async def create(
        self, topic: str, letters: Sequence[Letter], if_exists: IfExists
    ) -> list[Answer]: ...

    async def reschedule(self, topic: str, id: str, due_ms: int) -> Answer: ...

    async def cancel(self, topic: str, id: str) -> Answer: ...

    async def close(self) -> None: ...


def digest(body: bytes | None, key: bytes | None) -> str:
    """Returns a digest of a message's body."""
    parts = repr((body or b"", key or b"")).encode()
    return hashlib.sha256(parts).hexdigest()[:16]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


async def asked(work: Callable[[], Awaitable[Answer | None]]) -> Answer:
    """Makes a call; returns its outcome."""
    try:
        return await work() or Answer(DONE)
    except (ChronolineError, httpx.HTTPError) as error:
        return answer_of(error)


def answer_of(error: ChronolineError | httpx.HTTPError) -> Answer:
    """Returns the outcome of a call that raised an error."""
    match error:
        case InvalidInput():
            raise error  # the scene makes no invalid requests
        case Refused():
            return answer_to(error.outcomes[0])
        case TopicNotFound():
            return Answer(REFUSED, "topic_not_found")
        case TopicExists():
            return Answer(REFUSED, "topic_exists")
        case BrokerUnavailable() | StoreUnavailable() | TooMuch() | TopicNotReady():
            return Answer(REFUSED, "unavailable")
        case _ if isinstance(error, _NEVER_LEFT):
            return Answer(REFUSED, "unavailable")
        case _:
            return Answer(UNKNOWN, type(error).__name__)


def answer_to(outcome: BaseOutcome) -> Answer:
    """Returns an outcome as it is recorded."""
    if outcome.refusal is None:
        return Answer(DONE, version=outcome.version)
    outcome_word = UNKNOWN if _PERHAPS_DONE in outcome.detail else REFUSED
    return Answer(outcome_word, outcome.refusal.value)


class GrpcProducer:
    """A producer with the SDK."""

    def __init__(self, address: str, group: str, *, timeout_s: float) -> None:
        self._client = AsyncClient(address, producer_group=group, timeout=timeout_s)

    async def create(
        self, topic: str, letters: Sequence[Letter], if_exists: IfExists
    ) -> list[Answer]:
        sending = [
            ToSend(
                id=each.id,
                body=each.body,
                key=each.key,
                due=_moment(each.due_ms),
                expires=None if each.expires_ms is None else _moment(each.expires_ms),
            )
            for each in letters
        ]
        try:
            outcomes = await self._client.send_many(topic, sending, if_exists=if_exists)
        except ChronolineError as error:
            return [answer_of(error)] * len(letters)
        return [answer_to(each) for each in outcomes]

    async def reschedule(self, topic: str, id: str, due_ms: int) -> Answer:
        return await asked(lambda: self._client.reschedule(topic, id, due=_moment(due_ms)))

    async def cancel(self, topic: str, id: str) -> Answer:
        return await asked(lambda: self._client.cancel(topic, id))

    async def close(self) -> None:
        await self._client.close()


class StoreProducer:
    """A producer that uses the store directly, beside the brokers."""

    def __init__(self, url: str, group: str) -> None:
        self._store = open_store(url)
        self._group = group
        self._uids: dict[str, int] = {}

    async def create(
        self, topic: str, letters: Sequence[Letter], if_exists: IfExists
    ) -> list[Answer]:
        messages = [
            NewMessage(
                id=each.id,
                due=each.due_ms,
                body=each.body,
                key=each.key,
                expires=each.expires_ms,
                producer_group=self._group,
            )
            for each in letters
        ]
        return await self._on_topic(
            topic,
            len(letters),
            lambda uid: self._store.create(uid, messages, if_exists=if_exists, now_ms=now_ms()),
        )

    async def reschedule(self, topic: str, id: str, due_ms: int) -> Answer:
        (answer,) = await self._on_topic(
            topic,
            1,
            lambda uid: self._store.reschedule(
                uid, [(id, due_ms)], producer_group=self._group, now_ms=now_ms()
            ),
        )
        return answer

    async def cancel(self, topic: str, id: str) -> Answer:
        (answer,) = await self._on_topic(
            topic,
            1,
            lambda uid: self._store.cancel(uid, [id], producer_group=self._group, now_ms=now_ms()),
        )
        return answer

    async def _on_topic(
        self, topic: str, count: int, change: Callable[[int], list[Outcome]]
    ) -> list[Answer]:
        def work() -> list[Outcome]:
            found = self._store.find_topic(topic)
            if found is None:
                raise TopicNotFound
            return change(found.uid)

        try:
            outcomes = await asyncio.to_thread(work)
        except ChronolineError as error:
            return [answer_of(error)] * count
        return [answer_to(each) for each in outcomes]

    async def close(self) -> None:
        await asyncio.to_thread(self._store.close)


class HttpDoor:
    """Requests over HTTP, without repetition."""

    def __init__(self, address: str, *, timeout_s: float) -> None:
        self._http = httpx.AsyncClient(base_url=f"http://{address}/v1", timeout=timeout_s)

    async def ask(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """Returns the JSON of an answer; a problem has `kind` and `code`."""
        answer = await self._http.request(method, path, **given)
        found: dict[str, Any] = answer.json()
        return found

    async def close(self) -> None:
        await self._http.aclose()


class HttpProducer:
    """A producer over HTTP."""

    def __init__(self, address: str, group: str, *, timeout_s: float) -> None:
        self._door = HttpDoor(address, timeout_s=timeout_s)
        self._group = group

    async def create(
        self, topic: str, letters: Sequence[Letter], if_exists: IfExists
    ) -> list[Answer]:
        sent = {"if_exists": if_exists, "producer_group": self._group}
        if len(letters) == 1:
            path, content = _message_path(topic, letters[0].id), _shown(letters[0])
            return [await self._ask("PUT", path, json=content | sent)]
        messages = [_shown(each) | {"id": each.id} for each in letters]
        try:
            told = await self._door.ask(
                "POST", f"/topics/{quote(topic, '')}/messages", json={"messages": messages} | sent
            )
        except httpx.HTTPError as error:
            return [answer_of(error)] * len(letters)
        if "outcomes" not in told:
            return [told_answer(told)] * len(letters)
        return [told_answer(each) for each in told["outcomes"]]

    async def reschedule(self, topic: str, id: str, due_ms: int) -> Answer:
        sent = {"due_ms": due_ms, "producer_group": self._group}
        return await self._ask("POST", f"{_message_path(topic, id)}/reschedule", json=sent)

    async def cancel(self, topic: str, id: str) -> Answer:
        group = {"producer_group": self._group}
        return await self._ask("DELETE", _message_path(topic, id), params=group)

    async def _ask(self, method: str, path: str, **given: Any) -> Answer:
        async def work() -> Answer:
            return told_answer(await self._door.ask(method, path, **given))

        return await asked(work)

    async def close(self) -> None:
        await self._door.close()


def told_answer(told: dict[str, Any]) -> Answer:
    """Returns the outcome in the JSON of an answer or of a problem."""
    if "done" in told:
        if told["done"]:
            return Answer(DONE, version=told.get("version"), until_ms=told.get("until_ms"))
        return Answer(REFUSED, told["refusal"])
    if told["kind"] == "unknown":
        return Answer(UNKNOWN, told["code"])
    if told["code"] == "invalid_input":
        raise InvalidInput(told["detail"])
    return Answer(REFUSED, "unavailable" if told["kind"] == "try_again" else told["code"])


def _message_path(topic: str, id: str) -> str:
    return f"/topics/{quote(topic, '')}/messages/{quote(id, '')}"


def _shown(letter: Letter) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "due_ms": letter.due_ms,
        "body_base64": base64.b64encode(letter.body).decode(),
    }
    if letter.key is not None:
        shown["key_base64"] = base64.b64encode(letter.key).decode()
    if letter.expires_ms is not None:
        shown["expires_ms"] = letter.expires_ms
    return shown
