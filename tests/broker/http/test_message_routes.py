"""Lookups, counts and forecasts over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.broker.http.served import serving


def test_lookup_shows_the_status(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            put = await served.put("m", delay_ms=60_000, body="x")
            url = "/v1/topics/t/messages/m"
            waiting = (await served.http.get(url)).json()
            assert (waiting["status"], waiting["ts"]) == ("waiting", put["due"])
            assert "consumer" not in waiting
            assert "body" not in waiting
            await served.http.post(f"{url}/reschedule", json={"delay_ms": 0})
            assert (await served.http.get(url)).json()["status"] == "available"
            (got,) = (await served.receive(consumer="c"))["messages"]
            processing = (await served.http.get(url)).json()
            assert (processing["status"], processing["consumer"]) == ("processing", "c")
            assert (processing["ts"], processing["version"]) == (got["until"], got["version"])
            missing = await served.http.get("/v1/topics/t/messages/nothing")
            assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
            nowhere = await served.http.get("/v1/topics/nowhere/messages/m")
            assert (nowhere.status_code, nowhere.json()["code"]) == (404, "topic_not_found")

    asyncio.run(play())


def test_messages_are_counted_by_status_and_step(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            messages = [{"delay_ms": 90_000}, {"delay_ms": 100_000}, {"delay_ms": 200_000}, {}]
            await served.http.post("/v1/topics/t/messages", json={"messages": messages})
            counts = (await served.http.get("/v1/topics/t/counts")).json()
            assert counts == {"available": 1, "processing": 0, "waiting": 3, "total": 4}
            url = "/v1/topics/t/forecast?from=now&to=+5m&step=1m"
            forecast = (await served.http.get(url)).json()
            assert [each["waiting"] for each in forecast["steps"]] == [0, 2, 0, 1, 0]
            assert forecast["steps"][0]["start"] == forecast["now"]
            assert forecast["step_ms"] == 60_000
            usual = (await served.http.get("/v1/topics/t/forecast")).json()
            assert len(usual["steps"]) == 60
            past = {"from": "-1h", "to": "2040-01-01T00:00:00Z", "step": "52w"}
            whole = (await served.http.get("/v1/topics/t/forecast", params=past)).json()
            assert sum(each["total"] for each in whole["steps"]) == 4

    asyncio.run(play())


def test_bad_forecast_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for query, words in (
                ("from=soon", "from 'soon' is no moment"),
                ("to=2040-01-01T00:00:00", "no moment"),
                ("step=1", "step '1' is not a duration"),
                ("step=0s", "too short"),
                ("to=%2B365d&step=1s", "more than 10000 steps"),
                ("from=%2B2h&to=%2B1h", "end"),
            ):
                told = await served.http.get(f"/v1/topics/t/forecast?{query}")
                assert told.status_code == 400, told.text
                assert words in told.json()["detail"]

    asyncio.run(play())
