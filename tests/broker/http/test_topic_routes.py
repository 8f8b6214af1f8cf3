"""Topics are made, shown and deleted over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.http.served import serving


def test_topic_is_created_shown_listed_and_deleted(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served, served.client() as client:
            asked = {"name": "t", "settings": {"default_lease_ms": 60_000, "max_lateness_ms": 5}}
            made = await served.http.post("/v1/topics", json=asked)
            assert made.status_code == 201
            topic = made.json()
            assert topic["settings"]["default_lease_ms"] == 60_000
            assert topic["uid"] == str((await client.topic("t")).uid)
            assert (await served.http.get("/v1/topics/t")).json() == topic
            await served.create_topic("a")
            listed = (await served.http.get("/v1/topics")).json()["topics"]
            assert [each["name"] for each in listed] == ["a", "t"]
            assert (await served.http.delete("/v1/topics/t")).json() == {"dropped": True}
            again = await served.http.delete("/v1/topics/t")
            assert (again.status_code, again.json()["code"]) == (404, "topic_not_found")
            assert (await served.http.get("/v1/topics/t")).status_code == 404

    asyncio.run(play())


def test_existing_topic_conflicts_unless_allowed(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic(buckets=8)
            taken = await served.http.post("/v1/topics", json={"name": "t"})
            assert (taken.status_code, taken.json()["code"]) == (409, "topic_exists")
            fine = await served.http.post("/v1/topics", json={"name": "t", "if_missing": True})
            assert (fine.status_code, fine.json()["settings"]["buckets"]) == (200, 8)

    asyncio.run(play())


def test_invalid_topic_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            for name, settings, words in (
                ("", {}, "name"),
                ("a\nb", {}, "cannot be printed"),
                ("t", {"buckets": 0}, "buckets must be from 1"),
                ("t", {"bucket": 1}, "settings.bucket is unknown"),
                ("t", {"dead_letters": 1}, "settings.dead_letters"),
                ("t", {"largest_body_bytes": 60_000_000}, "raise frame_bytes"),
            ):
                asked = {"name": name, "settings": settings}
                told = await served.http.post("/v1/topics", json=asked)
                assert (told.status_code, told.json()["code"]) == (400, "invalid_input")
                assert words in told.json()["detail"]

    asyncio.run(play())
