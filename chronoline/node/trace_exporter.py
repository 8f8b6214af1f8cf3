"""The export of a node's spans to a collector, by OTLP over gRPC.

Spans wait in a bounded queue, which a thread sends in batches: a collector that is slow or away costs spans,
and delays nothing else. OpenTelemetry's own variables apply as well, such as `OTEL_SERVICE_NAME`,
`OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and `OTEL_EXPORTER_OTLP_HEADERS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread

from chronoline.core.version import VERSION
from chronoline.node.settings import NodeSettings
from chronoline.runtime.extras import needs

_TIMEOUT_S = 5
"""The longest export of a batch."""
_LAST_S = 2
"""How long a node that stops waits for the export of its last spans."""


@asynccontextmanager
async def export_traces(settings: NodeSettings) -> AsyncIterator[None]:
    """Sends the spans of this process to `settings.traces`, if that is set, until the block ends."""
    if settings.traces is None:
        yield
        return
    with needs("sending traces", "otel"):
        from opentelemetry import trace  # noqa: PLC0415 - it is optional
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - as above
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

    provider = TracerProvider(resource=Resource.create(_resource(settings)), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(
        endpoint=settings.traces,
        insecure=settings.traces.startswith("http:"),
        timeout=_TIMEOUT_S,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        closing = Thread(target=provider.shutdown, name="last spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _LAST_S)
        if closing.is_alive():
            exporter.shutdown()  # which ends its retries


def _resource(settings: NodeSettings) -> dict[str, str]:
    about = {"service.version": VERSION}
    named = "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not named and not os.environ.get("OTEL_SERVICE_NAME"):
        about["service.name"] = "chronoline"
    if "cluster" in settings.model_fields_set:
        about["service.namespace"] = settings.cluster
    if settings.name is not None:
        about["service.instance.id"] = settings.name
    return about
