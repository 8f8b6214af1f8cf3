"""Messages are leased and settled over HTTP."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.broker.http.served import Served, serving
from tests.delivery.stores import call_name


async def lease(served: Served, **fields: Any) -> dict[str, Any]:
    """Receive the only message."""
    (message,) = (await served.receive(consumer="c", **fields))["messages"]
    return dict(message)


def named(message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The fields that name a lease in a settlement."""
    lease = {"id": message["id"], "version": message["version"], **fields}
    return {"consumer": "c", "leases": [lease]}


def test_delivery_has_all_fields_of_a_message(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            content: dict[str, Any] = {"body": "hello", "key_base64": "/w==", "headers": {"a": "b"}}
            put = await served.put("m", expires="2050-01-01T00:00:00Z", **content)
            before_ms = time.time_ns() // 1_000_000
            got = await lease(served, lease="60s")
            after_ms = time.time_ns() // 1_000_000
            assert before_ms <= got.pop("until_ms") - 60_000 <= after_ms
            assert got.pop("late_ms") >= 0
            assert got.pop("version") > put["version"]
            got.pop("until")
            assert got == {
                "id": "m",
                "due": put["due"],
                "due_ms": put["due_ms"],
                "expires": "2050-01-01T00:00:00.000Z",
                "expires_ms": 2524608000000,
                "attempts": 0,
                "redelivered": False,
                "producer_group": "default",
                "key_base64": "/w==",
                "headers": [["a", "b"]],
                "body": "hello",
            }

    asyncio.run(play())


def test_binary_body_is_base64_and_missing_body_is_absent(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("bytes", body_base64="/w==")
            await served.put("none", body=None)
            got = (await served.receive(consumer="c", count=2))["messages"]
            if len(got) == 1:
                got += (await served.receive(consumer="c"))["messages"]
            by_id = {each["id"]: each for each in got}
            assert by_id["bytes"]["body_base64"] == "/w=="
            assert "body" not in by_id["bytes"]
            assert not {"body", "body_base64"} & set(by_id["none"])

    asyncio.run(play())


def test_an_acked_message_is_gone(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            got = await lease(served)
            (acked,) = await served.settle("ack", **named(got))
            assert (acked["id"], acked["done"]) == ("m", True)
            (again,) = await served.settle("ack", **named(got))
            assert again["done"]
            assert (await served.http.get("/v1/topics/t/messages/m")).status_code == 404

    asyncio.run(play())


class _LosingAnswers:
    """A store that fails one change without an answer, before or after it is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost: str | None = None
        self.done = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self.lost is None or name != "apply":
            return found

        def lose(*given: Any, **named: Any) -> Any:
            if call_name(name, given) != self.lost:
                return found(*given, **named)
            self.lost = None
            if self.done:
                found(*given, **named)
            raise OutcomeUnknown("no answer")

        return lose


_TIMES: dict[str, dict[str, Any]] = {
    "ack": {},
    "extend": {"in": "1m"},
    "release": {"in": "1m"},
    "retry": {"in": "1m"},
    "bury": {"reason": "no use"},
}


@pytest.mark.parametrize("was_done", [True, False])
@pytest.mark.parametrize("what", _TIMES)
def test_unknown_outcome_is_settled_by_repetition(what: str, was_done: bool) -> None:
    async def play() -> None:
        with open_store("memory:") as store:
            losing: Any = _LosingAnswers(store)
            async with serving(losing) as served:
                await served.create_topic()
                await served.put("m")
                got = await lease(served)
                losing.lost, losing.done = what, was_done
                body = named(got, **_TIMES[what])
                lost = await served.http.post(f"/v1/topics/t/{what}", json=body)
                assert (lost.status_code, lost.json()["kind"]) == (504, "unknown")
                (outcome,) = await served.settle(what, **body, again=True)
                assert outcome["done"], outcome
                assert outcome["version"] == got["version"] + 1

    asyncio.run(play())


@pytest.mark.parametrize("what", ["release", "retry", "bury"])
def test_undecidable_outcome_is_unknown(what: str) -> None:
    async def play() -> None:
        with open_store("memory:") as store:
            async with serving(store) as served:
                await served.create_topic()
                await served.put("m")
                body = named(await lease(served), **_TIMES[what])
                assert (await served.settle(what, **body))[0]["done"]
                # The broker has forgotten the lease, and with it the session that the row names.
                (outcome,) = await served.settle(what, **body, again=True)
                assert (outcome["done"], outcome["unknown"]) == (False, True)
                assert outcome["reason"]
                assert "refusal" not in outcome
                (refused,) = await served.settle(what, **body)
                assert "unknown" not in refused
                assert refused["refusal"]

    asyncio.run(play())


def test_foreign_or_old_lease_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            got = await lease(served)
            others = {**named(got), "consumer": "d"}
            (refused,) = await served.settle("ack", **others)
            assert (refused["done"], refused["refusal"]) == (False, "not_holder")
            assert refused["reason"]
            (extended,) = await served.settle("extend", **named(got, **{"in": "1m"}))
            assert extended["version"] > got["version"]
            assert extended["until_ms"] > got["until_ms"]
            for operation, more in {"ack": {}, "extend": {"in": "2m"}}.items():
                (stale,) = await served.settle(operation, **named(got, **more))
                assert stale["refusal"] == "stale"
            # The answer to the first extension was lost.
            (same,) = await served.settle("extend", **named(got, **{"in": "1m"}), again=True)
            assert same == extended
            (acked,) = await served.settle("ack", **named({**got, **extended}))
            assert acked["done"]

    asyncio.run(play())


def test_lease_is_extended_to_a_moment_or_by_default(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(default_lease_ms=120_000)
            await served.put("m")
            got = await lease(served, lease="60s")
            until = "2050-01-01T00:00:00.000Z"
            (far,) = await served.settle("extend", **named(got, until=until))
            assert far["until"] == until
            before_ms = time.time_ns() // 1_000_000
            (usual,) = await served.settle("extend", **named({**got, **far}))
            assert before_ms <= usual["until_ms"] - 120_000 <= time.time_ns() // 1_000_000
            (soon,) = await served.settle("extend", **named({**got, **usual}, delay_ms=1))
            assert soon["refusal"] == "too_soon"

    asyncio.run(play())


def test_release_and_retry_return_a_message(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            got = await lease(served)
            (released,) = await served.settle("release", **named(got, delay_ms=50))
            second = await lease(served)
            assert (second["due_ms"], second["attempts"]) == (released["due_ms"], 0)
            (retried,) = await served.settle("retry", **named(second, **{"in": "50ms"}))
            third = await lease(served)
            assert (third["due_ms"], third["attempts"]) == (retried["due_ms"], 1)
            assert not third["redelivered"]
            nowhen = await served.http.post("/v1/topics/t/retry", json=named(third))
            assert nowhen.status_code == 400
            assert "leases.0: say when it is due again" in nowhen.json()["detail"]

    asyncio.run(play())


def test_buried_message_is_a_dead_letter_until_redriven(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m", body="x")
            (buried,) = await served.settle("bury", **named(await lease(served), reason="no use"))
            assert buried["done"]
            letters = (await served.http.get("/v1/topics/t/dead")).json()
            (letter,) = letters["letters"]
            assert (letter["id"], letter["reason"], letter["attempts"]) == ("m", "no use", 1)
            assert "next" not in letters
            url = "/v1/topics/t/dead"
            redriven = await served.http.post(f"{url}/redrive", json={"ids": ["m", "n"]})
            done, refused = redriven.json()["outcomes"]
            assert (done["done"], refused["refusal"]) == (True, "not_found")
            assert (await lease(served))["attempts"] == 0

    asyncio.run(play())


def test_dead_letters_are_paged_and_discarded(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for number in range(5):
                await served.put(f"m{number}")
                await served.settle("bury", **named(await lease(served)))
            url = "/v1/topics/t/dead"
            found: list[str] = []
            page = (await served.http.get(url, params={"limit": 2})).json()
            while True:
                found += [each["id"] for each in page["letters"]]
                if "next" not in page:
                    break
                more = {"limit": 2, "after": page["next"]}
                page = (await served.http.get(url, params=more)).json()
            assert found == [f"m{number}" for number in range(5)]
            gone = await served.http.post(f"{url}/discard", json={"ids": found})
            assert all(each["done"] for each in gone.json()["outcomes"])
            assert (await served.http.get(url)).json() == {"letters": []}

    asyncio.run(play())


def _word(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode()


NOWHERE = ["", "nothing", *map(_word, ("m", "x m", "-1 m", f"{10**30} m", "5 ", "5 a\0b"))]


def test_dead_letter_page_begins_where_the_last_ended(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for after in NOWHERE:
                broken = await served.http.get("/v1/topics/t/dead", params={"after": after})
                assert (broken.status_code, broken.json()["code"]) == (400, "invalid_input"), after
                assert "not the `next` of a page" in broken.json()["detail"]

    asyncio.run(play())


def test_lease_holder_may_read_the_body(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m", body="hello", producer_group="g")
            url = "/v1/topics/t/messages/m/body"
            for query, status in (
                ("?producer_group=g", 200),
                ("", 403),
                ("?consumer=c", 403),
                ("?consumer=c&producer_group=g", 400),
            ):
                assert (await served.http.get(url + query)).status_code == status
            await lease(served)
            read = await served.http.get(f"{url}?consumer=c")
            assert (read.status_code, read.text) == (200, "hello")
            assert read.headers["content-type"] == "application/octet-stream"

    asyncio.run(play())
