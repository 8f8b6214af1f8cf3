"""Messages are put, moved and cancelled over HTTP."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from tests.broker.http.served import Served, serving
from tests.deadline import until


def test_message_is_created_with_its_due(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            before_ms = int(time.time() * 1000)
            soon = await served.put("soon", **{"in": "5s"})
            assert before_ms + 5_000 <= soon["due_ms"] <= time.time() * 1000 + 5_000
            assert set(soon) == {"id", "done", "version", "due", "due_ms"}
            later = await served.put("later", delay_ms=7_000)
            assert before_ms + 7_000 <= later["due_ms"]
            at = await served.put("at", due="2040-01-31T13:00:00.0001+01:00")
            assert (at["due"], at["due_ms"]) == ("2040-01-31T12:00:00.001Z", 2211624000001)
            same = await served.put("same", due_ms=2211624000001)
            assert same["due"] == at["due"]
            now = await served.put("now")
            assert now["due_ms"] <= time.time() * 1000

    asyncio.run(play())


BODIES: list[tuple[dict[str, Any], bytes | None]] = [
    ({}, b""),
    ({"body": "grüße"}, "grüße".encode()),
    ({"body": ""}, b""),
    ({"body": None}, None),
    ({"body_base64": "/wA="}, b"\xff\x00"),
    ({"json": {"a": [1, 2.5, None, "ü"]}}, b'{"a":[1,2.5,null,"\\u00fc"]}'),
    ({"json": 10**30}, str(10**30).encode()),
    ({"json": None}, b"null"),
    ({"json": None, "body_base64": None}, b"null"),
    ({"body": None, "json": None, "body_base64": None}, None),
    ({"body": "x", "json": None, "body_base64": None}, b"x"),
]


def test_a_body_is_text_base64_or_json(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for number, (given, body) in enumerate(BODIES):
                await served.put(f"m{number}", delay_ms=60_000, **given)
                read = await served.http.get(f"/v1/topics/t/messages/m{number}/body")
                assert read.status_code == (204 if body is None else 200)
                assert read.content == (body or b"")

    asyncio.run(play())


def test_key_headers_and_expires_are_kept(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            pairs = [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]
            expires = "2050-01-01T00:00:00.000Z"
            await served.put("m", **_content(headers=pairs, key="k", expires=expires))
            found = (await served.http.get("/v1/topics/t/messages/m")).json()
            assert found["headers"] == pairs
            assert (found["key"], found["expires"]) == ("k", expires)
            await served.put("o", **_content(headers={"x": "y", "z": None}, key_base64="/w=="))
            found = (await served.http.get("/v1/topics/t/messages/o")).json()
            assert found["headers"] == [["x", "y"], ["z", None]]
            assert (found["key_base64"], "key" in found) == ("/w==", False)

    def _content(**fields: Any) -> dict[str, Any]:
        return {"delay_ms": 60_000, **fields}

    asyncio.run(play())


def test_id_may_have_any_character(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic("a/b ü")
            topic = "/v1/topics/a%2Fb%20%C3%BC"
            ids = {"x%2Fy": "x/y", "%3F%23%25": "?#%", "%E2%82%AC": "€", "a%20b": "a b"}
            for message_id, meant in ids.items():
                put = await served.http.put(f"{topic}/messages/{message_id}", json={"in": "1m"})
                assert put.status_code == 201, put.text
                found = await served.http.get(f"{topic}/messages/{message_id}")
                assert found.json()["id"] == put.json()["id"] == meant
            broken = await served.http.put(f"{topic}/messages/%ff", json={})
            assert (broken.status_code, broken.json()["code"]) == (400, "invalid_input")

    asyncio.run(play())


def test_taken_id_conflicts_unless_replaced(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            first = await served.put("m", delay_ms=60_000, body="one")
            url = "/v1/topics/t/messages/m"
            again = await served.http.put(url, json={"delay_ms": 60_000, "body": "two"})
            assert (again.status_code, again.json()["code"]) == (409, "exists")
            replace = {"if_exists": "replace", "body": "three", "delay_ms": 60_000}
            replaced = await served.http.put(url, json=replace)
            assert replaced.status_code == 201
            assert replaced.json()["version"] > first["version"]
            assert (await served.http.get(f"{url}/body")).text == "three"
            others = await served.http.put(url, json={**replace, "producer_group": "others"})
            assert (others.status_code, others.json()["code"]) == (403, "not_owner")

    asyncio.run(play())


def test_batch_has_an_outcome_for_each_message(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(largest_body_bytes=10)
            await served.put("taken", delay_ms=60_000)
            messages = [
                {"id": "a", "in": "1m", "body": "one"},
                {"id": "taken", "in": "1m"},
                {"in": "1m"},
                {"id": "large", "body": "x" * 11},
            ]
            url = "/v1/topics/t/messages"
            answer = await served.http.post(url, json={"messages": messages})
            assert answer.status_code == 200
            a, taken, made, large = answer.json()["outcomes"]
            assert (a["id"], a["done"]) == ("a", True)
            assert (taken["done"], taken["refusal"]) == (False, "exists")
            assert made["done"]
            assert len(made["id"]) == 26
            assert (large["refusal"], large["reason"][:10]) == ("invalid", "body has 1")
            nothing = await served.http.post(url, json={"messages": []})
            assert nothing.json() == {"outcomes": []}

    asyncio.run(play())


def test_bad_batch_creates_nothing_and_names_the_fault(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            messages = [{"id": f"m{number}"} for number in range(150)]
            messages[120]["in"] = "soon"
            url = "/v1/topics/t/messages"
            answer = await served.http.post(url, json={"messages": messages})
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith("messages.120.in: the duration 'soon' is not")
            assert (await served.http.get("/v1/topics/t/counts")).json()["total"] == 0

    asyncio.run(play())


def test_producer_group_reschedules_and_cancels_its_message(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m", delay_ms=60_000, producer_group="g")
            url = "/v1/topics/t/messages/m"
            move = {"due": "2040-01-01T00:00:00Z", "producer_group": "g"}
            moved = await served.http.post(f"{url}/reschedule", json=move)
            assert moved.status_code == 200
            assert moved.json()["due"] == "2040-01-01T00:00:00.000Z"
            assert (await served.http.get(url)).json()["due"] == moved.json()["due"]
            nowhere = await served.http.post(f"{url}/reschedule", json={"producer_group": "g"})
            assert nowhere.status_code == 400
            assert "say when" in nowhere.json()["detail"]
            assert (await served.http.delete(url)).json()["code"] == "not_owner"
            assert (await served.http.delete(f"{url}?producer_group=g")).json()["done"]
            again = await served.http.delete(f"{url}?producer_group=g")
            assert again.json()["done"]
            late = await served.http.post(f"{url}/reschedule", json=move)
            assert (late.status_code, late.json()["code"]) == (410, "deleted")
            missing = await served.http.delete("/v1/topics/t/messages/nothing")
            assert (missing.status_code, missing.json()["code"]) == (404, "not_found")

    asyncio.run(play())


def test_message_is_rescheduled_past_expires_with_a_new_one(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m", due="2040-01-01T00:00:00Z", expires="2040-01-01T00:10:00Z")
            url = "/v1/topics/t/messages/m"
            move = {"due": "2040-01-01T00:20:00Z"}
            refused = await served.http.post(f"{url}/reschedule", json=move)
            assert (refused.status_code, refused.json()["code"]) == (409, "expired")
            with_both = {**move, "expires": "2040-01-01T00:30:00Z", "expires_ms": 1}
            assert (await served.http.post(f"{url}/reschedule", json=with_both)).status_code == 400
            with_expires = {**move, "expires": "2040-01-01T00:30:00Z"}
            moved = await served.http.post(f"{url}/reschedule", json=with_expires)
            assert moved.json()["due"] == "2040-01-01T00:20:00.000Z"
            assert (await served.http.get(url)).json()["expires"] == "2040-01-01T00:30:00.000Z"

    asyncio.run(play())


def test_producer_group_reschedules_a_batch(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for each in ("a", "b"):
                await served.put(each, delay_ms=60_000, producer_group="g")
            url, due = "/v1/topics/t/reschedule", "2040-01-01T00:00:00.000Z"
            batch = {"ids": ["a", "missing", "b"], "due": due, "producer_group": "g"}
            other = await served.http.post(url, json={"ids": ["a"], "due": due})
            assert other.json()["outcomes"][0]["refusal"] == "not_owner"
            done = await served.http.post(url, json=batch)
            assert done.status_code == 200
            told = [(each["id"], each.get("due")) for each in done.json()["outcomes"]]
            assert told == [("a", due), ("missing", None), ("b", due)]
            for each in ("a", "b"):
                found = await served.http.get(f"/v1/topics/t/messages/{each}")
                assert found.json()["due"] == due
            assert (await served.http.post(url, json={"ids": ["a"]})).status_code == 400

    asyncio.run(play())


def test_producer_group_cancels_a_batch(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for each in ("a", "b"):
                await served.put(each, delay_ms=60_000, producer_group="g")
            batch = {"ids": ["a", "missing", "b"], "producer_group": "g"}
            other = await served.http.post("/v1/topics/t/cancel", json={"ids": ["a"]})
            assert other.json()["outcomes"][0]["refusal"] == "not_owner"
            done = await served.http.post("/v1/topics/t/cancel", json=batch)
            assert done.status_code == 200
            told = [(each["id"], each["done"]) for each in done.json()["outcomes"]]
            assert told == [("a", True), ("missing", False), ("b", True)]
            again = await served.http.post("/v1/topics/t/cancel", json={**batch, "again": True})
            assert [each["done"] for each in again.json()["outcomes"]] == [True, False, True]
            none = await served.http.post("/v1/topics/t/cancel", json={"ids": []})
            assert none.json() == {"outcomes": []}

    asyncio.run(play())


def test_leased_message_is_not_rescheduled_or_cancelled(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.put("m")
            assert (await served.receive(consumer="c"))["messages"]
            refused = await served.http.delete("/v1/topics/t/messages/m")
            assert (refused.status_code, refused.json()["code"]) == (409, "leased")

    asyncio.run(play())


def test_recreated_topic_is_found_by_its_name(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            await served.create_topic()
            await served.put("m", delay_ms=60_000)
            await client.delete_topic("t")
            gone = await served.http.put("/v1/topics/t/messages/n", json={})
            assert (gone.status_code, gone.json()["code"]) == (404, "topic_not_found")
            await _create_when_purged(served)
            await served.put("m", delay_ms=60_000)

    async def _create_when_purged(served: Served) -> None:
        """Its name is taken until the node has purged what was on it."""

        async def is_created() -> bool:
            answer = await served.http.post("/v1/topics", json={"name": "t"})
            return answer.status_code != 409

        await until(is_created)

    asyncio.run(play())
