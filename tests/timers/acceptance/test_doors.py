"""A cluster behind TLS and tokens: clients and other nodes show one, or stay outside."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chronoline.broker.tokens import Tokens
from chronoline.node.local_nodes import TimerNodes
from chronoline.runtime.child_process import free_addresses
from chronoline.timers.http_client import TimersNode
from tests.certificates import make_certificate
from tests.deadline import run_scene, until
from tests.timers.acceptance.processes import ids_kept_by
from tests.timers.scene import Answered, receiving, timer

_TOKEN = "CHRONOLINE_NODE_REPLICATION__TOKEN"


class _Guarded(TimerNodes):
    """Three nodes, of which the last shows the others a token that they do not know."""

    def __init__(self, folder: Path) -> None:
        self.names = free_addresses(3)
        self._certificate, self._key = make_certificate(folder)
        self.trust = ssl.create_default_context(cafile=self._certificate)
        self.tokens = folder / "tokens.json"
        self.token = Tokens(self.tokens).create("cluster")
        super().__init__(folder, client=TimersNode("", self.token, self.trust))

    def start_all(self) -> None:
        settings = [
            f"tls_certificate={self._certificate}",
            f"tls_key={self._key}",
            f"replication.ca={self._certificate}",
            "callbacks.allow=127.0.0.0/8",  # with tokens there is no default
        ]
        self.write(self.names)
        for name in self.names:
            self.data(name).mkdir()
            shutil.copy(self.tokens, self.data(name))
            shown = "wrong" if name == self.names[2] else self.token
            self.launch(name, settings=settings, environment={_TOKEN: shown})
        self.await_ready(*self.names)

    async def send(
        self, node: str, method: str, path: str, body: Any = None, *, token: str | None = None
    ) -> Answered:
        """As a client that has a token, or another, or an empty one for none."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"https://{node}{path}", json=body, headers=headers, ssl=self.trust
            ) as response,
        ):
            return Answered(response.status, dict(response.headers), await response.read())

    async def is_away(self, node: str, seen_by: str) -> bool:
        seen = (await self.send(seen_by, "GET", "/v1/nodes")).json["nodes"]
        return any(each["address"] == node and each["is_away"] for each in seen)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Guarded]:
    with _Guarded(tmp_path_factory.mktemp("guarded")) as guarded:
        guarded.start_all()
        yield guarded


def _path(kept_by: list[str], names: list[str]) -> str:
    return f"/timers/{next(ids_kept_by(kept_by, names)):016x}-2"


def test_only_requests_with_the_token_are_served(nodes: _Guarded) -> None:
    first, second, _ = nodes.names

    async def scene() -> None:
        async with receiving() as receiver:
            path = _path([first, second], nodes.names)
            for token in ("", "wrong"):
                for node, method, to in [
                    (first, "PUT", path),
                    (second, "DELETE", path),
                    (first, "GET", "/v1/timers"),
                    (first, "GET", f"/cluster/records?for={second}"),
                    (first, "GET", "/metrics"),
                ]:
                    body = timer(receiver.uri) if method == "PUT" else None
                    answer = await nodes.send(node, method, to, body, token=token)
                    assert answer.status == 401
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert (await nodes.send(first, "GET", "/ping", token="")).body == b"OK"
            answer = await nodes.send(second, "PUT", path, timer(receiver.uri, interval_ms=300))
            assert (answer.status, answer.headers["X-Copies"]) == (200, "2/2")
            await receiver.count(1)
            assert all("Authorization" not in pop.headers for pop in receiver.popped)

    run_scene(scene)


def test_node_with_an_unknown_token_is_refused(nodes: _Guarded) -> None:
    first, second, wrong = nodes.names
    body = timer("http://127.0.0.1:9/", interval_ms=3_600_000)

    async def scene() -> None:
        answer = await nodes.send(wrong, "PUT", _path([first, second], nodes.names), body)
        assert answer.status == 503
        answer = await nodes.send(wrong, "PUT", _path([wrong, first], nodes.names), body)
        assert (answer.status, answer.headers["X-Copies"]) == (200, "1/2")
        assert await nodes.is_away(first, seen_by=wrong)
        # The others have a token that it knows.
        answer = await nodes.send(first, "PUT", _path([wrong, second], nodes.names), body)
        assert (answer.status, answer.headers["X-Copies"]) == (200, "2/2")

    run_scene(scene)


def test_unreadable_tokens_refuse_all_requests(nodes: _Guarded) -> None:
    first, second, _ = nodes.names
    file = nodes.data(first) / "tokens.json"
    kept = file.read_text()
    body = timer("http://127.0.0.1:9/", interval_ms=3_600_000)

    async def scene() -> None:
        file.write_text("{")
        path = _path([first, second], nodes.names)
        assert (await nodes.send(first, "PUT", path, body)).status == 503
        answer = await nodes.send(second, "PUT", path, body)
        assert (answer.status, answer.headers["X-Copies"]) == (200, "1/2")
        file.write_text(kept)
        await until(partial(_is_waiting, nodes, first, path))

    run_scene(scene)


async def _is_waiting(nodes: _Guarded, node: str, path: str) -> bool:
    return (await nodes.send(node, "GET", f"/v1{path}")).status == 200
