"""Metrics for Prometheus: families, their text, and a server for a process that has no other.

Only modules with metrics import this one, so that other processes do not load `prometheus_client`.
"""

from __future__ import annotations

import math
import shutil
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import make_wsgi_app
from prometheus_client.registry import Collector

from chronoline.core.addresses import AllowedHosts
from chronoline.core.errors import InvalidInput
from chronoline.core.lateness import LATENESS_BOUNDS_MS, LatenessHistogram
from chronoline.runtime.service import Closable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LATENESS_BOUNDS_S = tuple(bound / 1000 for bound in LATENESS_BOUNDS_MS)
"""The buckets of every histogram of lateness."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SCRAPES = 16
"""The most connections of a metrics server at a time."""
_PATIENCE_S = 10.0
_HERE = "chronoline.here"
"""The key of the address at which a connection arrived, in the environment of a request."""
_OWN_ADDRESS = AllowedHosts()
_VALUE_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

Samples = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the value of the metric."""


def gauge(name: str, what: str, samples: Samples, *labels: str) -> Metric:
    """A gauge with its samples."""
    family = GaugeMetricFamily(name, what, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def counter(name: str, what: str, samples: Samples, *labels: str) -> Metric:
    """A counter with its samples, whose names end in `_total`."""
    family = CounterMetricFamily(name, what, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def lateness_family(
    what: str, samples: Iterable[tuple[Sequence[str], LatenessHistogram]], *labels: str
) -> Metric:
    """`chronoline_lateness_seconds`, with a histogram for each of the samples."""
    family = HistogramMetricFamily("chronoline_lateness_seconds", what, labels=labels)
    for values, histogram in samples:
        family.add_metric(values, histogram.cumulative(), histogram.sum_ms / 1000)
    return family


class Watched(Collector):
    """Metrics that are collected at each scrape, and not described beforehand."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics()

    def describe(self) -> Iterable[Metric]:
        return ()


def free_bytes(folder: Path) -> float:
    """The free bytes on the file system of a folder, which may not exist yet; NaN if it cannot be read."""
    for place in (folder, *folder.parents):
        if place.is_dir():
            with suppress(OSError):
                return shutil.disk_usage(place).free
            break
    return math.nan


def expose(metrics: Iterable[Metric]) -> bytes:
    """Prometheus' text format, version 0.0.4, with the samples under their own names.

    Prometheus' own client ends the names of all counters in `_total` where it states their type. The samples
    of a counter of another name then belong to no family, and count as untyped.
    """
    return "".join(line for metric in metrics for line in _lines(metric)).encode()


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.documentation.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {metric.name} {metric.type}\n"
    for sample in metric.samples:
        yield f"{sample.name}{_labels(sample.labels)} {float(sample.value)!r}\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{labels[name].translate(_VALUE_ESCAPES)}"' for name in sorted(labels))
    return "{" + ",".join(pairs) + "}"


class _QuietHandler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_: object) -> None:
        """Scrapes are not logged."""

    def get_environ(self) -> dict[str, Any]:
        here, *_ = self.connection.getsockname()
        return {**super().get_environ(), _HERE: here}


def _for_hosts(app: WSGIApplication, hosts: AllowedHosts) -> WSGIApplication:
    """Refuses requests for other host names: the metrics need no token, and name topics."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        problem = hosts.problem(environ.get("HTTP_HOST", ""), environ[_HERE])
        if problem is None:
            return app(environ, start_response)
        status = HTTPStatus.MISDIRECTED_REQUEST
        start_response(
            f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")]
        )
        return [f"{problem}\n".encode()]

    return answer


class _BoundedServer(ThreadingMixIn, WSGIServer):
    """A thread for each connection, of which there are few: a new one ends the one that is open longest.

    A connection that sends nothing ends by itself after a time.
    """

    daemon_threads = True

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, hosts: AllowedHosts
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = threading.Lock()
        self._open: dict[socket.socket, None] = {}  # the first is open longest
        super().__init__((host, port), _QuietHandler)
        self.set_app(_for_hosts(make_wsgi_app(registry), hosts))

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            beyond = list(self._open)[:-MOST_SCRAPES]
        for each in beyond:
            with suppress(OSError):  # it has ended by itself
                each.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it
        if len(beyond) > MOST_SCRAPES:  # the threads do not keep up
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)


class MetricsServer(Closable):
    """Serves a collector over HTTP at an address, in a thread, until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        collector: Collector,
        *,
        hosts: AllowedHosts = _OWN_ADDRESS,
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        try:
            self._server = _BoundedServer(host, port, registry, hosts)
        except OSError as error:
            raise InvalidInput(
                f"metrics cannot be served at {host}:{port}: {error}; choose another port"
            ) from error
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        with self._lock:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
