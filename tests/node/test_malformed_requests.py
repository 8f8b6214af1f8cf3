"""Requests of odd forms, at both servers of HTTP: refused, with few lines in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chronoline.console.app import Console
from chronoline.node.timer_service import ServiceOptions, TimerService
from tests.broker.http.served import Served, serving
from tests.deadline import run_scene, until

_TIMER = (
    b'{"timing":{"interval":3600},"callback":{"http":{"uri":"http://127.0.0.1:9/","opaque":""}}}'
)
_TOPIC = b'{"name": "t"}'
_HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
_PLACES = {"http": (b"/v1/topics", _TOPIC), "timers": (b"/timers", _TIMER)}
FORMS = {
    "length and chunked": b"content-length: %d\r\ntransfer-encoding: chunked\r\n",
    "chunked and length": b"transfer-encoding: chunked\r\ncontent-length: %d\r\n",
    "two tokens": b"authorization: Bearer a\r\nauthorization: Bearer b\r\ncontent-length: %d\r\n",
    "two hosts": b"host: localhost\r\ncontent-length: %d\r\n",
    "two lengths": b"content-length: %d\r\ncontent-length: 1\r\n",
    "gzip and chunked": b"transfer-encoding: gzip, chunked\r\nx: %d\r\n",
}


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[tuple[Served, dict[str, int]]]:
    async with (
        serving(folder, console=Console) as served,
        TimerService(ServiceOptions(port=0, data=folder)) as timers,
    ):
        yield served, {"http": served.port, "timers": timers.port}


async def _answer(port: int, sent: bytes) -> bytes:
    """The first line of the answer, at whose end the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n")[0]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("server", _PLACES)
def test_request_with_two_readings_is_refused(tmp_path: Path, server: str, form: str) -> None:
    async def scene() -> None:
        async with _servers(tmp_path) as (served, ports):
            path, body = _PLACES[server]
            headers = FORMS[form] % len(body)
            if b"transfer-encoding" in headers:
                body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            sent = _HEAD % path + headers + b"\r\n" + body
            assert (await _answer(ports[server], sent)).split()[1] == b"400"
            assert (await served.http.get("/v1/topics")).json() == {"topics": []}

    run_scene(scene)


@pytest.mark.parametrize("server", _PLACES)
def test_malformed_requests_share_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, server: str
) -> None:
    async def scene() -> None:
        async with _servers(tmp_path) as (_, ports):
            for _ in range(100):
                answer = await _answer(ports[server], b"GET / HTTP/1.1\r\na secret\r\n\r\n")
                assert answer.split()[1] == b"400"

    with caplog.at_level(logging.INFO):
        run_scene(scene)
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert {vars(line)["action"] for line in lines} == {"malformed_request"}
    assert len(lines) < 50  # one a second
    assert "secret" not in caplog.text


@pytest.mark.parametrize("path", [b"/console/topics", b"/v1/topics"])
@pytest.mark.parametrize("size_bytes", [100, 1_000_000])
def test_client_that_leaves_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: bytes, size_bytes: int
) -> None:
    async def scene() -> None:
        async with _servers(tmp_path) as (served, ports):
            assert served.node.parts is not None
            admission = served.node.parts.admission
            _, writer = await asyncio.open_connection("127.0.0.1", ports["http"])
            writer.write(_HEAD % path + b"content-length: %d\r\n\r\nx" % size_bytes)
            await until(lambda: admission.under_way_bytes > 0)
            writer.transport.abort()
            await until(lambda: admission.under_way_bytes == 0)

    with caplog.at_level(logging.INFO):
        run_scene(scene)
    assert "Traceback" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
