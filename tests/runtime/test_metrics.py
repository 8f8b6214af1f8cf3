"""Families of metrics, and their text for Prometheus."""

from __future__ import annotations

import http.client
import socket
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from chronoline.core.addresses import AllowedHosts
from chronoline.core.lateness import LATENESS_BOUNDS_MS, LatenessHistogram
from chronoline.runtime.metrics import (
    LATENESS_BOUNDS_S,
    MOST_SCRAPES,
    MetricsServer,
    Watched,
    counter,
    expose,
    gauge,
    lateness_family,
)


def test_samples_carry_their_labels() -> None:
    families = [
        gauge("depth", "How deep.", [(("a", "b"), 1.5)], "x", "y"),
        counter("calls", "How often.", [((), 3)]),
    ]
    samples = [
        (each.name, each.labels, each.value) for family in families for each in family.samples
    ]
    assert samples == [("depth", {"x": "a", "y": "b"}, 1.5), ("calls_total", {}, 3)]


def test_lateness_is_counted_in_the_shared_buckets() -> None:
    histogram = LatenessHistogram()
    for late_ms in (0.5, 150, 70_000):
        histogram.observe(late_ms)
    samples = lateness_family("Late.", [(("t",), histogram)], "topic").samples
    buckets = {each.labels["le"]: each.value for each in samples if each.name.endswith("_bucket")}
    assert [float(bound) for bound in buckets] == [*LATENESS_BOUNDS_S, float("inf")]
    assert (buckets["0.001"], buckets["0.2"], buckets["+Inf"]) == (1, 2, 3)
    assert len(LATENESS_BOUNDS_S) == len(LATENESS_BOUNDS_MS)


def test_text_keeps_names_and_escapes_values() -> None:
    odd = 'a "quoted"\nline\\'
    text = expose([gauge("depth", "How\ndeep.", [((odd,), 2)], "what")]).decode()
    assert text.splitlines()[0] == r"# HELP depth How\ndeep."
    (family,) = text_string_to_metric_families(text)
    assert [(each.labels, each.value) for each in family.samples] == [({"what": odd}, 2.0)]


def test_watched_metrics_are_asked_for_at_each_scrape() -> None:
    values = iter((1, 2))
    watched = Watched(lambda: [gauge("depth", "How deep.", [((), next(values))])])
    assert not list(watched.describe())
    assert [[each.samples[0].value for each in watched.collect()] for _ in range(2)] == [[1], [2]]


def test_metrics_are_for_the_names_of_the_server() -> None:
    hosts = AllowedHosts(["pipe"])
    with MetricsServer("127.0.0.1", 0, Watched(lambda: ()), hosts=hosts) as server:
        for host, status in (("pipe:9108", 200), ("127.0.0.1", 200), ("evil.test", 421)):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("GET", "/metrics", headers={"Host": host})
            assert connection.getresponse().status == status, host
            connection.close()


def test_flood_of_connections_keeps_no_scrape_out() -> None:
    with MetricsServer("127.0.0.1", 0, Watched(lambda: ())) as server:
        at = ("127.0.0.1", server.port)
        silent = [socket.create_connection(at, timeout=60) for _ in range(3 * MOST_SCRAPES)]
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as said:
            assert said.status == 200
        for each in silent[: 2 * MOST_SCRAPES]:  # the oldest were closed
            assert each.recv(1) == b""
        for each in silent:
            each.close()
