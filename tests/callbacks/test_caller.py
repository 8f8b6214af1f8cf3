"""Calls to a real server on loopback that answers well, badly, slowly, or never ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronoline.callbacks.address_guard import LOOPBACK, AddressGuard
from chronoline.callbacks.caller import (
    Answer,
    Caller,
    CallLimits,
    Lookup,
    Verdict,
    endpoint_of,
)
from chronoline.core.callback_url import parse_callback_url
from chronoline.core.errors import InvalidInput
from chronoline.runtime.descriptors import SHORTAGES
from tests.deadline import run_scene, until
from tests.descriptors import no_descriptors

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def answers_with(*addresses: str) -> Lookup:
    async def look_up(_: str, __: int) -> list[str]:
        return list(addresses)

    return look_up


def test_request_arrives_as_sent() -> None:
    async def scene() -> None:
        got = []

        async def handle(request: web.BaseRequest) -> web.Response:
            got.append((request.method, request.path_qs, request.headers, await request.read()))
            return web.Response(status=202)

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            uri = f"http://localhost:{port}/pop/%2Fraw?x=%20"
            answer = await caller.post(uri, b"hello", {"X-Sequence-Number": "1"})
        assert answer.verdict is Verdict.succeeded
        ((method, path, headers, body),) = got
        assert (method, path, body) == ("POST", "/pop/%2Fraw?x=%20", b"hello")
        assert headers["X-Sequence-Number"] == "1"
        assert headers["Host"] == f"localhost:{port}"
        assert headers["Content-Length"] == "5"

    run_scene(scene)


def test_stopped_caller_opens_no_session() -> None:
    async def scene() -> None:
        async with Caller(AddressGuard(LOOPBACK)) as caller:
            pass
        with pytest.raises(RuntimeError, match="stopped"):
            await caller.open()

    run_scene(scene)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, Verdict.succeeded),
        (299, Verdict.succeeded),
        (302, Verdict.redirected),
        (404, Verdict.answered_badly),
        (500, Verdict.answered_badly),
        (503, Verdict.answered_badly),
    ],
)
def test_only_2xx_is_success(status: int, verdict: Verdict) -> None:
    async def scene() -> None:
        asked = []

        async def handle(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return web.Response(status=status, headers={"Location": "/elsewhere"})

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            answer = await caller.post(f"http://127.0.0.1:{port}/", b"", {})
        assert answer.verdict is verdict
        assert asked == ["/"]

    run_scene(scene)


def test_silent_server_times_out() -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def handle(_: web.BaseRequest) -> web.Response:
            await done.wait()
            return web.Response()

        limits = CallLimits(timeout_ms=100)
        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK), limits=limits) as caller:
            answer = await caller.post(f"http://127.0.0.1:{port}/", b"", {})
            done.set()
        assert answer.verdict is Verdict.timed_out

    run_scene(scene)


def test_answer_is_read_after_this_process_stood_still() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        time = loop.time

        async def handle(_: web.BaseRequest) -> web.Response:
            loop.time = lambda: time() + 30  # type: ignore[method-assign]  # the process stood still
            return web.Response()

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            answer = await caller.post(f"http://127.0.0.1:{port}/", b"", {})
        assert answer.verdict is Verdict.succeeded

    run_scene(scene)


def test_an_answer_that_never_ends_counts_by_its_status() -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            while not done.is_set():
                await response.write(b"x" * 1_000)
                await asyncio.sleep(0.01)  # so that it goes on and on
            return response

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            answers = [await caller.post(f"http://127.0.0.1:{port}/", b"", {}) for _ in range(3)]
            done.set()
        assert [answer.verdict for answer in answers] == [Verdict.succeeded] * 3

    run_scene(scene)


def test_closed_port_and_unknown_host_differ() -> None:
    async def scene() -> None:
        async def handle(_: web.BaseRequest) -> web.Response:
            return web.Response()

        async with serving(handle) as port:
            pass
        async with Caller(AddressGuard(LOOPBACK)) as caller:
            closed = await caller.post(f"http://127.0.0.1:{port}/", b"", {})
            unknown = await caller.post("http://nobody.invalid/", b"", {})
        assert closed.verdict is Verdict.unreachable
        assert unknown.verdict is Verdict.unknown_host

    run_scene(scene)


def test_name_of_an_internal_address_is_refused() -> None:
    """Also a name that changes: every call looks it up, and connects to the checked address."""

    async def scene() -> None:
        asked = []

        async def handle(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return web.Response()

        async with (
            serving(handle) as port,
            Caller(AddressGuard(), lookup=answers_with("127.0.0.1", "10.0.0.1")) as caller,
        ):
            answer = await caller.post(f"http://innocent.example:{port}/", b"", {})
        assert answer.verdict is Verdict.not_allowed
        assert "callbacks.allow" in answer.reason
        assert asked == []

    run_scene(scene)


def test_the_next_attempt_goes_to_the_next_address() -> None:
    async def scene() -> None:
        async def broken(_: web.BaseRequest) -> web.Response:
            return web.Response(status=500)

        async def healthy(_: web.BaseRequest) -> web.Response:
            return web.Response()

        async with serving(broken, "127.0.0.1") as port, serving(healthy, "127.0.0.2", port):
            lookup = answers_with("127.0.0.1", "127.0.0.2")
            async with Caller(AddressGuard(LOOPBACK), lookup=lookup) as caller:
                uri = f"http://cluster.example:{port}/"
                verdicts = [(await caller.post(uri, b"", {}, attempt=n)).verdict for n in range(3)]
        assert verdicts == [Verdict.answered_badly, Verdict.succeeded, Verdict.answered_badly]

    run_scene(scene)


def test_a_slow_server_delays_no_other() -> None:
    async def scene() -> None:
        done = asyncio.Event()
        taken = asyncio.Event()
        under_way = most = 0

        async def slow(_: web.BaseRequest) -> web.Response:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == 3:
                taken.set()
            await done.wait()
            under_way -= 1
            return web.Response()

        async def quick(_: web.BaseRequest) -> web.Response:
            return web.Response()

        limits = CallLimits(for_each_host=3, timeout_ms=20_000)
        async with (
            serving(slow) as slow_port,
            serving(quick) as quick_port,
            Caller(AddressGuard(LOOPBACK), limits=limits) as caller,
        ):
            waiting = [
                asyncio.create_task(caller.post(f"http://127.0.0.1:{slow_port}/", b"", {}))
                for _ in range(10)
            ]
            await taken.wait()
            answer = await caller.post(f"http://127.0.0.1:{quick_port}/", b"", {})
            assert answer.succeeded
            assert not any(task.done() for task in waiting)
            done.set()
            assert all(answer.succeeded for answer in await asyncio.gather(*waiting))
        assert most == 3

    run_scene(scene)


def test_call_without_a_turn_is_not_begun() -> None:
    async def scene() -> None:
        done, taken = asyncio.Event(), asyncio.Event()
        asked = []

        async def slow(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            taken.set()
            await done.wait()
            return web.Response()

        limits = CallLimits(for_each_host=1, timeout_ms=60_000)
        async with serving(slow) as port, Caller(AddressGuard(LOOPBACK), limits=limits) as caller:
            uri = f"http://127.0.0.1:{port}"
            first = asyncio.create_task(caller.post(f"{uri}/first", b"", {}))
            await taken.wait()
            second = await caller.post(f"{uri}/second", b"", {}, turn_within_s=0.01)
            assert second.verdict is Verdict.no_turn
            unwanted = asyncio.create_task(
                caller.post(f"{uri}/unwanted", b"", {}, may_begin=lambda: False)
            )
            done.set()
            assert (await unwanted).verdict is Verdict.no_turn
            assert (await first).succeeded
            assert (await caller.post(f"{uri}/third", b"", {}, turn_within_s=30)).succeeded
        assert asked == ["/first", "/third"]

    run_scene(scene)


def test_call_cancelled_during_lookup_is_not_made() -> None:
    async def scene() -> None:
        asked = []
        wanted = True

        async def handle(request: web.BaseRequest) -> web.Response:
            asked.append(request.path)
            return web.Response()

        async def look_up(_: str, __: int) -> list[str]:
            nonlocal wanted
            wanted = False
            return ["127.0.0.1"]

        async with (
            serving(handle) as port,
            Caller(AddressGuard(LOOPBACK), lookup=look_up) as caller,
        ):
            uri = f"http://slow.example:{port}/"
            answer = await caller.post(uri, b"", {}, may_begin=lambda: wanted)
        assert answer.verdict is Verdict.no_turn
        assert asked == []

    run_scene(scene)


@pytest.mark.parametrize("size_bytes", [0, 64 * 1024, 64 * 1024 + 1, 3 * 1024 * 1024])
def test_bodies_of_any_size_arrive(size_bytes: int) -> None:
    async def scene() -> None:
        got = []

        async def handle(request: web.BaseRequest) -> web.Response:
            body = b"".join([each async for each in request.content.iter_any()])
            got.append((request.headers["Content-Length"], request.content_type, body))
            return web.Response()

        body = bytes(size_bytes)
        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            uri = f"http://127.0.0.1:{port}/"
            assert (await caller.post(uri, body, {"Content-Type": "text/x"})).succeeded
        assert got == [(str(size_bytes), "text/x", body)]

    run_scene(scene)


# Shortages of our own


def test_call_waits_for_a_free_descriptor() -> None:
    async def scene() -> None:
        async def handle(_: web.BaseRequest) -> web.Response:
            return web.Response()

        asked = 0

        def may_begin() -> bool:
            nonlocal asked
            asked += 1
            return True

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK), rest_s=0.01) as caller:
            uri = f"http://127.0.0.1:{port}/"
            with no_descriptors():
                posting = asyncio.create_task(caller.post(uri, b"", {}, may_begin=may_begin))
                await until(lambda: asked > 2)
                assert not posting.done()
            assert (await posting).verdict is Verdict.succeeded
            assert SHORTAGES.counted["descriptors"] > 1

    run_scene(scene)


def test_call_gives_up_waiting_for_a_descriptor() -> None:
    async def scene() -> None:
        wanted = iter([True, False])
        async with Caller(AddressGuard(LOOPBACK), rest_s=0.01) as caller:
            with no_descriptors():
                late = await caller.post("http://127.0.0.1:9/", b"", {}, turn_within_s=0.05)
                dropped = await caller.post(
                    "http://127.0.0.1:9/", b"", {}, may_begin=lambda: next(wanted)
                )
        assert (late.verdict, late.reason) == (
            Verdict.no_turn,
            "the node is short of descriptors",
        )
        assert (dropped.verdict, dropped.reason) == (Verdict.no_turn, "it is not wanted any more")

    run_scene(scene)


def test_lookup_waits_for_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    failed: list[threading.Thread] = []

    def start_at_the_third(thread: threading.Thread) -> None:
        if thread.name == "chronoline-lookup" and len(failed) < 2:
            failed.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    async def scene() -> None:
        async def handle(_: web.BaseRequest) -> web.Response:
            return web.Response()

        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK), rest_s=0.01) as caller:
            monkeypatch.setattr(threading.Thread, "start", start_at_the_third)
            answer = await caller.post(f"http://localhost:{port}/", b"", {})
        assert answer.verdict is Verdict.succeeded
        assert len(failed) == 2

    run_scene(scene)


_HOST_TEXT = st.text(st.sampled_from("aAz09.-_xn[]:%@é\\"), max_size=12) | st.sampled_from(
    ["xn--a", "xn--", "a.xn--zz.b", "a..b", "a" * 64, "[::1]", "[::1", "0x7f.1", "[::1]x", "user@x"]
)
_ENDING = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F), max_size=12)
_TEXTS = st.one_of(
    st.builds("http://{}:PORT/{}".format, _HOST_TEXT, _ENDING),
    st.builds(
        "{}://{}{}".format, st.sampled_from(["http", "HTTP", "ftp", ""]), _HOST_TEXT, _ENDING
    ),
    st.text(max_size=20),
)


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(_TEXTS, min_size=20, max_size=20))
@example(texts=["http://xn--a:PORT/", "http://[::1", "http://xn--a/", "http://:PORT/"])
def test_every_accepted_url_is_called_as_it_was_accepted(texts: list[str]) -> None:
    async def scene() -> None:
        asked: list[tuple[str, str]] = []

        async def handle(request: web.BaseRequest) -> web.Response:
            asked.append((request.raw_path, request.headers["Host"]))
            return web.Response()

        look_up = answers_with("127.0.0.1")
        guard = AddressGuard(LOOPBACK)
        async with serving(handle) as port, Caller(guard, lookup=look_up) as caller:
            for text in texts:
                uri = text.replace("PORT", str(port))
                answer = await caller.post(uri, b"", {})
                try:
                    url = parse_callback_url(uri)
                except InvalidInput:
                    assert answer.verdict is Verdict.failed
                    continue
                assert answer.verdict is not Verdict.failed
                assert endpoint_of(uri) == (url.host, url.port)
                if (url.scheme, url.port) == ("http", port):
                    path = f"{url.path}?{url.query}" if url.query else url.path
                    assert answer.verdict is Verdict.succeeded
                    assert asked.pop() == (path, url.authority)
        assert not asked

    run_scene(scene)


def test_error_of_one_call_is_its_answer() -> None:
    def raises() -> bool:
        raise LookupError("of this call alone")

    async def handle(_: web.BaseRequest) -> web.Response:
        return web.Response()

    async def scene() -> None:
        async with serving(handle) as port, Caller(AddressGuard(LOOPBACK)) as caller:
            uri = f"http://127.0.0.1:{port}/"
            failed = await caller.post(uri, b"", {}, may_begin=raises)
            assert failed == Answer(Verdict.failed, "LookupError: of this call alone")
            assert (await caller.post(uri, b"", {})).succeeded

    run_scene(scene)


def test_international_name_is_looked_up_as_it_is_written() -> None:
    async def scene() -> None:
        asked = []

        async def look_up(host: str, _: int) -> list[str]:
            asked.append(host)
            return ["127.0.0.1"]

        async with Caller(AddressGuard(), lookup=look_up) as caller:
            await caller.post("http://xn--strae-oqa.example/", b"", {})
        assert asked == ["xn--strae-oqa.example"]  # decoded and encoded again it were strasse

    run_scene(scene)
