"""Metrics as Prometheus reads them."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.core.lateness import LATENESS_BOUNDS_MS
from chronoline.pipe.counters import Counters
from chronoline.pipe.metrics import PipeCollector
from chronoline.pipe.status import PartitionStatus, PipeStatus
from chronoline.runtime.metrics import MetricsServer
from chronoline.stores.contract import Counts
from chronoline.stores.inputs import InputAccount, Tally
from tests.exposition import checked_series


def status() -> PipeStatus:
    account = InputAccount(
        partition=0,
        position=7,
        tally=Tally(accepted=5, ignored=2),
        holder=None,
        until_ms=None,
        fence=1,
    )
    return PipeStatus(
        name="p",
        on_timeline=Counts(waiting=3, processing=2, available=1),
        dead_letters=4,
        nodes=(),
        partitions=(PartitionStatus(account=account, lag=9),),
        input_problem=None,
    )


def counters() -> Counters:
    found = Counters(fired=6, redelivered=1, clock_offset_ms=-250)
    found.lateness.add([2, 1, *[0] * (len(LATENESS_BOUNDS_MS) - 2), 3], 300_250)
    return found


def scraped(collector: PipeCollector) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    text = generate_latest(registry).decode()
    checked_series(text)
    return {
        (sample.name, *(v for k, v in sample.labels.items() if k not in ("pipe", "node"))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_the_process_and_the_store() -> None:
    found = scraped(PipeCollector("p", "n", counters(), status))
    assert found["chronoline_pipe_fired_total",] == 6
    assert found["chronoline_pipe_redelivered_total",] == 1
    assert found["chronoline_pipe_clock_offset_seconds", "store"] == -0.25
    assert found["chronoline_lateness_seconds_bucket", "0.001"] == 2
    assert found["chronoline_lateness_seconds_bucket", "0.002"] == 3
    assert found["chronoline_lateness_seconds_bucket", "60.0"] == 3
    assert found["chronoline_lateness_seconds_bucket", "+Inf"] == 6
    assert found["chronoline_lateness_seconds_count",] == 6
    assert found["chronoline_lateness_seconds_sum",] == 300.25
    assert found["chronoline_pipe_waiting",] == 3
    assert found["chronoline_pipe_ready",] == 2
    assert found["chronoline_pipe_overdue",] == 1
    assert found["chronoline_pipe_dead_letters",] == 4
    assert found["chronoline_pipe_input_lag",] == 9
    assert found["chronoline_pipe_records_total", "accepted"] == 5
    assert found["chronoline_pipe_records_total", "ignored"] == 2


def test_process_metrics_do_not_need_the_store(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def away() -> PipeStatus:
        raise StoreUnavailable("nobody is there")

    found = scraped(PipeCollector("p", "n", counters(), away))
    assert found["chronoline_pipe_fired_total",] == 6
    assert not any(name.startswith("chronoline_pipe_waiting") for name, *_ in found)
    assert caplog.messages == ["the metrics of the store are missing: nobody is there"]


def test_metrics_server_reports_a_taken_port() -> None:
    collector = PipeCollector("p", "n", counters(), status)
    with MetricsServer("127.0.0.1", 0, collector) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            assert b"chronoline_pipe_fired_total" in answer.read()
        with pytest.raises(InvalidInput, match="choose another port"):
            MetricsServer("127.0.0.1", server.port, collector)
        server.close()
