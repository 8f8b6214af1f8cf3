"""The metrics of a node, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.exposition import checked_series

_TOTAL = "_total"


async def scrape(http: httpx.AsyncClient) -> list[Sample]:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return list(samples_of(answer.text))


def samples_of(text: str) -> Iterator[Sample]:
    """All samples, under the names that stand in the text: the parser renames counters."""
    checked_series(text)
    for family in text_string_to_metric_families(text):
        renamed = f"# TYPE {family.name} counter\n" in text
        for sample in family.samples:
            name = sample.name.removesuffix(_TOTAL) if renamed else sample.name
            assert f"\n{name}" in text
            yield sample._replace(name=name)
