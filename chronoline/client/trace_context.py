"""Traces: `traceparent` travels from who sends to who handles, as a header of the message.

OpenTelemetry does it where it is installed; it is never needed. A sender that has not imported it has no span
either, so that nothing is looked up for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from chronoline.core.message import Header

TRACEPARENT = "traceparent"
_TRACE = "opentelemetry.trace"


class _Telemetry(NamedTuple):
    context: Any
    propagator: Any


def traced(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """With the current span, if there is one and the headers name none."""
    if sys.modules.get(_TRACE) is None or any(name == TRACEPARENT for name, _ in headers):
        return headers
    telemetry = _telemetry()
    if telemetry is None:
        return headers
    carrier: dict[str, str] = {}
    telemetry.propagator.inject(carrier)
    return (*headers, *((name, value.encode()) for name, value in carrier.items()))


@contextmanager
def continued(traceparent: str | None, tracestate: str | None) -> Iterator[None]:
    """Inside, the trace in which a message was sent is the current one, where OpenTelemetry is installed."""
    telemetry = None if traceparent is None else _telemetry()
    if telemetry is None:
        yield
        return
    carrier = {TRACEPARENT: traceparent} | ({"tracestate": tracestate} if tracestate else {})
    token = telemetry.context.attach(telemetry.propagator.extract(carrier))
    try:
        yield
    finally:
        telemetry.context.detach(token)


@cache
def _telemetry() -> _Telemetry | None:
    try:
        propagation = importlib.import_module(f"{_TRACE}.propagation.tracecontext")
        context = importlib.import_module("opentelemetry.context")
    except ImportError:
        return None
    return _Telemetry(context, propagation.TraceContextTextMapPropagator())
