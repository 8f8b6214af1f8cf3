"""Rights over HTTP: every route asks for one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import RightKind, Rights
from tests.broker.http.served import serving
from tests.broker.http.test_problems import check
from tests.deadline import until

_LEASES: dict[str, Any] = {"consumer": "worker-1", "leases": [{"id": "a", "version": 1}]}
_BACK = {"consumer": "worker-1", "leases": [{"id": "a", "version": 1, "in": "1m"}]}
REQUESTS: dict[tuple[str, str], dict[str, Any] | None] = {
    ("post", "/v1/topics"): {"name": "orders", "if_missing": True},
    ("get", "/v1/topics/{topic}"): None,
    ("get", "/v1/topics/{topic}/brokers"): None,
    ("delete", "/v1/topics/{topic}"): None,
    ("patch", "/v1/topics/{topic}"): {"settings": {}},
    ("post", "/v1/topics/{topic}/pause"): {"reason": "x"},
    ("post", "/v1/topics/{topic}/resume"): None,
    ("put", "/v1/topics/{topic}/messages/{id}"): {"in": "1h"},
    ("post", "/v1/topics/{topic}/messages"): {"messages": [{"id": "b"}]},
    ("post", "/v1/topics/{topic}/messages/{id}/reschedule"): {"in": "1m"},
    ("delete", "/v1/topics/{topic}/messages/{id}"): None,
    ("post", "/v1/topics/{topic}/reschedule"): {"ids": ["b"], "in": "1m"},
    ("post", "/v1/topics/{topic}/cancel"): {"ids": ["b"]},
    ("get", "/v1/topics/{topic}/messages/{id}"): None,
    ("get", "/v1/topics/{topic}/messages/{id}/body"): None,
    ("get", "/v1/topics/{topic}/messages"): None,
    ("get", "/v1/topics/{topic}/messages/{id}/state"): None,
    ("post", "/v1/topics/{topic}/change-matching"): {"operation": "cancel", "filter": {}},
    ("get", "/v1/topics/{topic}/export"): None,
    ("post", "/v1/topics/{topic}/import"): {
        "messages": [{"id": "saved", "due_ms": 1_900_000_000_000, "producer_group": "g"}]
    },
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
    ("post", "/v1/schedules"): {
        "name": "s",
        "topic": "orders",
        "every": "1h",
        "if_exists": "replace",
    },
    ("get", "/v1/schedules/{schedule}"): None,
    ("get", "/v1/schedules/{schedule}/next"): None,
    ("post", "/v1/schedules/{schedule}/pause"): None,
    ("post", "/v1/schedules/{schedule}/resume"): None,
    ("delete", "/v1/schedules/{schedule}"): None,
    ("get", "/v1/info"): None,
    ("get", "/metrics"): None,
}
"""A valid request for each route; the list of topics has only those that the token may see."""
_OPEN = {("get", "/livez"), ("get", "/readyz"), ("get", "/v1/topics"), ("get", "/v1/schedules")}
_ALLOWED = {
    RightKind.PRODUCE: "topic brokers create-message messages reschedule-message reschedule cancel-message "
    "cancel look state body dead redrive discard schedule show-schedule next-times pause-schedule "
    "resume-schedule delete-schedule",
    RightKind.CONSUME: "topic brokers receive ack extend release retry bury",
    RightKind.OBSERVE: "topic brokers look list state counts forecast dead show-schedule next-times info "
    "metrics",
    RightKind.ADMINISTER: "create topic brokers drop change pause resume look list state matching counts "
    "forecast export import dead redrive discard schedule show-schedule next-times pause-schedule "
    "resume-schedule delete-schedule info metrics",
    RightKind.TIMERS: "",
    RightKind.NODE: "",
}
_LAST = "_ delete-schedule drop"
"""The routes that are asked last, in this order."""
_NAMES = dict(
    zip(
        REQUESTS,
        [
            "create",
            "topic",
            "brokers",
            "drop",
            "change",
            "pause",
            "resume",
            "create-message",
            "messages",
            "reschedule-message",
            "cancel-message",
            "reschedule",
            "cancel",
            "look",
            "body",
            "list",
            "state",
            "matching",
            "export",
            "import",
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
            "schedule",
            "show-schedule",
            "next-times",
            "pause-schedule",
            "resume-schedule",
            "delete-schedule",
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
            assert routes == set(REQUESTS) | _OPEN
            for kind, allowed in _ALLOWED.items():
                # The one before may have deleted the topic, whose name is free a moment later.
                await until(lambda: _is_made(served.http, admin))
                schedule = REQUESTS["post", "/v1/schedules"]
                made = await served.http.post("/v1/schedules", json=schedule, headers=admin)
                assert made.status_code == httpx.codes.OK, made.text
                token = tokens.create(kind, Rights.parse([kind]))
                headers = {"authorization": f"Bearer {token}"}
                found = {
                    _NAMES[route]
                    for route in sorted(REQUESTS, key=lambda each: _LAST.find(_NAMES[each]))
                    if await _is_allowed(served.http, route, headers, described)
                }
                assert found == set(allowed.split()), kind

    asyncio.run(play())


async def _is_made(http: httpx.AsyncClient, headers: dict[str, str]) -> bool:
    asked = {"name": "orders", "if_missing": True}
    return (await http.post("/v1/topics", json=asked, headers=headers)).is_success


async def _is_allowed(
    http: httpx.AsyncClient,
    route: tuple[str, str],
    headers: dict[str, str],
    described: dict[str, Any],
) -> bool:
    method, path = route
    url = path.format(topic="orders", id="a", schedule="s")
    answer = await http.request(method, url, json=REQUESTS[route], headers=headers)
    assert str(answer.status_code) in described[path][method]["responses"], route
    if answer.status_code == httpx.codes.NOT_FOUND and "/schedules/" in path:
        check(answer, 404, "schedule_not_found")  # it is hidden
        return False
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
                missing = f"produce:{topic}" + (f":{group}" if topic == "orders" else "")
                assert f"{missing};" in refused.json()["detail"]
            for consumer in ("other", None):
                asked = {"consumer": consumer, "wait": "1ms"}
                poll = await http.post("/v1/topics/orders/receive", json=asked, headers=headers)
                check(poll, 403, "forbidden")
            asked = {"consumer": "worker-1", "wait": "10s"}
            poll = await http.post("/v1/topics/orders/receive", json=asked, headers=headers)
            assert [each["id"] for each in poll.json()["messages"]] == ["a"]
            listed = await http.get("/v1/topics", headers=headers)
            assert [each["name"] for each in listed.json()["topics"]] == ["orders"]
            for topic in ("mails", "missing"):  # it does not tell which of them is there
                schedules = await http.get(f"/v1/schedules?topic={topic}", headers=headers)
                check(schedules, 403, "forbidden")

    asyncio.run(play())


def test_schedule_of_others_is_not_described(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        rights = Rights.parse(["produce:mails:shop"])
        stranger = {"authorization": f"Bearer {tokens.create('stranger', rights)}"}
        async with serving(tmp_path, door=Door(tokens)) as served:
            http = served.http
            for name in ("orders", "mails"):
                await http.post("/v1/topics", json={"name": name}, headers=admin)
            secret = {"name": "s", "topic": "orders", "every": "1h", "producer_group": "billing"}
            made = await http.post("/v1/schedules", json=secret, headers=admin)
            assert made.status_code == 200, made.text
            mine = {**secret, "topic": "mails", "producer_group": "shop", "if_exists": "replace"}
            free = {**mine, "name": "free", "dry_run": True}
            answers = {}
            for name in ("s", "missing"):
                url = f"/v1/schedules/{name}"
                answers[name] = [
                    await http.request(method, f"{url}{path}", headers=stranger)
                    for method, path in (
                        ("GET", ""),
                        ("GET", "/next"),
                        ("POST", "/pause"),
                        ("POST", "/resume"),
                        ("DELETE", ""),
                    )
                ]
            for hidden, missing in zip(answers["s"], answers["missing"], strict=True):
                assert hidden.status_code == missing.status_code
                assert hidden.text == missing.text.replace("missing", "s")
            assert (await http.get("/v1/schedules/s", headers=admin)).status_code == 200
            # A name that is taken cannot be given again.
            for asked in (mine, {**mine, "if_exists": "refuse"}):
                taken = await http.post("/v1/schedules", json=asked, headers=stranger)
                check(taken, 409, "schedule_exists")
                assert not re.search("orders|billing", taken.text)
            made = await http.post("/v1/schedules", json=free, headers=stranger)
            assert made.status_code == 200, made.text

    asyncio.run(play())


def test_revoked_token_of_a_waiting_poll_gets_nothing(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        rights = Rights.parse(["consume:orders"])
        revoked = {"authorization": f"Bearer {tokens.create('worker', rights)}"}
        async with serving(tmp_path, door=Door(tokens)) as served:
            http = served.http
            await http.post("/v1/topics", json={"name": "orders"}, headers=admin)
            url = "/v1/topics/orders"
            asked = {"consumer": "worker-1", "wait": "60s"}
            waiting = asyncio.create_task(http.post(f"{url}/receive", json=asked, headers=revoked))
            await until(lambda: bool(served.subscriptions))
            tokens.revoke("worker")
            await http.put(f"{url}/messages/a", json={"body": "secret"}, headers=admin)
            refused = await waiting
            check(refused, 401, "unauthenticated")
            assert "secret" not in refused.text
            asked = {"consumer": "worker-2", "wait": "60s"}
            poll = await http.post(f"{url}/receive", json=asked, headers=admin)
            [message] = poll.json()["messages"]
            assert (message["id"], message["attempts"]) == ("a", 0)  # it was given back as it was

    asyncio.run(play())


def test_secrets_of_a_target_are_shown_to_administrators_alone(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.json")

    async def play() -> None:
        async with serving(tmp_path, door=Door(tokens)) as served:
            target = "https://x.example/hook?token=s3cret"
            body = {"name": "pushed", "settings": {"target": target}}
            assert (await served.http.post("/v1/topics", json=body)).status_code == 201
            admin = {"Authorization": f"Bearer {tokens.create('ops')}"}
            observer = {
                "Authorization": f"Bearer {tokens.create('eye', Rights.parse(['observe']))}"
            }
            for path in ("/v1/topics", "/v1/topics/pushed"):
                assert "s3cret" in (await served.http.get(path, headers=admin)).text
                shown = (await served.http.get(path, headers=observer)).text
                assert "https://x.example/hook?..." in shown
                assert "s3cret" not in shown

    asyncio.run(play())


def test_metrics_need_a_right_to_all_topics(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        async with serving(tmp_path, door=Door(tokens)) as served:
            for name, right, status in (
                ("a", "observe:orders-*", 403),
                ("b", "administer:orders-*", 403),
                ("c", "observe:*", 200),
                ("d", "administer", 200),
            ):
                token = tokens.create(name, Rights.parse([right]))
                headers = {"authorization": f"Bearer {token}"}
                assert (await served.http.get("/metrics", headers=headers)).status_code == status

    asyncio.run(play())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/topics/orders/counts", 200),
        ("/v1/topics/orders%2F..%2Fmails/counts", 403),
        ("/v1/topics/mails/counts", 403),
        ("/v1/topics/mails%00/counts", 403),
        ("/v1/topics/ORDERS/counts", 403),
        ("/v1/topics/*/counts", 403),
        ("/v1/topics/orders*/counts", 403),
        ("/v1/topics/orders/../mails/counts", 404),
        ("/v1/topics/orders;mails/counts", 403),
        ("//v1/topics/mails/counts", 404),
        ("/livez/../v1/topics/mails/counts", 404),
        ("/livez", 200),
    ],
)
def test_tricks_in_paths_open_nothing(tmp_path: Path, path: str, status: int) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        admin = {"authorization": f"Bearer {tokens.create('admin')}"}
        token = tokens.create("a", Rights.parse(["observe:orders"]))
        async with serving(tmp_path, door=Door(tokens)) as served:
            for name in ("orders", "mails"):
                await served.http.post("/v1/topics", json={"name": name}, headers=admin)
            for shown, expected in ((token, status), ("wrong", 200 if path == "/livez" else 401)):
                # A client of HTTP would resolve the dots itself.
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {shown}\r\n\r\n"
                writer.write(head.encode())
                assert int((await reader.readline()).split()[1]) == expected
                writer.close()

    asyncio.run(play())
