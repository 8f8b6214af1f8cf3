"""Access to the console: tokens, sessions, forms and headers."""

from __future__ import annotations

import asyncio
import re
import time
from html import unescape
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from chronoline.broker.auth import Door
from chronoline.broker.degradation import Degradation, Degradations, DegradationType
from chronoline.broker.http.console_mount import Edge
from chronoline.broker.tokens import Tokens
from chronoline.console import overview
from chronoline.console.app import Console
from chronoline.console.sessions import BrowserSessions, cookie_name
from chronoline.core.rights import Rights
from chronoline.log.log import Log
from tests.broker.http.served import serving
from tests.console.visitor import SECRET, Visitor, visiting
from tests.deadline import until
from tests.unsent_bodies import ask_without_body

_SIGN_IN = "This node asks for a token"
_ACTION = re.compile(r'action="([^"]+)" class="card narrow"')


def _door(folder: Path, **rights: str) -> tuple[Door, dict[str, str]]:
    tokens = Tokens(folder / "tokens.json")
    made = {name: tokens.create(name, Rights.parse(each.split())) for name, each in rights.items()}
    return Door(tokens), made


async def _sign_in(visitor: Visitor, token: str, status: int = 200) -> str:
    await visitor.get("/sign-in")
    return await visitor.post("/sign-in", status, token=token)


def test_every_page_asks_for_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        door, _ = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            for path in (
                "/",
                "/topics",
                "/topics/a",
                "/topics/a/messages/b",
                "/topics/a/forecast.json",
                "/live",
                "/pipes",
                "/logs",
                "/timers",
            ):
                assert _SIGN_IN in await visitor.get(path), path
            for path in ("/topics", "/topics/a/messages/b/cancel", "/topics/a/dead/b/redrive"):
                assert _SIGN_IN in await visitor.post(path, name="x"), path
            assert "Lateness" not in await visitor.get("/")

    asyncio.run(play())
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_token_opens_what_it_opens_for_programs(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(
            tmp_path, grafana="observe:orders", shop="produce:orders:shop", ops="administer"
        )
        async with visiting(tmp_path, door=door) as (served, visitor):
            admin = {"authorization": f"Bearer {tokens['ops']}"}
            for name in ("orders", "mails"):
                await served.http.post("/v1/topics", json={"name": name}, headers=admin)
            sent = {"in": "1h", "body": "a secret", "producer_group": "shop"}
            await served.http.put(
                "/v1/topics/orders/messages/u1",
                json=sent,
                headers={"authorization": f"Bearer {tokens['shop']}"},
            )

            assert "not known here" in await _sign_in(visitor, "wrong", 401)
            await _sign_in(visitor, tokens["grafana"])
            listed = await visitor.get("/topics")
            assert "orders" in listed
            assert "mails" not in listed
            await visitor.get("/topics/mails", 403)
            message = await visitor.get("/topics/orders/messages/u1")
            assert "a secret" not in message
            assert "/cancel" not in message
            page = await visitor.post("/topics/orders/messages/u1/cancel", 403)
            assert "the right produce:orders" in page  # refused, with the right that is missing
            assert "the right administer" in await visitor.post("/topics", 403, name="more")

            await _sign_in(visitor, tokens["shop"])
            overview = await visitor.get("/")
            assert "may not see the brokers" in overview
            assert "of topics you may observe" in overview
            assert "give the group" in await visitor.get("/topics/orders/messages")
            assert ">u1</a>" in await visitor.get("/topics/orders/messages?group=shop")
            await visitor.get("/topics/orders/messages?group=other", 403)
            assert "a secret" in await visitor.get("/topics/orders/messages/u1")
            assert "was cancelled" in await visitor.post("/topics/orders/messages/u1/cancel")

    asyncio.run(play())


def test_form_is_not_read_before_rights(tmp_path: Path) -> None:
    made: list[Console] = []

    def new_console(edge: Edge) -> Console:
        made.append(Console(edge))
        return made[0]

    async def play() -> None:
        door, tokens = _door(
            tmp_path, grafana="observe", ops="administer", mails="administer:mails produce:mails"
        )
        async with (
            serving(tmp_path, door=door, console=new_console) as served,
            httpx.AsyncClient(base_url=served.url, follow_redirects=True) as browser,
        ):
            admin = {"authorization": f"Bearer {tokens['ops']}"}
            await served.http.post("/v1/topics", json={"name": "orders"}, headers=admin)
            app = made[0].app
            assert isinstance(app, Starlette)
            forms = {
                route.path.format(topic="orders", id="a", schedule="s")
                for route in app.routes
                if isinstance(route, Route) and "POST" in (route.methods or ())
            } - {"/sign-in", "/sign-out"}
            assert len(forms) > 8
            for path in forms:
                visitor = Visitor(browser)
                is_of_topic = path.startswith("/topics/")
                await _sign_in(visitor, tokens["mails" if is_of_topic else "grafana"])
                status = await ask_without_body(
                    served.port,
                    "POST",
                    f"/console{path}",
                    host=f"127.0.0.1:{served.port}",
                    cookie="=".join(visitor.cookie),
                )
                assert status == HTTPStatus.FORBIDDEN, path

    asyncio.run(play())


def test_token_without_a_topic_sees_nothing_of_the_node(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(
            tmp_path,
            chimes="timers node",
            shop="produce:mails:shop",
            ops="administer produce consume",
        )
        async with visiting(tmp_path, door=door) as (served, visitor):
            admin = {"authorization": f"Bearer {tokens['ops']}"}
            for name in ("orders", "mails"):
                await served.http.post("/v1/topics", json={"name": name}, headers=admin)
            url = "/v1/topics/orders"
            await served.http.put(f"{url}/messages/a", json={}, headers=admin)
            asked = {"consumer": "c", "wait": "10s"}
            poll = await served.http.post(f"{url}/receive", json=asked, headers=admin)
            assert len(poll.json()["messages"]) == 1
            assert served.node.parts is not None
            version = served.node.parts.version

            page = await _sign_in(visitor, tokens["chimes"], 403)
            assert "does not have the right to any topic" in page
            assert "Lateness" not in page
            assert version not in page
            assert "data-live" not in page
            await visitor.get("/live", 403)

            await _sign_in(visitor, tokens["shop"])
            async with visitor.http.stream("GET", "/console/live") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: {"):
                        assert '"held": 0' in line  # the lease is of another topic
                        break
            assert 'data-live-value="held">0<' in await visitor.get("/")
            await _sign_in(visitor, tokens["ops"])
            assert 'data-live-value="held">1<' in await visitor.get("/")

    asyncio.run(play())


def test_one_token_has_a_part_of_the_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No setting: it would take twenty streams.
    monkeypatch.setattr(overview, "_MOST_OF_ONE", 1)

    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer", grafana="observe")
        async with visiting(tmp_path, door=door) as (served, visitor):
            await _sign_in(visitor, tokens["ops"])
            async with visitor.http.stream("GET", "/console/live") as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == "retry: 2000"
                async with httpx.AsyncClient(base_url=served.url, follow_redirects=True) as http:
                    second = Visitor(http)
                    await _sign_in(second, tokens["ops"])
                    assert "of this token follow" in await second.get("/live", 429)
                    await _sign_in(second, tokens["grafana"])
                    async with http.stream("GET", "/console/live") as other:
                        assert other.status_code == HTTPStatus.OK

            async def is_free() -> bool:
                async with visitor.http.stream("GET", "/console/live") as again:
                    return again.status_code == HTTPStatus.OK

            await until(is_free)

    asyncio.run(play())


def test_logs_and_timers_need_a_right_to_all_topics(tmp_path: Path) -> None:
    async def play() -> None:
        with Log((tmp_path / "log").as_uri()) as log:
            log.create_topic("events", partitions=1)
            log.append("events", value=b"a secret")
        door, tokens = _door(
            tmp_path,
            team="administer:events observe:events",
            grafana="observe",
            ops="administer",
        )
        logs = {"logs": [str(tmp_path / "log")]}
        async with visiting(tmp_path, door=door, console=logs) as (_, visitor):
            await _sign_in(visitor, tokens["team"])
            for path in ("/logs", "/logs/0/events", "/timers"):
                assert "observe:*" in await visitor.get(path, 403), path
            assert "administer:*" in await visitor.get("/logs/0/events/0", 403)

            await _sign_in(visitor, tokens["grafana"])
            assert "events" in await visitor.get("/logs")
            await visitor.get("/timers")
            await visitor.get("/logs/0/events/0", 403)

            await _sign_in(visitor, tokens["ops"])
            assert "a secret" in await visitor.get("/logs/0/events/0")

    asyncio.run(play())


def test_revoked_token_ends_its_session(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        token = tokens.create("ops")
        tokens.create("other")
        async with visiting(tmp_path, door=Door(tokens)) as (_, visitor):
            await _sign_in(visitor, token)
            assert "Lateness" in await visitor.get("/")
            tokens.revoke("ops")
            assert _SIGN_IN in await visitor.get("/")

    asyncio.run(play())


def test_stranger_learns_nothing_of_the_node(tmp_path: Path) -> None:
    """Neither its version and what is wrong with it, nor notes that anyone could have made."""

    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (served, visitor):
            assert served.node.parts is not None
            lost = Degradation(DegradationType.PEERS, "the broker b2 vanished", "a broker vanished")
            served.node.parts.degradation.watch(lambda: (lost,))
            stranger = BrowserSessions(time.time, lambda _: "").stranger(is_let_in=False)
            stranger.notes.append(("done", "a forged note"))
            for notes in (stranger.notes_cookie(), "a.\xe4"):
                cookies = (("session", stranger.cookie), ("notes", notes))
                host = visitor.http.base_url.netloc
                shown = [f"{cookie_name(kind, host)}={value}" for kind, value in cookies]
                page = await visitor.http.get(
                    "/console/sign-in", headers={b"cookie": "; ".join(shown).encode("latin-1")}
                )
                assert page.status_code == 200
                for word in ("a forged note", "vanished", served.node.parts.version):
                    assert word not in page.text
            assert "vanished" in await _sign_in(visitor, tokens["ops"])

    asyncio.run(play())


def test_stranger_reads_the_public_words_of_a_degradation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Degradation(
        DegradationType.STORAGE, "no route to db7.internal:5432", "the store does not answer"
    )
    monkeypatch.setattr(Degradations, "current", (away,))

    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            page = await visitor.get("/sign-in")
            assert "the store does not answer" in page
            assert "db7" not in page
            assert "db7.internal:5432" in await _sign_in(visitor, tokens["ops"])

    asyncio.run(play())


def test_session_goes_on_at_any_node_until_its_token_is_revoked(tmp_path: Path) -> None:
    """Behind one address: each request goes to the other node, as a load balancer may have it."""

    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        token = tokens.create("ops")
        tokens.create("other")
        async with (
            visiting(tmp_path, door=Door(tokens)) as (served, one),
            visiting(tmp_path, door=Door(Tokens(tmp_path / "tokens.json"))) as (_, other),
        ):
            await served.http.post(
                "/v1/topics", json={"name": "orders"}, headers={"authorization": f"Bearer {token}"}
            )
            browser = _Balanced(one, other)
            await browser.get("/sign-in")
            assert "Lateness" in await browser.post("/sign-in", token=token)
            sent = {"id": "u1", "when": "+1h", "group": "shop"}
            await browser.get("/topics/orders/send")
            assert "was sent" in await browser.post("/topics/orders/send", **sent)
            await browser.get("/topics/orders/messages/u1/cancel")
            assert "was cancelled" in await browser.post("/topics/orders/messages/u1/cancel")
            assert "was cancelled" not in await browser.get("/topics/orders")
            tokens.revoke("ops")
            for _ in "12":
                assert _SIGN_IN in await browser.get("/")

    asyncio.run(play())


class _Balanced:
    """A browser whose requests go to one of two nodes in turn, redirects included."""

    def __init__(self, *nodes: Visitor) -> None:
        self._nodes = list(nodes)
        self._secret = ""
        self._cookies: dict[str, str] = {}

    async def get(self, path: str) -> str:
        return await self._ask("GET", f"/console{path}")

    async def post(self, path: str, **fields: str) -> str:
        return await self._ask("POST", f"/console{path}", {"form_secret": self._secret, **fields})

    async def _ask(self, method: str, path: str, form: dict[str, str] | None = None) -> str:
        self._nodes.reverse()
        node = self._nodes[0]
        node.http.cookies.clear()
        answer = await node.http.request(
            method,
            path,
            data=form,
            headers={
                "host": "console.example:7480",
                "cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items()),
            },
            follow_redirects=False,
        )
        for change in answer.headers.get_list("set-cookie"):
            name, _, value = change.partition(";")[0].partition("=")
            self._cookies[name] = value.strip('"')
        if answer.is_redirect:
            return await self._ask("GET", answer.headers["location"])
        assert answer.status_code == 200, answer.text
        self._secret = found[1] if (found := SECRET.search(answer.text)) else self._secret
        return answer.text


def test_form_of_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            await visitor.get("/topics")
            form = {"form_secret": visitor.secret, "name": "orders"}
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
                answer = await visitor.http.post(
                    "/console/topics", data=form, headers={"sec-fetch-site": site}
                )
                assert answer.status_code == status, site

    asyncio.run(play())


def test_signing_out_ends_the_session(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await _sign_in(visitor, tokens["ops"])
            cookie = visitor.cookie[1]
            await visitor.get("/")
            assert _SIGN_IN in await visitor.post("/sign-out")
            visitor.http.cookies.set(visitor.cookie[0], cookie, domain="127.0.0.1", path="/console")
            assert _SIGN_IN in await visitor.get("/")

    asyncio.run(play())


def test_signing_in_changes_the_cookie(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await visitor.get("/sign-in")
            planted = visitor.cookie[1]
            await visitor.post("/sign-in", token=tokens["ops"])
            assert visitor.cookie[1] != planted

    asyncio.run(play())


@pytest.mark.parametrize(
    "then",
    [
        "https://evil.example/",
        "//evil.example",
        "/v1/topics",
        "/console\\@evil.example",
        "/consoles",
    ],
)
def test_signing_in_leads_to_the_console_alone(tmp_path: Path, then: str) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await visitor.http.get("/console/sign-in", params={"then": then})
            await visitor.get("/sign-in")
            answer = await visitor.http.post(
                "/console/sign-in",
                params={"then": then},
                data={"form_secret": visitor.secret, "token": tokens["ops"]},
                follow_redirects=False,
            )
            assert answer.headers["location"] == "/console/"

    asyncio.run(play())


@pytest.mark.parametrize("topic", ["a/b", "50%25", "q&x=1#y", "a b"])
def test_signing_in_leads_to_the_page_that_was_asked_for(tmp_path: Path, topic: str) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await _sign_in(visitor, tokens["ops"])
            await visitor.post("/topics", name=topic)
            visitor.http.cookies.clear()
            asked = f"/console/topics/{quote(topic, safe='')}/messages?prefix=u%261"
            page = await visitor.http.get(asked)
            (action,) = _ACTION.findall(page.text)
            form = {"form_secret": SECRET.findall(page.text)[-1], "token": tokens["ops"]}
            opened = await visitor.http.post(unescape(action), data=form)
            assert opened.status_code == 200, opened.text
            assert opened.url.raw_path.decode() == asked

    asyncio.run(play())


def test_form_after_the_session_leads_back_to_its_page(tmp_path: Path) -> None:
    async def play() -> None:
        door, _ = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            for referer, then in (
                (f"{visitor.http.base_url}/console/topics/a?q=1", "/console/topics/a?q=1"),
                ("https://evil.example/x", "/x"),  # which signing in does not lead to
                ("http://[", ""),
                ("", ""),
            ):
                asked = await visitor.http.post(
                    "/console/topics/a/resume", headers={"referer": referer}, follow_redirects=False
                )
                assert asked.headers["location"] == f"/console/sign-in?then={quote(then, safe='')}"

    asyncio.run(play())


def test_form_of_another_session_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (served, visitor):
            await served.create_topic("orders")
            await served.put("u1", "orders", delay_ms=3_600_000)
            await visitor.get("/topics")
            for secret in ("", "x" * 43):
                visitor.secret = secret
                assert "another session" in await visitor.post(
                    "/topics/orders/messages/u1/cancel", 403
                )
            assert (await served.http.get("/v1/topics/orders/messages/u1")).status_code == 200

    asyncio.run(play())


def test_cookie_opens_no_route_of_programs(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await _sign_in(visitor, tokens["ops"])
            cookie = "=".join(visitor.cookie)
            answer = await visitor.http.get("/v1/topics", headers={"cookie": cookie})
            assert answer.status_code == 401

    asyncio.run(play())


def test_answers_forbid_scripts_of_others(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            page = await visitor.http.get("/console/")
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert page.headers["x-content-type-options"] == "nosniff"
            cookie = page.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "path=/console" in cookie

    asyncio.run(play())


def test_without_tokens_another_host_name_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        async with visiting(tmp_path) as (_, visitor):
            answer = await visitor.http.get("/console/", headers={"host": "evil.example"})
            assert answer.status_code == 421

    asyncio.run(play())


def test_node_without_a_console_has_none(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as served:
            assert (await served.http.get("/console/")).status_code == 404
            assert (await served.http.get("/")).status_code == 404

    asyncio.run(play())


def test_large_form_of_a_stranger_is_not_read(tmp_path: Path) -> None:
    async def play() -> None:
        door, tokens = _door(tmp_path, ops="administer")
        async with visiting(tmp_path, door=door) as (_, visitor):
            await visitor.get("/sign-in")
            text = await visitor.post("/sign-in", 413, token="x" * 17_000)
            assert "more than 16384 bytes" in text
            await _sign_in(visitor, tokens["ops"])
            assert "more than 1048576 bytes" in await visitor.post(
                "/topics", 413, name="x" * 1_049_000
            )

    asyncio.run(play())


def test_revoked_token_ends_its_stream(tmp_path: Path) -> None:
    async def play() -> None:
        tokens = Tokens(tmp_path / "tokens.json")
        token = tokens.create("ops")
        tokens.create("other")
        async with visiting(tmp_path, door=Door(tokens)) as (_, visitor):
            await _sign_in(visitor, token)
            seen: list[str] = []
            async with visitor.http.stream("GET", "/console/live") as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: {") and "ops" in tokens.names():
                        tokens.revoke("ops")
                    seen.append(line)
            assert "event: signed-out" in seen

    asyncio.run(play())
