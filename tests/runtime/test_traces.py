"""Trace context in headers, and spans: with OpenTelemetry, and without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from chronoline.core.limits import MAX_HEADERS
from chronoline.runtime.traces import (
    NO_TRACE,
    TraceStep,
    checked_context,
    context_of,
    continued,
    current_context,
    span_of,
    tracer,
    with_context,
)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SENDER = {"traceparent": PARENT, "tracestate": "a=b"}


@pytest.fixture(params=["not imported", "not installed"])
def absent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without OpenTelemetry."""
    for name in [each for each in sys.modules if each.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    if request.param == "not installed":
        monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans that are recorded; the provider of a process can be set only once."""
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


@pytest.mark.parametrize(
    ("headers", "context"),
    [
        ((), {}),
        ((("a", b"b"),), {}),
        ((("traceparent", PARENT.encode()),), {"traceparent": PARENT}),
        ((("traceparent", PARENT.encode()), ("tracestate", b"a=b")), SENDER),
        ((("traceparent", b"00"), ("traceparent", PARENT.encode())), {"traceparent": PARENT}),
        ((("tracestate", b"a=b"),), {}),
        ((("traceparent", None),), {}),
        ((("traceparent", b"\xff" * 55),), {}),
        ((("traceparent", PARENT.upper().encode()),), {}),
        ((("traceparent", PARENT.encode() + b"\r\nX: y"),), {}),
        (
            (("traceparent", PARENT.encode()), ("tracestate", b"a=b\r\nX: y")),
            {"traceparent": PARENT},
        ),
    ],
)
def test_context_of_headers_is_valid_or_empty(
    headers: tuple[tuple[str, bytes | None], ...], context: dict[str, str]
) -> None:
    assert context_of(headers) == context


def test_context_is_added_once() -> None:
    sender = checked_context(PARENT, "a=b")
    added = (("a", b"b"), ("traceparent", PARENT.encode()), ("tracestate", b"a=b"))
    assert with_context((("a", b"b"),), sender) == added
    assert with_context(added, checked_context(PARENT.replace("01", "00"))) == added
    assert with_context((("traceparent", b"mine"),), sender) == (("traceparent", b"mine"),)


def test_full_headers_stay_as_they_are() -> None:
    full = (("a", b"b"),) * (MAX_HEADERS - 1)
    assert with_context(full, checked_context(PARENT, "a=b")) == full
    assert len(with_context(full, checked_context(PARENT))) == MAX_HEADERS


@pytest.mark.usefixtures("absent")
def test_without_opentelemetry_nothing_is_recorded_or_imported() -> None:
    assert tracer() is None
    assert current_context() is NO_TRACE
    assert with_context((("a", b"b"),)) == (("a", b"b"),)
    with span_of(TraceStep.PROCESS, "t", dict, parent=NO_TRACE) as span:
        assert span is None
    assert not {each for each in sys.modules if each.startswith("opentelemetry.")}


@pytest.mark.parametrize("absent", ["not installed"], indirect=True)
@pytest.mark.usefixtures("absent")
def test_context_of_a_sender_needs_no_opentelemetry() -> None:
    with continued(SENDER), span_of(TraceStep.PROCESS, "t", dict, parent=SENDER) as span:
        assert span is None
    assert with_context((), SENDER)[0] == ("traceparent", PARENT.encode())


def test_without_a_provider_the_context_is_continued_and_nothing_recorded() -> None:
    assert tracer() is None
    with span_of(TraceStep.PROCESS, "t", dict, parent=SENDER) as span:
        assert span is None
        assert current_context() == SENDER
        assert with_context(()) == (("traceparent", PARENT.encode()), ("tracestate", b"a=b"))
    assert current_context() == {}


def test_span_is_current_and_fails_with_its_block(spans: InMemorySpanExporter) -> None:
    def fail() -> None:
        with span_of(TraceStep.PROCESS, "t", lambda: {"a": 1}, parent=SENDER):
            assert current_context()["traceparent"].split("-")[1] == PARENT.split("-")[1]
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind, span.status.is_ok) == (
        "process t",
        trace.SpanKind.CONSUMER,
        False,
    )
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert span.attributes == {
        "messaging.system": "chronoline",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "a": 1,
        "error.type": "KeyError",
    }


def test_sampling_of_the_sender_holds(spans: InMemorySpanExporter) -> None:
    unsampled = {"traceparent": PARENT[:-2] + "00"}
    with span_of(TraceStep.PROCESS, "t", dict, parent=unsampled) as span:
        assert span is not None
        assert not span.is_recording()
    assert spans.get_finished_spans() == ()
