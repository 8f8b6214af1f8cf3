"""A PostgreSQL whose synchronous standby is away: reads work, no change ends, and the broker says so."""

from __future__ import annotations

from pathlib import Path

from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from tests.broker.http.served import serving
from tests.broker.http.test_problems import check
from tests.deadline import run_scene, until
from tests.stores.postgres.absent_standby import absent_standby

_FOREVER_S = 3_600.0
"""The time-out of the store: a request that waits for it has no answer within the test."""


def test_broker_is_not_ready_and_refuses_changes_early(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(store, patience_s=_FOREVER_S, upkeep_every_s=0.05) as it:

            async def answers(status: int) -> bool:
                return (await it.http.get("/readyz")).status_code == status

            await it.create_topic("jobs")
            await it.put("before", "jobs")
            assert await answers(200)
            with absent_standby(url):
                await until(lambda: answers(503))
                for number in range(20):
                    assert await answers(503)
                    put = await it.http.put(f"/v1/topics/jobs/messages/{number}", json={})
                    problem = check(put, 503, "store_busy")
                    assert "a synchronous standby may be away" in problem["detail"]
                    assert put.headers["retry-after"] == "1"
                made = await it.http.post("/v1/topics", json={"name": "late"})
                check(made, 503, "store_busy")
                check(await it.http.delete("/v1/topics/jobs"), 503, "store_busy")
                counted = await it.http.get("/v1/topics/jobs/counts")
                assert counted.json()["total"] == 1
            await until(lambda: answers(200))
            await it.put("after", "jobs")

    with PostgresServer(tmp_path / "postgres") as server:
        url = server.url()
        with open_store(url) as store:
            run_scene(play)
