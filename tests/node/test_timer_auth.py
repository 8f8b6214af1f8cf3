"""Access to a node of timers: host names and tokens."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from pathlib import Path
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from chronoline.broker.auth import Door
from chronoline.broker.tokens import Tokens
from chronoline.core.rights import Rights
from chronoline.node.timer_auth import request_check
from chronoline.node.timer_service import ServiceOptions, TimerService
from chronoline.runtime import audit
from chronoline.runtime.json_bounds import MOST_VALUES
from chronoline.timers.http.responses import HttpRefusal
from chronoline.timers.http.server import RequestArea
from tests.unsent_bodies import ask_without_body

OPEN = Door()
_ID = "00000000000004d2-2"


def _ask(
    door: Door,
    here: str = "127.0.0.1",
    area: RequestArea = RequestArea.TIMERS,
    **headers: str,
) -> None:
    transport = Mock()
    extra = {"sockname": (here, 7253)}
    transport.get_extra_info.side_effect = extra.get
    asked = make_mocked_request("POST", "/timers", headers=headers, transport=transport)
    request_check(door)(asked, area)


def _refused(door: Door, here: str = "127.0.0.1", **headers: str) -> HTTPStatus:
    with pytest.raises(HttpRefusal) as caught:
        _ask(door, here, RequestArea.TIMERS, **headers)
    return caught.value.status


@pytest.mark.parametrize("host", ["127.0.0.1:7253", "localhost", "[::1]:7253", "127.8.8.8"])
def test_loopback_host_is_allowed(host: str) -> None:
    _ask(OPEN, Host=host)
    assert _refused(OPEN, Host=host, Origin="http://localhost:3000") == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7253", "10.0.0.1:7253"])
def test_foreign_host_header_is_refused(host: str) -> None:
    assert _refused(OPEN, Host=host) == HTTPStatus.MISDIRECTED_REQUEST


def test_host_is_checked_at_every_address() -> None:
    _ask(OPEN, "10.0.0.1", Host="10.0.0.1:7253")
    for host in ("evil.example:7253", "10.0.0.2"):
        assert _refused(OPEN, "10.0.0.1", Host=host) == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize("host", ["timers.example", "Timers.Example:7253", "timers.example."])
def test_allowed_host_is_accepted(host: str) -> None:
    door = Door(allowed_hosts=["timers.example"])
    _ask(door, Host=host)
    assert _refused(door, Host=host, Origin="http://timers.example") == HTTPStatus.FORBIDDEN
    assert _refused(door, Host=f"evil.{host}") == HTTPStatus.MISDIRECTED_REQUEST


def test_web_page_cannot_use_the_certificate_of_a_browser(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.admit_certificate("me", "me.example")
    token = tokens.create("a")
    transport = Mock()
    shown = {
        "subject": ((("commonName", "me.example"),),),
        "notAfter": "Jan  1 00:00:00 2100 GMT",
    }
    transport.get_extra_info.side_effect = {"peercert": shown}.get

    def ask(**headers: str) -> None:
        asked = make_mocked_request("POST", "/timers", headers=headers, transport=transport)
        request_check(Door(tokens))(asked, RequestArea.TIMERS)

    ask()
    ask(Origin="https://a.example", Authorization=f"Bearer {token}")
    with pytest.raises(HttpRefusal) as caught:
        ask(Origin="https://a.example")
    assert caught.value.status == HTTPStatus.FORBIDDEN


def test_token_is_required_once_one_exists(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    door = Door(tokens)
    token = tokens.create("a")
    for here in ("127.0.0.1", "10.0.0.1"):
        _ask(door, here, Host="timers.example", Authorization=f"Bearer {token}")
        assert _refused(door, here, Host="127.0.0.1") == HTTPStatus.UNAUTHORIZED
        wrong = "Bearer chronoline_wrong"
        assert _refused(door, here, Authorization=wrong) == HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize(
    ("right", "areas"),
    [
        ("timers", {RequestArea.TIMERS}),
        ("node", {RequestArea.NODES}),
        ("observe", {RequestArea.VIEWS}),
        ("administer", {RequestArea.VIEWS, RequestArea.ADMIN}),
        ("observe:orders-*", set[RequestArea]()),
        ("administer:orders-*", set[RequestArea]()),
        ("produce", set[RequestArea]()),
    ],
)
def test_token_opens_the_areas_of_its_right(
    tmp_path: Path, right: str, areas: set[RequestArea]
) -> None:
    tokens = Tokens(tmp_path / "tokens")
    token = tokens.create("a", Rights.parse([right]))
    opened = set()
    for area in RequestArea:
        try:
            _ask(Door(tokens), area=area, Authorization=f"Bearer {token}")
            opened.add(area)
        except HttpRefusal as refusal:
            assert refusal.status == HTTPStatus.FORBIDDEN  # noqa: PT017 - others are let in
    assert opened == areas


def test_unreadable_tokens_refuse_every_client(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("{")
    assert _refused(Door(Tokens(path)), Host="127.0.0.1") == HTTPStatus.SERVICE_UNAVAILABLE


def test_every_administrative_request_is_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(tmp_path / "tokens")
    given = {"ops": tokens.create("ops"), "set": tokens.create("set", Rights.parse(["timers"]))}
    options = ServiceOptions(port=0, data=tmp_path)
    check = request_check(Door(tokens))

    async def scene() -> None:
        async with TimerService(options, admits=check) as service, aiohttp.ClientSession() as http:
            assert service.edge is not None
            found = []
            for path, method, area in service.edge.routes():
                for who in ("set", "ops"):
                    caplog.clear()
                    url = f"http://127.0.0.1:{service.port}{path}"
                    headers = {"Authorization": f"Bearer {given[who]}"}
                    async with http.request(method, url, headers=headers) as answer:
                        assert (answer.status == HTTPStatus.FORBIDDEN) == (
                            who == "set" and area is not RequestArea.TIMERS
                        )
                    lines = [each for each in caplog.records if each.name == audit.logger.name]
                    assert len(lines) == (area is RequestArea.ADMIN), (path, method)
                    found += [(vars(each)["act"], vars(each)["who"]) for each in lines]
            assert found == [
                (act, f"token {who}")
                for act in ("timers_reload", "timers_resync")
                for who in ("set", "ops")
            ]

    with caplog.at_level(logging.INFO, audit.logger.name):
        asyncio.run(scene())


def test_token_of_any_bytes_is_refused(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.create("a")
    check = request_check(Door(tokens))

    async def scene() -> bytes:
        async with TimerService(ServiceOptions(port=0, data=tmp_path), admits=check) as service:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(
                b"GET /v1/timers HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \xff\r\n\r\n"
            )
            answer = await reader.readline()
            writer.close()
            return answer

    assert asyncio.run(scene()).split()[1] == b"401"


def test_body_is_not_read_before_rights(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    token = tokens.create("a", Rights.parse(["produce"]))
    check = request_check(Door(tokens))

    async def scene() -> None:
        async with TimerService(ServiceOptions(port=0, data=tmp_path), admits=check) as service:
            assert service.edge is not None
            for path, method, _ in service.edge.routes():
                status = await ask_without_body(
                    service.port, method, path, authorization=f"Bearer {token}"
                )
                assert status == HTTPStatus.FORBIDDEN, (path, method)

    asyncio.run(scene())


def test_worst_body_is_not_parsed(tmp_path: Path) -> None:
    body = b'{"records":[' + b"[]," * MOST_VALUES + b"[]]}"

    async def scene() -> None:
        async with TimerService(ServiceOptions(port=0, data=tmp_path)) as service:
            assert service.edge is not None
            read = set()
            async with aiohttp.ClientSession() as http:
                for path, method, area in service.edge.routes():
                    url = f"http://127.0.0.1:{service.port}{path}{_ID if path[-1] == '/' else ''}"
                    async with http.request(method, url, data=body) as answer:
                        text = await answer.text()
                        if answer.status == HTTPStatus.BAD_REQUEST and "200,000 items" in text:
                            read.add((area, path, method))
            # The others read no body.
            assert read == {
                (RequestArea.TIMERS, "/timers", "POST"),
                (RequestArea.TIMERS, "/timers/", "PUT"),
                (RequestArea.NODES, "/cluster/records", "POST"),
                (RequestArea.NODES, "/cluster/known", "POST"),
                (RequestArea.NODES, "/cluster/ceded", "POST"),
                (RequestArea.NODES, "/cluster/turns", "POST"),
                (RequestArea.NODES, "/cluster/back", "POST"),
                (RequestArea.NODES, "/timers/references", "DELETE"),
            }

    asyncio.run(scene())
