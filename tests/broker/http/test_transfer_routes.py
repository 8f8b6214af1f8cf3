"""Export and import over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.http.served import serving
from tests.broker.http.test_problems import check
from tests.deadline import run_scene

FROM, TO = "/v1/topics/t/export", "/v1/topics/copy/import"


def test_exported_pages_can_be_imported(tmp_path: Path) -> None:
    async def scene() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic()
            await served.create_topic("copy")
            headers = [["a", "1"], ["a", {"base64": "/w=="}]]
            await served.put("one", **{"in": "1h"}, body="ü", key="k", headers=headers)
            await served.put("two", **{"in": "1h"}, body_base64="/wA=")
            await served.put("bad", body="x")
            receive = {"consumer": "c", "wait": "5s"}
            received = await served.http.post("/v1/topics/t/receive", json=receive)
            (lease,) = received.json()["messages"]
            buried = {"id": "bad", "version": lease["version"], "reason": "why"}
            bury = {"consumer": "c", "leases": [buried]}
            await served.http.post("/v1/topics/t/bury", json=bury)

            async def export(topic: str, **query: Any) -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = []
                query["limit"] = 1
                while True:
                    page = (
                        await served.http.get(f"/v1/topics/{topic}/export", params=query)
                    ).json()
                    found += page["messages"]
                    if "next" not in page:
                        return sorted(found, key=lambda each: str(each["id"]))
                    query["after"] = page["next"]

            waiting, dead = await export("t"), await export("t", dead_letters=True)
            assert [each["id"] for each in waiting] == ["one", "two"]
            one, two = waiting
            assert (one["body"], one["key"], one["headers"]) == ("ü", "k", headers)
            assert two["body"] == {"base64": "/wA="}
            assert [(each["id"], each["reason"]) for each in dead] == [("bad", "why")]

            asked = {"messages": waiting + dead}
            for refusal in (None, "exists"):
                answer = (await served.http.post(TO, json=asked)).json()
                assert [each.get("refusal") for each in answer["outcomes"]] == [refusal] * 3
            assert await export("copy") == waiting
            assert await export("copy", dead_letters=True) == dead
            for wrong in ({"body": 1}, {"due_ms": -1}, {"nonsense": 1}):
                answer = await served.http.post(TO, json={"messages": [one | wrong]})
                check(answer, 400, "invalid_input")

    run_scene(scene)
