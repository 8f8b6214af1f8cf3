"""`traceparent` from the sender to the handler: with OpenTelemetry, with a fake of it, and without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import pytest

from chronoline.client import trace_context
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.leases import AsyncLease
from chronoline.client.sync import Lease
from chronoline.client.worker import Worker
from chronoline.core.message import Header

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_current: ContextVar[dict[str, str]] = ContextVar("current")


class _Propagator:
    """A fake of OpenTelemetry's propagation: writes the current context to a carrier and reads it."""

    def inject(self, carrier: dict[str, str]) -> None:
        carrier |= _current.get({})

    def extract(self, carrier: dict[str, str]) -> dict[str, str]:
        return dict(carrier)


def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, dict[str, Any]] = {
        "opentelemetry": {},
        "opentelemetry.trace": {},
        "opentelemetry.trace.propagation": {},
        "opentelemetry.trace.propagation.tracecontext": {
            "TraceContextTextMapPropagator": _Propagator
        },
        "opentelemetry.context": {"attach": _current.set, "detach": _current.reset},
    }
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


def _remove(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.fixture(params=["made up", "absent"])
def telemetry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether OpenTelemetry is installed."""
    there = request.param == "made up"
    (_fake if there else _remove)(monkeypatch)
    # The module is looked up once per process; each test needs a new lookup.
    trace_context._telemetry.cache_clear()
    yield there
    trace_context._telemetry.cache_clear()


@pytest.fixture
def span() -> Iterator[None]:
    token = _current.set({"traceparent": _PARENT, "tracestate": "a=b"})
    yield
    _current.reset(token)


async def _sent(address: str, *messages: ToSend) -> list[tuple[Header, ...]]:
    """The headers with which they come."""
    async with AsyncClient(address) as client:
        await client.create_topic("t")
        await client.send_many("t", messages)
        leases = client.consume("t")
        came = [await anext(leases) for _ in messages]
        await leases.aclose()
        return [each.headers for each in sorted(came, key=lambda each: each.id)]


@pytest.mark.usefixtures("span")
def test_current_span_is_sent(chronoline_broker: str, telemetry: bool) -> None:
    (headers,) = asyncio.run(_sent(chronoline_broker, ToSend(headers={"a": "b"})))
    span = (("traceparent", _PARENT.encode()), ("tracestate", b"a=b"))
    assert headers == (("a", b"b"), *(span if telemetry else ()))


@pytest.mark.usefixtures("span")
def test_given_traceparent_is_kept(chronoline_broker: str, telemetry: bool) -> None:
    given = {"traceparent": "mine"}
    (headers,) = asyncio.run(_sent(chronoline_broker, ToSend(headers=given)))
    assert headers == (("traceparent", b"mine"),), telemetry


def test_no_span_adds_no_header(chronoline_broker: str, telemetry: bool) -> None:
    (headers,) = asyncio.run(_sent(chronoline_broker, ToSend()))
    assert headers == (), telemetry


def test_handler_runs_in_the_trace_of_its_message(chronoline_broker: str, telemetry: bool) -> None:
    async def play() -> None:
        async with AsyncClient() as client:
            for topic in ("plain", "awaited"):
                await client.create_topic(topic)
                await client.send(topic, headers={"traceparent": _PARENT})
                await client.send(topic)
            async with asyncio.timeout(60):
                await worker.serve()

    def note(lease: AsyncLease | Lease) -> None:
        seen.append((lease.topic, lease.traceparent, _current.get({}).get("traceparent")))
        if len(seen) == 4:
            worker.stop()

    seen: list[tuple[str, str | None, str | None]] = []
    worker = Worker(chronoline_broker)

    @worker.handler("plain")
    def plain(lease: Lease) -> None:
        note(lease)

    @worker.handler("awaited")
    async def awaited(lease: AsyncLease) -> None:
        note(lease)

    asyncio.run(play())
    current = _PARENT if telemetry else None
    assert sorted(seen, key=str) == sorted(
        [
            (topic, each, each and current)
            for topic in ("plain", "awaited")
            for each in (_PARENT, None)
        ],
        key=str,
    )
    assert _current.get({}) == {}


def test_opentelemetry_is_not_imported_by_chronoline(monkeypatch: pytest.MonkeyPatch) -> None:
    _remove(monkeypatch)
    trace_context._telemetry.cache_clear()
    assert trace_context.traced((("a", b"b"),)) == (("a", b"b"),)
    assert trace_context._telemetry.cache_info().misses == 0


def test_real_opentelemetry_propagates_the_trace(chronoline_broker: str) -> None:
    trace: Any = pytest.importorskip(
        "opentelemetry.trace",
        reason="OpenTelemetry is NOT tested: opentelemetry-api is not installed",
    )
    trace_context._telemetry.cache_clear()
    ids = int(_PARENT[3:35], 16), int(_PARENT[36:52], 16)
    sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    context = trace.SpanContext(*ids, is_remote=False, trace_flags=sampled)

    async def play() -> None:
        async with AsyncClient() as client:
            await client.create_topic("t")
            with trace.use_span(trace.NonRecordingSpan(context)):
                await client.send("t")
            async with asyncio.timeout(60):
                await worker.serve()

    worker = Worker(chronoline_broker)
    seen = []

    @worker.handler("t")
    def work(lease: Lease) -> None:
        seen.append((lease.traceparent, trace.get_current_span().get_span_context().trace_id))
        worker.stop()

    asyncio.run(play())
    assert seen == [(_PARENT, ids[0])]
