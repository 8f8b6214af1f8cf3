"""Trace context: `traceparent` travels from the sender to the handler, as a header of the message.

OpenTelemetry provides it if it is installed; it is optional. A sender that has not imported it has no span
either, so this module does not import it.
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
    """The headers with the current span, if there is one and they name none."""
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
    """A context in which the trace of the sender is the current one, if OpenTelemetry is installed."""
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
