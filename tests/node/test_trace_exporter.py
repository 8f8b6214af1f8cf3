"""A node sends its spans to a collector, and stops although the collector is away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as wire
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

from chronoline import Client
from tests.node.processes import refusal, up

_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(service.TraceServiceServicer):
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, bytes]] = []
        self.resource: dict[str, str] = {}

    def Export(
        self, request: wire.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> wire.ExportTraceServiceResponse:
        for of_resource in request.resource_spans:
            for each in of_resource.resource.attributes:
                self.resource[each.key] = each.value.string_value
            for scope in of_resource.scope_spans:
                self.spans += [(scope.scope.name, each.name, each.trace_id) for each in scope.spans]
        return wire.ExportTraceServiceResponse()


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    collector, server = Collector(), grpc.server(futures.ThreadPoolExecutor(2))
    service.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def send_and_ack(address: str) -> None:
    with Client(address) as client:
        client.create_topic("t")
        client.send("t", b"x", headers={"traceparent": _PARENT})
        for lease in client.consume("t"):
            lease.ack()
            return


def test_spans_of_a_node_reach_the_collector(tmp_path: Path) -> None:
    with collecting() as (collector, url):
        with up(tmp_path, "--set", f"traces={url}", "--set=name=n1", "--set=cluster=c") as node:
            send_and_ack(node.grpc)
            code, _ = node.end(signal.SIGTERM)
        assert code == 0
        names = sorted(name for _, name, _ in collector.spans)
    assert names == ["deliver t", "schedule t", "wait t"]
    assert {trace_id.hex() for *_, trace_id in collector.spans} == {_PARENT.split("-")[1]}
    assert {scope for scope, *_ in collector.spans} == {"chronoline"}
    wanted = {"service.name": "chronoline", "service.instance.id": "n1", "service.namespace": "c"}
    assert collector.resource.items() >= wanted.items()


def test_node_stops_without_its_collector(tmp_path: Path) -> None:
    with collecting() as (_, url):
        pass
    with up(tmp_path, "--set", f"traces={url}") as node:
        send_and_ack(node.grpc)
        code, _ = node.end(signal.SIGTERM)
    assert code == 0


@pytest.mark.parametrize("wrong", ["collector:4317", "http://collector", "http://a@b:4317", "x"])
def test_wrong_collector_is_refused(tmp_path: Path, wrong: str) -> None:
    said = refusal(tmp_path, "config", "show", "--set", f"traces={wrong}")
    assert "http://localhost:4317" in said
