"""Routes of operators over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chronoline.runtime.clock import SystemClock
from tests.broker.http.served import Served, serving
from tests.broker.http.test_problems import check
from tests.deadline import run_scene

TOPIC = "/v1/topics/t"
HOUR_MS = 3_600_000


async def listed(served: Served, **query: Any) -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    while True:
        answer = await served.http.get(f"{TOPIC}/messages", params=query)
        assert answer.status_code == 200, answer.text
        found += [each["id"] for each in answer.json()["messages"]]
        if "next" not in answer.json():
            return found
        query["after"] = answer.json()["next"]


def test_messages_are_listed_in_pages(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for place, each in enumerate(("a-1", "b-1", "a-2")):
                group = "shop" if place else "default"
                await served.put(each, producer_group=group, **{"in": f"{place + 1}h"})
            assert await listed(served, limit=1) == ["a-1", "b-1", "a-2"]
            assert await listed(served, prefix="a-") == ["a-1", "a-2"]
            assert await listed(served, producer_group="shop") == ["b-1", "a-2"]
            assert await listed(served, **{"from": "+90m", "to": "+150m"}) == ["b-1"]
            assert await listed(served, status="available") == []
            assert await listed(served, consumer="c") == []
            bad = await served.http.get(f"{TOPIC}/messages", params={"after": "x"})
            check(bad, 400, "invalid_input")
            mistyped = await served.http.get(f"{TOPIC}/messages", params={"group": "shop"})
            assert (
                "it takes: after, consumer, from" in check(mistyped, 400, "invalid_input")["detail"]
            )
            missing = await served.http.get("/v1/topics/none/messages")
            check(missing, 404, "topic_not_found")

    run_scene(scene)


def test_state_says_what_became_of_a_message(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for each in ("acked", "dead", "held"):
                await served.put(each)
            await served.put("gone", **{"in": "1h"})
            await served.put("later", **{"in": "1h"})
            await served.http.delete(f"{TOPIC}/messages/gone")
            received = await served.receive(consumer="c", count=3)
            leases = {each["id"]: each["version"] for each in received["messages"]}
            for what, each in (("ack", "acked"), ("bury", "dead")):
                lease = {"id": each, "version": leases[each]}
                reason = {"reason": "odd"} if what == "bury" else {}
                await served.settle(what, consumer="c", leases=[lease | reason])

            async def state(message_id: str) -> dict[str, Any]:
                answer = await served.http.get(f"{TOPIC}/messages/{message_id}/state")
                assert answer.status_code == 200, answer.text
                return dict(answer.json())

            acked, gone, dead = await state("acked"), await state("gone"), await state("dead")
            assert (acked["state"], acked["consumer"]) == ("delivered", "c")
            assert (gone["state"], "consumer" in gone) == ("cancelled", False)
            assert acked["until_ms"] > 0
            assert (dead["state"], dead["reason"]) == ("dead", "odd")
            assert (await state("held"))["message"]["consumer"] == "c"
            assert (await state("later"))["state"] == "waiting"
            check(await served.http.get(f"{TOPIC}/messages/none/state"), 404, "not_found")

    run_scene(scene)


def test_what_matches_is_changed_batch_by_batch(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for number in range(5):
                await served.put(f"m{number}", **{"in": "1h"})
            await served.put("other", **{"in": "1h"})

            async def change(**fields: Any) -> dict[str, Any]:
                answer = await served.http.post(f"{TOPIC}/change-matching", json=fields)
                assert answer.status_code == 200, answer.text
                return dict(answer.json())

            where = {"prefix": "m"}
            dry = await change(operation="cancel", filter=where, dry_run=True)
            assert (dry["matched"], dry["done"], len(dry["sample"])) == (5, 5, 5)
            first = await change(operation="reschedule", filter=where, limit=2, **{"in": "2h"})
            assert (first["done"], first["looked"]) == (2, 2)
            rest = await change(
                operation="reschedule", filter=where, after=first["next"], due_ms=first["due_ms"]
            )
            assert (rest["done"], "next" in rest) == (3, False)
            moved = await served.http.get(f"{TOPIC}/messages", params={"from": "+90m"})
            assert {each["due_ms"] for each in moved.json()["messages"]} == {first["due_ms"]}
            await served.put("brief", **{"in": "1h"}, expires="2999-01-01T00:00:00Z")
            far = {"filter": {"prefix": "brief"}, "due": "2999-01-01T00:00:00Z"}
            for dry_run in (True, False):
                late = await change(operation="reschedule", dry_run=dry_run, **far)
                assert (late["done"], late["refused"]) == (0, {"expired": 1})
            cancelled = await change(operation="cancel", filter={})
            assert cancelled["done"] == 7
            for bad in (
                {"operation": "reschedule", "filter": {}},
                {"operation": "cancel", "in": "1h", "filter": {}},
                {"operation": "cancel", "filter": {"reason": "x"}},
                {"operation": "redrive", "in": "1h", "filter": {"consumer": "c"}},
                {"operation": "purge", "filter": {}},
                {"operation": "cancel", "filter": {"start": "2030-01-01T00:00:00Z", "start_ms": 1}},
                {"operation": "cancel", "filter": {"end": "2030-01-01T00:00:00Z", "end_ms": 1}},
                {"operation": "cancel"},  # a change of everything has to be asked for
            ):
                answer = await served.http.post(f"{TOPIC}/change-matching", json=bad)
                check(answer, 400, "invalid_input")

    run_scene(scene)


def test_what_is_moved_within_the_range_counts_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            for number in range(5):
                await served.put(f"m{number}", **{"in": f"{number + 1}h"})
            now_ms = SystemClock().now_ms()
            due_ms = now_ms + 10 * HOUR_MS
            asked: dict[str, Any] = {
                "operation": "reschedule",
                "filter": {"start_ms": now_ms, "end_ms": now_ms + 24 * HOUR_MS},
                "due_ms": due_ms,
                "limit": 2,
            }
            done = matched = 0
            while True:
                answer = await served.http.post(f"{TOPIC}/change-matching", json=asked)
                batch = answer.json()
                done, matched = done + batch["done"], matched + batch["matched"]
                if "next" not in batch:
                    break
                asked["after"] = batch["next"]
            assert (matched, done) == (5, 5)
            moved = await served.http.get(f"{TOPIC}/messages")
            assert [each["due_ms"] for each in moved.json()["messages"]] == [due_ms] * 5

    run_scene(scene)
