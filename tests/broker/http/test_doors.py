"""Access over HTTP: tokens, host names and TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from chronoline.broker.auth import Door, ServerTls
from chronoline.broker.tokens import Tokens
from chronoline.core.errors import InvalidInput
from chronoline.node.broker_service import BrokerService
from chronoline.stores.factory import open_store
from tests.broker.http.served import serving
from tests.broker.http.test_problems import check
from tests.certificates import make_certificate


def test_token_is_required_once_one_exists(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        async with serving(tmp_path, door=Door(tokens)) as served:
            assert (await served.http.get("/v1/topics")).status_code == 200
            token = tokens.create("ops")
            for path in ("/v1/topics", "/metrics", "/openapi.json", "/v1/nothing"):
                refused = await served.http.get(path)
                check(refused, 401, "unauthenticated")
                assert refused.headers["www-authenticate"].startswith("Bearer")
                assert "asks for a token, in the header" in refused.json()["detail"]
            for path in ("/livez", "/readyz"):
                assert (await served.http.get(path)).status_code == 200
            for wrong in ("Bearer no", f"Basic {token}", token, "Bearer"):
                answer = await served.http.get("/v1/topics", headers={"authorization": wrong})
                check(answer, 401, "unauthenticated")
                assert token not in answer.text
                assert "have been revoked, have expired" in answer.json()["detail"]
            right = {"authorization": f"Bearer {token}"}
            assert (await served.http.get("/v1/topics", headers=right)).status_code == 200
            tokens.create("other")
            tokens.revoke("ops")
            check(await served.http.get("/v1/topics", headers=right), 401, "unauthenticated")

    asyncio.run(play())


def test_unreadable_tokens_refuse_every_client(tmp_path: Path) -> None:
    async def play() -> None:
        (tmp_path / "tokens.json").write_text("nonsense")
        door = Door(Tokens(tmp_path / "tokens.json"))
        async with serving(tmp_path, door=door) as served:
            problem = check(await served.http.get("/v1/topics"), 503, "unavailable")
            assert "tokens.json" not in problem["detail"]  # which is for the log
            assert (await served.http.get("/livez")).status_code == 200

    asyncio.run(play())


def test_foreign_host_header_is_refused_without_a_token(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        async with serving(tmp_path, door=Door(tokens)) as served:
            for host in ("localhost", "127.0.0.1:7480", "[::1]:7480", "[::1]", "127.0.0.1"):
                answer = await served.http.get("/v1/topics", headers={"host": host})
                assert answer.status_code == 200, host
            for host in ("evil.test", "evil.test:7480", "localhost.evil.test", "10.0.0.1"):
                answer = await served.http.get("/v1/topics", headers={"host": host})
                check(answer, 421, "wrong_host")
            right = {"authorization": f"Bearer {tokens.create('x')}", "host": "evil.test"}
            assert (await served.http.get("/v1/topics", headers=right)).status_code == 200

    asyncio.run(play())


def test_host_name_is_checked_at_every_address_without_a_token() -> None:
    door = Door(allowed_hosts=["node-1"])
    for host in ("10.0.0.5:7480", "node-1:7480", "localhost"):
        assert door.host_problem(host, "10.0.0.5") is None
    assert door.host_problem("evil.test", "10.0.0.5") is not None
    required = Door(tls=ServerTls(certificate=Path(), key=Path(), client_ca=Path()))
    assert required.host_problem("node.example", "10.0.0.5") is None  # the browser checks it
    assert required.host_problem("node.example", "127.0.0.1") is not None


def test_page_of_another_site_changes_nothing(tmp_path: Path) -> None:
    """Changes without a body are the ones that a browser sends without a preflight request."""

    async def play() -> None:
        async with serving(tmp_path) as served:
            await served.create_topic("t")
            await served.http.post("/v1/topics/t/pause", json={})
            for origin in ("https://evil.test", "null", "http://127.0.0.1:1"):
                for path in ("/v1/topics/t/resume", "/v1/schedules/s/pause"):
                    answer = await served.http.post(path, headers={"origin": origin})
                    check(answer, 421, "wrong_host")
            assert "pause" in (await served.http.get("/v1/topics/t")).json()
            own = {"origin": served.url}
            answer = await served.http.post("/v1/topics/t/resume", headers=own)
            assert answer.status_code == 200

    asyncio.run(play())


def test_https_works_with_a_certificate(tmp_path: Path) -> None:
    async def play() -> None:
        certificate, key = make_certificate(tmp_path)
        tls = ServerTls(certificate=certificate, key=key)
        async with serving(tmp_path, door=Door(tls=tls)) as served:
            trusting = ssl.create_default_context(cafile=str(tls.certificate))
            url = f"https://127.0.0.1:{served.port}"
            async with httpx.AsyncClient(base_url=url, verify=trusting) as http:
                assert (await http.get("/v1/topics")).json() == {"topics": []}
            with pytest.raises(httpx.HTTPError):
                await served.http.get("/livez")  # without it

    asyncio.run(play())


def test_taken_address_and_bad_certificate_fail_the_start(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            with open_store("memory:") as store:
                at = ("127.0.0.1", 0)
                taken = ("127.0.0.1", served.port)
                with pytest.raises(InvalidInput, match="HTTP cannot listen at"):
                    await BrokerService(store, grpc_address=at, http_address=taken).start()
                missing = ServerTls(certificate=tmp_path / "no.pem", key=tmp_path / "no.pem")
                with pytest.raises(InvalidInput, match=r"no\.pem"):
                    await BrokerService(store, grpc_address=at, door=Door(tls=missing)).start()

    asyncio.run(play())


def test_http_is_off_without_an_address(tmp_path: Path) -> None:
    async def play() -> None:
        with open_store("memory:") as store:
            async with BrokerService(store, grpc_address=("127.0.0.1", 0)) as node:
                assert node.http is None

    asyncio.run(play())
