"""Rights over HTTP: every route asks for one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import RightKind, Rights
from tests.broker.http.served import serving
from tests.broker.http.test_problems import check

_LEASES: dict[str, Any] = {"consumer": "worker-1", "leases": [{"id": "a", "version": 1}]}
_BACK = {"consumer": "worker-1", "leases": [{"id": "a", "version": 1, "in": "1m"}]}
_ASKED: dict[tuple[str, str], dict[str, Any] | None] = {
    ("post", "/v1/topics"): {"name": "orders", "if_missing": True},
    ("get", "/v1/topics/{topic}"): None,
    ("delete", "/v1/topics/{topic}"): None,
    ("patch", "/v1/topics/{topic}"): {"settings": {}},
    ("post", "/v1/topics/{topic}/pause"): {"reason": "x"},
    ("post", "/v1/topics/{topic}/resume"): None,
    ("put", "/v1/topics/{topic}/messages/{id}"): {"in": "1h"},
    ("post", "/v1/topics/{topic}/messages"): {"messages": [{"id": "b"}]},
    ("post", "/v1/topics/{topic}/messages/{id}/reschedule"): {"in": "1m"},
    ("delete", "/v1/topics/{topic}/messages/{id}"): None,
    ("post", "/v1/topics/{topic}/cancel"): {"ids": ["b"]},
    ("get", "/v1/topics/{topic}/messages/{id}"): None,
    ("get", "/v1/topics/{topic}/messages/{id}/body"): None,
    ("get", "/v1/topics/{topic}/messages"): None,
    ("get", "/v1/topics/{topic}/messages/{id}/state"): None,
    ("post", "/v1/topics/{topic}/change-matching"): {"operation": "cancel", "filter": {}},
    ("get", "/v1/topics/{topic}/counts"): None,
    ("get", "/v1/topics/{topic}/forecast"): None,
    ("post", "/v1/topics/{topic}/receive"): {"consumer": "worker-1", "wait": "1ms"},
    ("post", "/v1/topics/{topic}/ack"): _LEASES,
    ("post", "/v1/topics/{topic}/extend"): _LEASES,
    ("post", "/v1/topics/{topic}/release"): _BACK,
    ("post", "/v1/topics/{topic}/retry"): _BACK,
    ("post", "/v1/topics/{topic}/bury"): _LEASES,
    ("get", "/v1/topics/{topic}/dead"): None,
    ("post", "/v1/topics/{topic}/dead/redrive"): {"ids": ["a"]},
    ("post", "/v1/topics/{topic}/dead/discard"): {"ids": ["a"]},
    ("get", "/v1/info"): None,
    ("get", "/metrics"): None,
}
"""A valid request for each route; the list of topics has only those that the token may see."""
_OPEN = {("get", "/livez"), ("get", "/readyz"), ("get", "/v1/topics")}
_ALLOWED = {
    RightKind.PRODUCE: "topic create-message messages reschedule cancel-message cancel look state body dead "
    "redrive discard",
    RightKind.CONSUME: "topic receive ack extend release retry bury",
    RightKind.OBSERVE: "topic look list state counts forecast dead info metrics",
    RightKind.ADMINISTER: "create topic drop change pause resume look list state matching counts forecast "
    "dead redrive discard info metrics",
    RightKind.TIMERS: "",
    RightKind.NODE: "",
}
_NAMES = dict(
    zip(
        _ASKED,
        [
            "create",
            "topic",
            "drop",
            "change",
            "pause",
            "resume",
            "create-message",
            "messages",
            "reschedule",
            "cancel-message",
            "cancel",
            "look",
            "body",
            "list",
            "state",
            "matching",
            "counts",
            "forecast",
            "receive",
            "ack",
            "extend",
            "release",
            "retry",
            "bury",
            "dead",
            "redrive",
            "discard",
            "info",
            "metrics",
        ],
        strict=True,
    )
)


def test_every_route_needs_its_right(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        async with serving(tmp_path, door=Door(tokens)) as served:
            described = (await served.http.get("/openapi.json", headers=admin)).json()["paths"]
            routes = {(method, path) for path, each in described.items() for method in each}
            assert routes == set(_ASKED) | _OPEN
            for kind, allowed in _ALLOWED.items():
                await served.http.post("/v1/topics", json={"name": "orders"}, headers=admin)
                token = tokens.create(kind, Rights.parse([kind]))
                headers = {"authorization": f"Bearer {token}"}
                found = {
                    _NAMES[route]
                    for route in sorted(_ASKED, key=lambda each: _NAMES[each] == "drop")
                    if await _is_allowed(served.http, route, headers)
                }
                assert found == set(allowed.split()), kind

    asyncio.run(play())


async def _is_allowed(
    http: httpx.AsyncClient, route: tuple[str, str], headers: dict[str, str]
) -> bool:
    method, path = route
    url = path.format(topic="orders", id="a")
    answer = await http.request(method, url, json=_ASKED[route], headers=headers)
    if answer.status_code == httpx.codes.FORBIDDEN:
        check(answer, 403, answer.json()["code"])
        return bool(answer.json()["code"] != "forbidden")
    assert answer.status_code != httpx.codes.UNAUTHORIZED, answer.text
    return True


def test_right_counts_for_its_names_alone(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        rights = Rights.parse(["produce:orders:billing", "consume:orders:worker-*"])
        headers = {"authorization": f"Bearer {tokens.create('a', rights)}"}
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        async with serving(tmp_path, door=Door(tokens)) as served:
            http = served.http
            for name in ("orders", "mails"):
                await http.post("/v1/topics", json={"name": name}, headers=admin)
            url = "/v1/topics/orders/messages/a"
            sent = await http.put(url, json={"producer_group": "billing"}, headers=headers)
            assert sent.status_code == 201
            for topic, group in (("orders", "shipping"), ("mails", "billing")):
                url = f"/v1/topics/{topic}/messages/b"
                refused = await http.put(url, json={"producer_group": group}, headers=headers)
                check(refused, 403, "forbidden")
                assert f"produce:{topic}:{group}" in refused.json()["detail"]
            for consumer in ("other", None):
                asked = {"consumer": consumer, "wait": "1ms"}
                poll = await http.post("/v1/topics/orders/receive", json=asked, headers=headers)
                check(poll, 403, "forbidden")
            asked = {"consumer": "worker-1", "wait": "10s"}
            poll = await http.post("/v1/topics/orders/receive", json=asked, headers=headers)
            assert [each["id"] for each in poll.json()["messages"]] == ["a"]
            listed = await http.get("/v1/topics", headers=headers)
            assert [each["name"] for each in listed.json()["topics"]] == ["orders"]

    asyncio.run(play())
