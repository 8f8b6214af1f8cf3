"""Prometheus' text format, checked line by line as its own parser and `promtool check metrics` read it."""

from __future__ import annotations

import math
import re
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>\{.*\})? (?P<value>\S+)$")
_PARTS = {"histogram": ("_bucket", "_sum", "_count")}
Series = dict[str, dict[str, float]]
"""The value of each sample by its name and its labels."""


def checked_series(text: str) -> Series:
    """The samples of a text. It fails unless each is of a declared family, and counts are complete."""
    assert list(text_string_to_metric_families(text)), "Prometheus' own client reads it"
    types: dict[str, str] = {}
    helped: set[str] = set()
    series: Series = defaultdict(dict)
    family = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in helped, f"two families {family}"
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family, f"{name} has no help of its own before it"
            types[name] = kind
        elif line:
            match = _LINE.match(line)
            assert match, line
            name, labels = match["name"], match["labels"] or ""
            parts = [f"{family}{part}" for part in _PARTS.get(types.get(family, ""), ("",))]
            assert name in parts, f"{name} is in the family {family} of type {types.get(family)}"
            assert labels not in series[name], f"{name}{labels} is there twice"
            series[name][labels] = float(match["value"])
    assert helped == set(types), "each family has help and type"
    for name, kind in types.items():
        if kind == "histogram":
            _check_histogram(name, series)
        if kind == "counter":
            values = series[name].values()
            assert all(value >= 0 and math.isfinite(value) for value in values), name
    return series


def _check_histogram(name: str, series: Series) -> None:
    """Each has cumulative buckets up to +Inf, which is its count, and a sum."""
    buckets: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for labels, value in series[f"{name}_bucket"].items():
        bound = re.search(r'le="([^"]+)"', labels)
        assert bound
        rest = re.sub(r',?le="[^"]+"', "", labels).replace("{,", "{").replace("{}", "")
        buckets[rest].append((float(bound[1]), value))
    assert buckets.keys() == series[f"{name}_count"].keys() == series[f"{name}_sum"].keys()
    for labels, found in buckets.items():
        counts = [value for _, value in sorted(found)]
        assert counts == sorted(counts), f"{name}{labels} is cumulative"
        assert max(found)[0] == math.inf
        assert counts[-1] == series[f"{name}_count"][labels]
