"""Schedules over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from tests.broker.http.served import Served, serving

FAR = "2999-01-01T00:00:00Z"


def play(tmp_path: Path, work: Callable[[Served], Awaitable[None]]) -> None:
    async def run() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await work(served)

    asyncio.run(run())


async def post(served: Served, path: str, **fields: Any) -> tuple[int, Any]:
    answer = await served.http.post(f"/v1/schedules{path}", json=fields)
    return answer.status_code, answer.json()


def test_a_schedule_lives_through_all_its_routes(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        given = {"name": "a b", "topic": "t", "every": "15m", "start": FAR, "json": {"x": 1}}
        status, made = await post(served, "", **given, headers={"kind": "mail"}, catch_up="all")
        assert status == 200
        assert made["times"][0] == {
            "id": "a b@2999-01-01T00:00:00.000Z",
            "due": "2999-01-01T00:00:00.000Z",
            "due_ms": 32_472_144_000_000,
        }
        assert {**made, "times": []} == {
            "name": "a b",
            "topic": "t",
            "zone": "UTC",
            "every_ms": 900_000,
            "start": "2999-01-01T00:00:00.000Z",
            "start_ms": 32_472_144_000_000,
            "catch_up": "all",
            "producer_group": "default",
            "paused": False,
            "next": "2999-01-01T00:00:00.000Z",
            "next_ms": 32_472_144_000_000,
            "times": [],
            "headers": [["kind", "mail"]],
            "body": '{"x":1}',
        }
        one = "/v1/schedules/a%20b"
        assert (await served.http.get(one)).json() == made
        found = (await served.http.get(f"{one}/next?count=7")).json()["times"]
        assert [each["due_ms"] - made["next_ms"] for each in found[:2]] == [0, 900_000]
        assert len(found) == 7
        assert (await served.http.post(f"{one}/pause")).json()["paused"] is True
        assert (await served.http.post(f"{one}/resume")).json()["paused"] is False
        assert (await served.http.delete(one)).json() == {"deleted": True}
        assert (await served.http.delete(one)).json() == {"deleted": False}
        gone = await served.http.get(one)
        assert (gone.status_code, gone.json()["code"]) == (404, "schedule_not_found")

    play(tmp_path, work)


def test_times_of_a_rare_rule_end_after_a_century(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        await post(served, "", name="leap", topic="t", cron="0 0 29 2 *", start=FAR)
        times = (await served.http.get("/v1/schedules/leap/next?count=1000")).json()["times"]
        assert [each["due"][:10] for each in times[:2]] == ["3004-02-29", "3008-02-29"]
        assert times[-1]["due"][:4] == "3104"

    play(tmp_path, work)


def test_schedules_are_listed_in_pages_without_bodies(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        await served.create_topic("other")
        for name, topic in (("a", "t"), ("b", "other"), ("c", "t")):
            await post(served, "", name=name, topic=topic, every="1h", start=FAR, body="x")
        first = (await served.http.get("/v1/schedules?limit=2")).json()
        assert [each["name"] for each in first["schedules"]] == ["a", "b"]
        assert "body" not in first["schedules"][0]
        rest = (await served.http.get(f"/v1/schedules?limit=2&after={first['next']}")).json()
        assert [each["name"] for each in rest["schedules"]] == ["c"]
        assert "next" not in rest
        of_topic = (await served.http.get("/v1/schedules?topic=t")).json()
        assert [each["name"] for each in of_topic["schedules"]] == ["a", "c"]
        assert (await served.http.get("/v1/schedules?topic=missing")).status_code == 404

    play(tmp_path, work)


def test_an_existing_schedule_is_left_refused_or_changed(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        given = {"name": "s", "topic": "t", "cron": "0 9 * * *", "start": FAR}
        dry = await post(served, "", **given, dry_run=True)
        assert dry[1]["times"][0]["due"] == "2999-01-01T09:00:00.000Z"
        assert (await served.http.get("/v1/schedules/s")).status_code == 404
        assert await post(served, "", **given) == await post(served, "", **given)
        status, problem = await post(served, "", **{**given, "cron": "0 8 * * *"})
        assert (status, problem["code"]) == (409, "schedule_exists")
        assert await post(served, "", **{**given, "cron": "0 8 * * *"}, dry_run=True) == (
            status,
            problem,
        )
        changed = await post(served, "", **given, zone="Asia/Tokyo", if_exists="replace")
        assert (changed[0], changed[1]["next"]) == (200, "2999-01-01T00:00:00.000Z")

    play(tmp_path, work)


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "give a cron expression or an interval"),
    ({"cron": "* * * * *", "every": "1m"}, "give cron or every, not both"),
    ({"cron": "0 25 * * *"}, "the hour field '25'"),
    ({"cron": "0 0 30 2 *"}, "never fires"),
    ({"cron": "* * * * *", "zone": "Nowhere"}, "no time zone 'Nowhere'"),
    ({"every": "1m", "zone": "Asia/Tokyo"}, "an interval has no time zone"),
    ({"every": "10ms"}, "at least 1 second"),
    ({"every_ms": 999}, "every_ms"),
    ({"every": "1m", "catch_up": "some"}, "catch_up"),
    ({"every": "1m", "body": "x", "json": 1}, "give body or json, not both"),
    ({"every": "1m", "body": "x" * 65_537}, "at most 65536 bytes"),
]


def test_bad_schedules_are_refused(tmp_path: Path) -> None:
    async def work(served: Served) -> None:
        for fields, detail in BAD:
            status, problem = await post(served, "", name="s", topic="t", **fields)
            assert (status, problem["code"]) == (400, "invalid_input"), fields
            assert detail in problem["detail"]

    play(tmp_path, work)


def test_every_route_needs_the_right_to_the_schedule(tmp_path: Path) -> None:
    async def run() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        tokens.create("first")

        def headers(name: str, *rights: str) -> dict[str, str]:
            return {"authorization": f"Bearer {tokens.create(name, Rights.parse(rights))}"}

        async with serving(tmp_path, door=Door(tokens)) as served:
            http = served.http
            admin = headers("admin", "administer")
            await http.post("/v1/topics", json={"name": "t"}, headers=admin)
            given = {"name": "s", "topic": "t", "every": "1h", "producer_group": "billing"}
            await http.post("/v1/schedules", json=given, headers=admin)
            one = "/v1/schedules/s"
            asked: dict[str, Callable[[dict[str, str]], Awaitable[httpx.Response]]] = {
                "create": lambda own: http.post("/v1/schedules", json=given, headers=own),
                "show": lambda own: http.get(one, headers=own),
                "next": lambda own: http.get(f"{one}/next", headers=own),
                "pause": lambda own: http.post(f"{one}/pause", headers=own),
                "resume": lambda own: http.post(f"{one}/resume", headers=own),
                "delete": lambda own: http.delete(one, headers=own),
            }
            refused = dict.fromkeys(asked, 403)
            hidden = dict.fromkeys(asked, 404) | {"create": 403, "delete": 200}
            for right, answers in (
                ("produce:t:shipping", hidden),
                ("consume:t", refused | {"show": 404, "next": 404}),
                ("observe:other", refused | {"show": 404, "next": 404}),
                ("observe:t", refused | {"show": 200, "next": 200}),
                ("produce:t:billing", dict.fromkeys(asked, 200)),
            ):
                own = headers(right.replace(":", " "), right)
                found = {name: (await ask(own)).status_code for name, ask in asked.items()}
                assert found == answers, right
                if "billing" not in right:
                    assert (await http.get(one, headers=admin)).status_code == 200

    asyncio.run(run())
