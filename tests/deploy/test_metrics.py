"""Alert rules and the dashboard name metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from chronoline.broker.degradation import DegradationType
from chronoline.broker.metrics import FAMILIES
from chronoline.callbacks.caller import Verdict
from chronoline.pipe.metrics import PipeCollector
from tests.deadline import run_scene, until
from tests.deploy.tools import DEPLOY, read
from tests.node.processes import up
from tests.pipe.test_metrics import counters, status
from tests.timers.scene import cluster, receiving, timer

_OF_PROMETHEUS = {"up": {"job", "instance"}}
_SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""
_WORDS = {"and", "or", "unless", "bool", "offset"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_NAME = re.compile(r"\b[a-zA-Z_:][\w:]*")


class Expression(NamedTuple):
    """An expression, and the place in which it stands."""

    place: str
    text: str

    @property
    def metrics(self) -> set[str]:
        """The names of metrics."""
        text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", _STRING.sub("", self.text))
        text = _GROUPS.sub(" ", text)
        names = (each for each in _NAME.finditer(text))
        return {
            each.group()
            for each in names
            if each.group() not in _WORDS and not text[each.end() :].lstrip().startswith("(")
        }

    @property
    def matchers(self) -> Iterator[tuple[str, str, str]]:
        """The metric, the label and the value of each selector."""
        for metric, inside in _SELECTOR.findall(self.text):
            for label, _, value in _MATCHER.findall(inside):
                yield metric, label, value

    @property
    def groups(self) -> set[str]:
        """The labels by which it groups."""
        return {label.strip() for each in _GROUPS.findall(self.text) for label in each.split(",")}


def rules() -> list[Expression]:
    groups = read(DEPLOY / "prometheus" / "alerts.yml")["groups"]
    return [Expression(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(json.loads((DEPLOY / "grafana" / "dashboards" / "chronoline.json").read_text()))


def panels() -> list[Expression]:
    found = [
        Expression(f"{panel['title']} {target['refId']}", target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert asked, variable
            found.append(Expression(variable["name"], f"count by ({asked[2]}) ({asked[1]})"))
    return found


EXPRESSIONS = [*rules(), *panels()]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The labels of each sample name that broker, timers and pipe expose."""
    with up(tmp_path_factory.mktemp("node")) as node:
        texts = [httpx.get(f"{node.http}/metrics", timeout=60).text]

    async def scene() -> None:
        folder = tmp_path_factory.mktemp("timers")
        async with receiving() as receiver, cluster(folder, 2, labels={"cluster": "c"}) as nodes:
            await nodes.ask("POST", "/timers", timer(receiver.uri, interval_ms=50))
            await receiver.count(1)

            async def is_counted() -> bool:
                asked = [await nodes.ask("GET", "/metrics", at=number) for number in range(2)]
                text = "".join(each.body.decode() for each in asked)
                texts.append(text)
                return "chronoline_timers_callbacks_total{" in text

            await until(is_counted)

    run_scene(scene)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PipeCollector("p", "n", counters(), status))
    texts.append(generate_latest(registry).decode())
    found: defaultdict[str, set[str]] = defaultdict(
        set, {k: set(v) for k, v in _OF_PROMETHEUS.items()}
    )
    for text in texts:
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
                for suffix in suffixes:
                    found[name + suffix] |= {"le"} if suffix == "_bucket" else set()
            elif line and not line.startswith("#"):
                name = re.split(r"[{ ]", line, maxsplit=1)[0]
                found[name] |= set(re.findall(r'(\w+)="', line))
    for name, family in FAMILIES.items():  # those that have no samples in an idle node
        found[name] |= {*family.labels, "cluster"}
    found["chronoline_lateness_seconds_bucket"] |= {"topic", "cluster", "pipe", "node"}
    return found


def test_expressions_are_read() -> None:
    text = 'sum by (a, b) (rate(x_total{c="y{z}", d=~"e|f"}[5m])) / on (a) max(up offset 5m) > 0.5'
    read_as = Expression("", text.replace("y{z}", "y"))
    assert read_as.metrics == {"x_total", "up"}
    assert list(read_as.matchers) == [("x_total", "c", "y"), ("x_total", "d", "e|f")]
    assert read_as.groups == {"a", "b"}


@pytest.mark.parametrize("given", EXPRESSIONS, ids=lambda each: each.place)
def test_metrics_and_labels_exist(given: Expression, scraped: Mapping[str, set[str]]) -> None:
    assert given.metrics
    assert given.metrics <= scraped.keys()
    known = {label for metric in given.metrics for label in scraped[metric]} | _SCRAPED
    assert given.groups <= known
    for metric, label, _ in given.matchers:
        assert label in scraped[metric] | _SCRAPED, f"{metric}{{{label}}}"


def test_unknown_metrics_and_labels_are_noticed(scraped: Mapping[str, set[str]]) -> None:
    assert not Expression("", "rate(topic_messages_total[5m])").metrics <= scraped.keys()
    assert "kind" not in scraped["broker_degradation_state"]
    assert "stopping" in {each.value for each in DegradationType}


_VALUES = {
    "type": {each.value for each in DegradationType},
    "outcome": {each.value for each in Verdict},
    "target": {"storage", "sync", "broker", "consumer", "producer"},
    "job": {"chronoline-nodes", "chronoline-timers", "chronoline-pipes"},
    "topic": {""},
}


@pytest.mark.parametrize("given", EXPRESSIONS, ids=lambda each: each.place)
def test_values_of_labels_exist(given: Expression) -> None:
    for _, label, value in given.matchers:
        if not value.startswith("$"):
            assert set(value.split("|")) <= _VALUES[label], f"{label}={value}"


def test_jobs_are_those_of_prometheus() -> None:
    jobs = read(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]
    assert {job["job_name"] for job in jobs} <= _VALUES["job"]


def test_dashboard_is_whole() -> None:
    found = dashboard()
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids) > 30
    taken: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        refs = [each["refId"] for each in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)
    sources = read(DEPLOY / "grafana/provisioning/datasources/prometheus.yml")["datasources"]
    (chosen,) = (each for each in found["templating"]["list"] if each["type"] == "datasource")
    assert (chosen["query"], chosen["current"]["value"]) == (sources[0]["type"], sources[0]["uid"])
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(found["panels"])))
    defined = {each["name"] for each in found["templating"]["list"]}
    assert used - {"__rate_interval"} == defined


def test_every_alert_says_what_to_do() -> None:
    groups = read(DEPLOY / "prometheus" / "alerts.yml")["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} == rule["annotations"].keys()
