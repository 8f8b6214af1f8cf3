"""Prometheus' text format, version 0.0.4, for metrics whose names stay as they are.

Prometheus' own client ends the names of all counters in `_total` where it states their type. The samples of a
counter of another name then belong to no family, and pass for untyped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_VALUE_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def expose(metrics: Iterable[Metric]) -> bytes:
    """The metrics as text. A counter, gauge or histogram has its samples under its own name."""
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
