"""Metrics of a node of timers, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from chronoline.runtime.metrics import gauge
from chronoline.timers.metrics import TimersMetrics
from tests.exposition import checked_series


def test_families_have_their_type_and_configured_labels() -> None:
    metrics = TimersMetrics({"cluster": "eu-1"})
    tags = {"a": 1.0, 'odd "tag"': 2.0}
    metrics.watch(
        lambda: [
            gauge("tagged", "By tag.", [((tag,), count) for tag, count in tags.items()], "tag")
        ]
    )
    metrics.popped(2_500, is_first=True)
    metrics.called("succeeded")
    metrics.asked("PUT", 200)
    render = metrics.snapshot()
    tags.clear()  # it is a snapshot
    checked_series(render().decode())
    families = {each.name: each for each in text_string_to_metric_families(render().decode())}
    types = {name: family.type for name, family in families.items() if "created" not in name}
    assert types.pop("chronoline_timers_lateness_seconds") == "histogram"
    assert types.pop("tagged") == "gauge"
    assert set(types.values()) == {"counter"}
    samples = [each for family in families.values() for each in family.samples]
    assert {each.labels["cluster"] for each in samples} == {"eu-1"}
    found = {each.name: each.value for each in samples}
    assert found["chronoline_timers_lateness_seconds_sum"] == 2.5
    assert found["chronoline_timers_lateness_seconds_count"] == 1
    assert found["chronoline_timers_pops_total"] == 1
    assert found["tagged"] == 2
