"""One message is one trace, from its sender over the broker to its handler or its target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from chronoline.client import TopicSettings
from chronoline.client.aio import AsyncClient, ToSend
from chronoline.client.leases import AsyncLease
from chronoline.client.sync import Client, Lease
from chronoline.client.worker import Retry, Worker
from chronoline.core.errors import Refused
from chronoline.runtime.timestamps import to_ms
from tests.broker.http.served import serving
from tests.broker.nodes import running
from tests.broker.targets.receivers import answers, calling, receiving
from tests.deadline import run_scene, until

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recorded:
    """The spans that ended."""

    def __init__(self, exporter: InMemorySpanExporter, tracer: trace.Tracer) -> None:
        self._exporter = exporter
        self.tracer = tracer

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda each: each.start_time or 0)

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.spans)

    def one(self, name: str) -> ReadableSpan:
        (found,) = (each for each in self.spans if each.name == name)
        return found


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A process sets its provider once, so a test cannot set it back.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield Recorded(exporter, provider.get_tracer("test"))
    provider.shutdown()


def parents(spans: Sequence[ReadableSpan]) -> set[int | None]:
    return {each.parent.span_id if each.parent else None for each in spans}


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


async def work(worker: Worker) -> None:
    async with asyncio.timeout(60):
        await worker.serve()


def test_send_wait_and_handler_are_one_trace(chronoline_broker: str, recorded: Recorded) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.3)
    worker = Worker(chronoline_broker, consumer="c")

    @worker.handler("orders")
    async def handle(lease: AsyncLease) -> None:
        with recorded.tracer.start_as_current_span("inside"):
            worker.stop()

    async def play() -> None:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("orders")
            with recorded.tracer.start_as_current_span("request"):
                await client.send("orders", b"x", id="a", due=due)
            await work(worker)

    asyncio.run(play())
    steps = ["send", "schedule", "wait", "deliver", "process", "ack"]
    assert recorded.names == sorted([*(f"{each} orders" for each in steps), "inside", "request"])
    assert len({each.context.trace_id for each in recorded.spans if each.context}) == 1
    sent = recorded.one("send orders")
    assert parents([sent]) == {id_of(recorded.one("request"))}
    at_broker = [recorded.one(f"{each} orders") for each in ("schedule", "wait", "deliver")]
    process = recorded.one("process orders")
    ack = recorded.one("ack orders")
    assert parents([*at_broker, process, ack]) == {id_of(sent)}
    assert parents([recorded.one("inside")]) == {id_of(process)}
    kinds = {each.name.split()[0]: each.kind for each in recorded.spans}
    assert (kinds["send"], kinds["process"]) == (SpanKind.PRODUCER, SpanKind.CONSUMER)

    assert (ack.attributes or {})["messaging.operation.type"] == "settle"
    about = [dict(each.attributes or {}) for each in (sent, *at_broker, process, ack)]
    assert {each["messaging.message.id"] for each in about} == {"a"}
    assert {each["messaging.destination.name"] for each in about} == {"orders"}
    due_ms = to_ms(due)
    (moment,) = {str(each["messaging.chronoline.due"]) for each in about}
    assert to_ms(datetime.fromisoformat(moment)) == due_ms
    assert about[-1]["messaging.client.id"] == "c"
    _, wait, deliver = at_broker
    assert wait.end_time == due_ms * 1_000_000
    assert (wait.start_time or 0) < (deliver.start_time or 0) <= due_ms * 1_000_000
    assert (deliver.start_time or 0) <= (deliver.end_time or 0) <= (process.start_time or 0)
    assert all(each.status.is_ok or each.status.is_unset for each in recorded.spans)


def test_blocking_client_and_handler_are_in_the_trace(
    chronoline_broker: str, recorded: Recorded
) -> None:
    worker = Worker(chronoline_broker)

    @worker.handler("t")
    def handle(lease: Lease) -> None:
        with recorded.tracer.start_as_current_span("inside"):
            worker.stop()

    with Client(chronoline_broker) as client, recorded.tracer.start_as_current_span("request"):
        client.create_topic("t")
        client.send("t", b"x")
    asyncio.run(work(worker))
    assert parents([recorded.one("send t")]) == {id_of(recorded.one("request"))}
    assert parents([recorded.one("inside")]) == {id_of(recorded.one("process t"))}


def test_failures_are_shown(chronoline_broker: str, recorded: Recorded) -> None:
    worker = Worker(chronoline_broker, retry=Retry(final=[ValueError]))

    @worker.handler("t")
    async def handle(lease: AsyncLease) -> None:
        worker.stop()
        raise ValueError("no")

    async def play() -> None:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("t")
            await client.send("t", id="a")
            with pytest.raises(Refused):
                await client.send("t", id="a")
            await work(worker)

    asyncio.run(play())
    failed = [each for each in recorded.spans if not (each.status.is_ok or each.status.is_unset)]
    errors = sorted((each.name, (each.attributes or {})["error.type"]) for each in failed)
    assert errors == [("process t", "ValueError"), ("schedule t", "exists"), ("send t", "exists")]
    assert recorded.one("bury t").status.is_unset


def test_settlements_are_shown_with_their_refusals(
    chronoline_broker: str, recorded: Recorded
) -> None:
    async def play() -> None:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("t", TopicSettings(max_attempts=9))
            await client.send("t", id="a")
            leases = client.consume("t", lease=0.3)
            await (await anext(leases)).release()
            await (await anext(leases)).retry()
            lapsed = await anext(leases)
            await until(lambda: lapsed.is_lost)
            with pytest.raises(Refused):
                await lapsed.ack()
            await (await anext(leases)).ack()
            await leases.aclose()

    asyncio.run(play())
    sent = id_of(recorded.one("send t"))
    settled = [each for each in recorded.spans if each.name in ("release t", "retry t", "ack t")]
    assert parents(settled) == {sent}
    shown = [(each.name, (each.attributes or {}).get("error.type")) for each in settled]
    late = shown.pop(2)
    assert late in {("ack t", "lapsed"), ("ack t", "stale")}
    assert shown == [("release t", None), ("retry t", None), ("ack t", None)]


def test_batch_is_one_span_and_a_given_context_is_kept(
    chronoline_broker: str, recorded: Recorded
) -> None:
    async def play() -> tuple[list[bytes | None], int]:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("t")
            mine = {"traceparent": _PARENT}
            await client.send_many("t", [ToSend(id="a"), ToSend(id="b"), ToSend(headers=mine)])
            leases = client.consume("t")
            found = [(await anext(leases)).header("traceparent") for _ in range(3)]
            await leases.aclose()
            return found, id_of(recorded.one("send t"))

    found, sent = asyncio.run(play())
    assert found.count(_PARENT.encode()) == 1
    assert sum(f"{sent:016x}" in (each or b"").decode() for each in found) == 2
    assert (recorded.one("send t").attributes or {})["messaging.batch.message_count"] == 3
    delivered = [each for each in recorded.spans if each.name == "deliver t"]
    assert parents(delivered) == {sent, int(_PARENT.split("-")[2], 16)}


def test_untraced_messages_have_no_spans_at_the_broker(
    chronoline_broker: str, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    async def play() -> None:
        async with AsyncClient(chronoline_broker) as client:
            await client.create_topic("t")
            await client.send("t", headers={"traceparent": "none"})
            leases = client.consume("t")
            await (await anext(leases)).ack()
            await leases.aclose()

    asyncio.run(play())
    assert recorded.names == ["send t"]


@pytest.mark.parametrize("is_recording", [True, False])
def test_target_is_called_in_the_trace(
    tmp_path: Path, request: pytest.FixtureRequest, is_recording: bool
) -> None:
    spans: Recorded | None = request.getfixturevalue("recorded") if is_recording else None

    async def scene() -> None:
        async with (
            receiving(answers(500, 204)) as receiver,
            calling() as calls,
            running(tmp_path, calls=calls) as node,
            node.client() as client,
        ):
            await client.create_topic("t", TopicSettings(target=receiver.url("/in")))
            headers = {"traceparent": _PARENT, "tracestate": "a=b"}
            await client.send("t", b"x", id="a", headers=headers)
            await until(lambda: _is_empty(client))
        got = [each.headers["traceparent"] for each in receiver.calls]
        assert [each.headers["tracestate"] for each in receiver.calls] == ["a=b", "a=b"]
        if spans is None:
            assert got == [_PARENT, _PARENT]
            return
        made = [each for each in spans.spans if each.name == "call t"]
        assert [each.split("-")[2] for each in got] == [f"{id_of(each):016x}" for each in made]
        assert parents(made) == {int(_PARENT.split("-")[2], 16)}
        assert [each.kind for each in made] == [SpanKind.CLIENT, SpanKind.CLIENT]
        outcomes = [(each.attributes or {}).get("error.type") for each in made]
        assert outcomes == ["answered_badly", None]

    run_scene(scene)


async def _is_empty(client: AsyncClient) -> bool:
    return (await client.count("t")).total == 0


def test_trace_of_an_http_request_goes_with_its_messages(tmp_path: Path) -> None:
    sender = {"traceparent": _PARENT, "tracestate": "a=b"}

    async def scene() -> None:
        async with serving(tmp_path) as node:
            await node.create_topic()
            one, many = "/v1/topics/t/messages/a", "/v1/topics/t/messages"
            await node.http.put(one, json={"body": "x", "headers": {"k": "v"}}, headers=sender)
            given = {"id": "c", "headers": {"traceparent": "mine"}}
            await node.http.post(many, json={"messages": [{"id": "b"}, given]}, headers=sender)
            await node.http.put(f"{many}/d", json={}, headers={"traceparent": "x y"})
            found: dict[str, object] = {}
            while len(found) < 4:
                received = await node.receive(consumer="c", count=4)
                found |= {each["id"]: each["headers"] for each in received["messages"]}
        context = [["traceparent", _PARENT], ["tracestate", "a=b"]]
        assert found["a"] == [["k", "v"], *context]
        assert (found["b"], found["c"]) == (context, [["traceparent", "mine"]])
        assert found["d"] == []

    run_scene(scene)
