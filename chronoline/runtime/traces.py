"""Traces: the context of a message's sender in its headers, and spans where OpenTelemetry is configured.

The context travels as the headers `traceparent` and `tracestate` of W3C Trace Context, from the sender to
the handler, to a target's request and to a timer's callback. All spans of a message are children of the
sender's: `send`, then `schedule`, `wait` and `deliver` of the broker, then `process` or `call`, and at the
end `ack`, `retry`, `release` or `bury`. Names and
attributes are those of OpenTelemetry's conventions for messaging, where these have any.

OpenTelemetry is optional. A process that has not imported it has no current span and no exporter, so
this module does not import it either: then tracing costs one look into `sys.modules`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from chronoline.core.limits import MAX_HEADERS
from chronoline.core.message import Header
from chronoline.core.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_TRACE = "opentelemetry.trace"
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[ -~]{1,512}")

TraceContext = Mapping[str, str]
"""`traceparent`, and `tracestate` if there is one. Empty: none."""
Attributes = Mapping[str, str | int | float | bool]

NO_TRACE: TraceContext = {}


class TraceStep(StrEnum):
    """A part of a message's way that has a span. `TYPES` has those of OpenTelemetry's conventions."""

    SEND = "send"
    """At the producer: until the broker has answered."""
    SCHEDULE = "schedule"
    """At the broker: until the message is durable."""
    WAIT = "wait"
    """From its creation to its due time; recorded when it is delivered for the first time."""
    DELIVER = "deliver"
    """At the broker: from the due time until the message leaves for a consumer."""
    CALL = "call"
    """At a node: the request to the target of a topic, or the callback of a timer."""
    PROCESS = "process"
    """At the consumer: the handler of a worker."""
    ACK = "ack"
    """At the consumer, as the next three: until the broker has answered."""
    RETRY = "retry"
    RELEASE = "release"
    BURY = "bury"


SETTLEMENTS = frozenset({TraceStep.ACK, TraceStep.RETRY, TraceStep.RELEASE, TraceStep.BURY})
_TYPES = {
    TraceStep.SEND: "send",
    TraceStep.PROCESS: "process",
    **dict.fromkeys(SETTLEMENTS, "settle"),
}
_KINDS = {
    TraceStep.SEND: "PRODUCER",
    TraceStep.SCHEDULE: "SERVER",
    TraceStep.CALL: "CLIENT",
    TraceStep.PROCESS: "CONSUMER",
    **dict.fromkeys(SETTLEMENTS, "CLIENT"),
}


# Headers


def with_context(
    headers: tuple[Header, ...], context: TraceContext | None = None
) -> tuple[Header, ...]:
    """The headers with a context, by default that of the current span.

    They stay as they are if they name one already, or if there is no room for more headers.
    """
    found = current_context() if context is None else context
    if not found or len(headers) + len(found) > MAX_HEADERS:
        return headers
    if any(name == TRACEPARENT for name, _ in headers):
        return headers
    return (*headers, *((name, value.encode()) for name, value in found.items()))


def context_of(headers: Iterable[Header]) -> TraceContext:
    """The trace context in a message's headers: the last one, if it is valid."""
    found = {name: value for name, value in headers if name in (TRACEPARENT, TRACESTATE)}
    if not found:
        return NO_TRACE
    texts = {name: (value or b"").decode("ascii", "replace") for name, value in found.items()}
    return checked_context(texts.get(TRACEPARENT), texts.get(TRACESTATE))


def checked_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext:
    """The context of these two headers of HTTP; empty if there is none, or an invalid one."""
    if traceparent is None or not _PARENT.fullmatch(traceparent):
        return NO_TRACE
    if tracestate is None or not _STATE.fullmatch(tracestate):
        return {TRACEPARENT: traceparent}
    return {TRACEPARENT: traceparent, TRACESTATE: tracestate}


def current_context() -> TraceContext:
    """The context of the current span; empty without one."""
    if _TRACE not in sys.modules:
        return NO_TRACE
    try:
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - it is optional
    except ImportError:
        return NO_TRACE
    carrier: dict[str, str] = {}
    tracecontext.TraceContextTextMapPropagator().inject(carrier)
    return carrier


@contextmanager
def continued(context: TraceContext) -> Iterator[None]:
    """Makes the sender's trace the current one, if OpenTelemetry is installed."""
    extracted = _extracted(context) if context else None
    if extracted is None:
        yield
        return
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - it is optional

    token = attach(extracted)
    try:
        yield
    finally:
        detach(token)


def _extracted(context: TraceContext) -> Context | None:
    try:
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - it is optional
    except ImportError:
        return None
    return tracecontext.TraceContextTextMapPropagator().extract(dict(context))


# Spans


def tracer() -> MessageTracer | None:
    """The recorder of spans; None in a process that has not configured OpenTelemetry."""
    if _TRACE not in sys.modules:
        return None
    try:
        from opentelemetry import trace  # noqa: PLC0415 - it is optional
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else _tracer_of(provider)


@lru_cache(maxsize=1)
def _tracer_of(provider: TracerProvider) -> MessageTracer:
    return MessageTracer(provider.get_tracer("chronoline", VERSION))


class MessageTracer:
    """Makes the spans of messages."""

    def __init__(self, made_by: Tracer) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - it is optional

        self._tracer = made_by
        self._kinds: dict[TraceStep, SpanKind] = {
            step: SpanKind[_KINDS.get(step, "INTERNAL")] for step in TraceStep
        }

    def begin(
        self,
        step: TraceStep,
        destination: str,
        attributes: Attributes,
        *,
        parent: TraceContext | None = None,
        begin_ms: int | None = None,
    ) -> Span:
        """A span that begins now, or at `begin_ms`; its parent is the current span if none is given."""
        about: dict[str, str | int | float | bool] = {
            "messaging.system": "chronoline",
            "messaging.operation.name": step.value,
            "messaging.destination.name": destination,
        }
        if step in _TYPES:
            about["messaging.operation.type"] = _TYPES[step]
        return self._tracer.start_span(
            f"{step} {destination}",
            context=None if parent is None else _extracted(parent),
            kind=self._kinds[step],
            attributes={**about, **attributes},
            start_time=None if begin_ms is None else begin_ms * 1_000_000,
        )

    def record(
        self,
        step: TraceStep,
        destination: str,
        attributes: Attributes,
        *,
        parent: TraceContext,
        begin_ms: int,
        end_ms: int,
        problem: tuple[str, str] | None = None,
    ) -> None:
        """A span that is over. `problem` is its type and its text."""
        span = self.begin(step, destination, attributes, parent=parent, begin_ms=begin_ms)
        if problem is not None:
            fail(span, *problem)
        span.end(end_time=max(begin_ms, end_ms) * 1_000_000)


@contextmanager
def span_of(
    step: TraceStep,
    destination: str,
    attributes: Callable[[], Attributes],
    *,
    parent: TraceContext | None = None,
) -> Iterator[Span | None]:
    """Makes a new span the current one until the block ends; None if no spans are recorded.

    Without spans `parent` is the current context all the same. An exception that leaves the block fails the
    span.
    """
    if (found := tracer()) is None:
        with nullcontext() if parent is None else continued(parent):
            yield None
        return
    from opentelemetry.trace import use_span  # noqa: PLC0415 - it is optional

    span = found.begin(step, destination, attributes(), parent=parent)
    with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            fail(span, type(error).__name__, str(error))
            raise


def fail(span: Span, kind: str, words: str) -> None:
    """Marks a span as failed; `kind` is the type of the error."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - it is optional

    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, words))
