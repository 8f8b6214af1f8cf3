"""Every failure is a problem document with a fitting status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from chronoline.broker.http.problems import (
    MEDIA_TYPE,
    STATUS_OF_CODE,
    STATUS_OF_REFUSAL,
    problem_of,
)
from chronoline.core.errors import (
    ChronolineError,
    OutcomeUnknown,
    Refused,
    StoreBusy,
    StoreUnavailable,
)
from chronoline.core.outcome import Outcome, Refusal
from chronoline.stores.factory import open_store
from chronoline.wire.codes import CODES
from tests.broker.http.served import serving

FIELDS = {"type", "title", "status", "detail", "code", "kind", "retry_after_ms"}


def check(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """A problem in full."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = dict(answer.json())
    assert set(problem) == FIELDS
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"].endswith(code)
    assert problem["detail"]
    return problem


def test_every_code_and_every_refusal_has_a_status() -> None:
    assert set(STATUS_OF_CODE) == set(CODES)
    assert set(STATUS_OF_REFUSAL) == set(Refusal)
    for refusal, status in STATUS_OF_REFUSAL.items():
        told = problem_of(Refused([Outcome(id="m", refusal=refusal)]))
        problem = json.loads(bytes(told.body))
        assert (told.status_code, problem["code"], problem["kind"]) == (
            status,
            refusal.value,
            "refused",
        )


@pytest.mark.parametrize(
    ("error", "status", "kind", "after"),
    [
        (StoreBusy(), 503, "try_again", "1"),
        (OutcomeUnknown(), 504, "unknown", None),
        (ZeroDivisionError("secret"), 500, "unknown", None),
        (ChronolineError("odd"), 500, "unknown", None),
    ],
)
def test_failure_has_a_readable_detail(
    error: Exception, status: int, kind: str, after: str | None
) -> None:
    told = problem_of(error)
    problem = json.loads(bytes(told.body))
    assert (told.status_code, problem["kind"]) == (status, kind)
    assert told.headers.get("retry-after") == after
    assert problem["retry_after_ms"] == 200
    assert "secret" not in problem["detail"]


def test_retry_after_is_rounded_up_to_seconds() -> None:
    error = StoreUnavailable()
    error.retry_after_ms = 2_001
    assert problem_of(error).headers["retry-after"] == "3"


def test_unknown_paths_and_methods_are_problems(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            for path in (
                "/",
                "/v1",
                "/v1/nothing",
                "/v1/topics/",
                "/docs",
                "/v1/topics/t/messages/",
            ):
                check(await served.http.get(path), 404, "no_such_path")
            wrong = await served.http.patch("/v1/topics/t/messages/m")
            check(wrong, 405, "no_such_method")
            assert wrong.headers["allow"] == "DELETE, GET, PUT"

    asyncio.run(play())


DEEP = b"[" * 100_000
BROKEN: list[tuple[bytes, str]] = [
    (b"", "missing"),
    (b"{", "EOF"),
    (b"[]", "the body must be an object"),
    (b"null", "an object"),
    (b'"text"', "an object"),
    (b'{"body": NaN}', "expected value"),
    (b'{"json": Infinity}', "expected value"),
    (b'{"json": 1e999}', "a number that JSON cannot hold"),
    (b'{"json": ' + DEEP, "recursion"),
    (b'{"due_ms": ' + b"9" * 5_000 + b"}", "out of range"),
    (b'{"due_ms": ' + b"9" * 50 + b"}", "due_ms"),
    (b'{"due_ms": -1}', "due_ms"),
    (b'{"due_ms": 1.5}', "due_ms"),
    (b'{"due_ms": "5"}', "due_ms"),
    (b'{"due_ms": true}', "due_ms"),
    (b'{"delay_ms": 253402300799999}', "year 9999"),
    (b'{"due": "2040-01-01T00:00:00"}', "its zone"),
    (b'{"due": "2040-02-30T00:00:00Z"}', "not a time"),
    (b'{"due": "1950-01-01T00:00:00Z"}', "1970"),
    (b'{"due": 5}', "due: must be text, not a number"),
    (b'{"in": "5 fortnights"}', "in: the duration"),
    (b'{"in": "5s", "delay_ms": 5}', "give in or delay_ms, not both"),
    (b'{"body": "x", "json": 1}', "give body or json, not both"),
    (b'{"body": 5}', "body"),
    (b'{"body_base64": "\xc3\xbc"}', "is not base64"),
    (b'{"body_base64": "abc"}', "is not base64"),
    (b'{"headers": "x"}', "list of pairs"),
    (b'{"headers": [["a"]]}', "pair"),
    (b'{"headers": [[1, "a"]]}', "pair"),
    (b'{"headers": {"a": 1}}', "value of a header"),
    (b'{"headers": {"a": {"base64": 1}}}', "value of a header"),
    (b'{"if_exists": "maybe"}', "if_exists"),
    (b'{"dealy_ms": 5}', "dealy_ms is unknown"),
    (b'{"body": "\\ud800"}', "hex escape"),
    (b'{"body": "\xff"}', "unicode"),
    (b'{"due_ms": 5, "expires_ms": 4}', "expires"),
]


def test_bad_bodies_are_refused_with_the_reason(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            url = "/v1/topics/t/messages/m"
            # Each on a connection of its own: one with many invalid requests is throttled.
            kind = {"content-type": "application/json", "connection": "close"}
            for body, words in BROKEN:
                answer = await served.http.put(url, content=body, headers=kind)
                code = answer.json()["code"]
                assert code in ("invalid_input", "invalid"), body[:80]
                problem = check(answer, 400, code)
                assert words in problem["detail"], (body[:80], problem["detail"])
                assert problem["kind"] == "refused"
            assert (await served.http.get("/v1/topics/t/counts")).json()["total"] == 0

    asyncio.run(play())


def test_json_content_type_is_required(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            url = "/v1/topics/t/messages/m"
            for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
                answer = await served.http.put(url, content=b"{}", headers={"content-type": kind})
                check(answer, 415, "not_json")
            for kind in ("Application/JSON; charset=utf-8", "application/x+json"):
                answer = await served.http.put(
                    url,
                    content=b'{"if_exists": "replace", "in": "1m"}',
                    headers={"content-type": kind},
                )
                assert answer.status_code == 201

    asyncio.run(play())


class Failing:
    """A store whose creates fail with a chosen error."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        if self.error is not None and name in ("create", "find_topic"):
            raise self.error
        return getattr(self._store, name)


def test_store_failure_sets_retry_after(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store(f"sqlite:///{tmp_path / 'timeline.db'}") as store:
            failing: Any = Failing(store)
            async with serving(failing) as served:
                await served.create_topic()
                await served.put("first", delay_ms=60_000)
                url = "/v1/topics/t/messages/m"
                failing.error = StoreBusy("locked")
                busy = await served.http.put(url, json={})
                problem = check(busy, 503, "store_busy")
                assert (problem["kind"], problem["detail"]) == ("try_again", "locked")
                assert busy.headers["retry-after"] == "1"
                failing.error = OutcomeUnknown("no answer")
                assert check(await served.http.put(url, json={}), 504, "outcome_unknown")
                failing.error = ZeroDivisionError("secret")
                check(await served.http.put(url, json={}), 500, "outcome_unknown")
                failing.error = None
                await served.put("m", delay_ms=60_000)

    asyncio.run(play())
