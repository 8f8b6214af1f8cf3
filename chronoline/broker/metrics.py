"""The broker's metrics for Prometheus, under the names that seed 003 gives them, in lower case.

Those names do not end as Prometheus' own client would have it, so the families are put together here. What is
counted in the hot path is one addition in a dictionary.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chronoline.core.lateness import LatenessHistogram
from chronoline.core.message import LeasedMessage, content_bytes
from chronoline.core.outcome import Grant, Outcome


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its labels besides `cluster`, and what it tells."""

    labels: tuple[str, ...]
    help: str
    gauge: bool = False


_STORAGE = ("op", "type", "filter", "topic")
FAMILIES: Mapping[str, Family] = {
    "topic_commands_count": Family(("op", "topic"), "Topics that were created or deleted."),
    "topic_commands_errors": Family(("op", "topic"), "Commands on topics that failed."),
    "topic_messages_count": Family(("op", "topic"), "Messages, by what was done with them."),
    "topic_messages_errors": Family(
        ("op", "topic"), "Messages with which it was refused, or failed."
    ),
    "topic_available_messages_count": Family(
        ("topic",), "Messages that are due and nobody has.", True
    ),
    "topic_waiting_messages_count_bucket": Family(
        ("topic", "le"), "Messages that fall due within so many seconds.", True
    ),
    "topic_leases_count": Family(("op", "topic"), "Leases that were granted or extended."),
    "topic_leases_errors": Family(("op", "topic"), "Leases that were refused, or failed."),
    "topic_leases_body_total_bytes": Family(
        ("topic",), "Bodies, keys and headers of what was leased."
    ),
    "topic_target_calls_count": Family(
        ("outcome", "topic"), "Calls of the targets of topics, by how they ended."
    ),
    "broker_commands_count": Family(("command", "topic"), "Commands of clients."),
    "broker_commands_errors": Family(("command", "topic"), "Commands of clients that failed."),
    "broker_refused_count": Family(
        ("edge", "reason"), "Requests and connections that were refused before they were worked on."
    ),
    "broker_under_way_bytes": Family(
        (), "Requests of all clients that are not answered yet, as they are counted.", True
    ),
    "broker_shortages_count": Family(
        ("resource",), "How often the process ran short of descriptors, memory, ports or threads."
    ),
    "broker_active_timedrifts_count": Family(
        ("target", "topic"), "Clocks that are further off than the bound.", True
    ),
    "broker_active_timedrifts_seconds_avg": Family(
        ("target", "topic"), "By how much clocks are off on average.", True
    ),
    "broker_degradation_state": Family(
        ("type", "topic"), "1 while the broker does less than it should, by reason.", True
    ),
    "storage_queries_count": Family(_STORAGE, "Queries of the store."),
    "storage_queries_errors": Family(_STORAGE, "Queries that failed, or were not answered."),
    "storage_query_duration_ms": Family(
        _STORAGE, "How long queries took in all, queueing included."
    ),
    "network_broker_bytes_total": Family(
        ("direction", "partner", "topic"), "Bytes of frames from and to partners."
    ),
    "network_broker_latency_ms": Family(("partner", "topic"), "One way, on average.", True),
    "network_broker_tcp_connections_total": Family((), "Streams that are open.", True),
    "networkbroker_active_channels_total": Family(
        ("type", "topic"), "Channels that are open.", True
    ),
    "networkbroker_active_channels_errors": Family(
        ("type", "topic"), "Channels that ended with an error."
    ),
}
"""All that the seed names. Ours are `le`, where it left the form open, and `topic_target_calls_count`."""

_QUERIES: Mapping[str, tuple[str, str, str]] = {
    "create": ("create", "lookup", "all"),
    "reschedule": ("update", "lookup", "waiting"),
    "cancel": ("delete", "lookup", "waiting"),
    "reserve": ("update", "range", "available"),
    "resume": ("update", "range", "processing"),
    "unreserve": ("update", "lookup", "processing"),
    "extend": ("update", "lookup", "processing"),
    "release": ("update", "lookup", "processing"),
    "retry": ("update", "lookup", "processing"),
    "bury": ("delete", "lookup", "processing"),
    "ack": ("delete", "lookup", "processing"),
    "next_ts": ("read", "range", "all"),
    "count": ("read", "range", "all"),
    "forecast": ("read", "range", "all"),
    "held": ("read", "range", "processing"),
    "purge": ("delete", "range", "all"),
    "create_topic": ("create", "lookup", "all"),
    "drop_topic": ("delete", "lookup", "all"),
    "redrive": ("update", "lookup", "all"),
    "discard": ("delete", "lookup", "all"),
}
_OTHER_QUERY = ("read", "lookup", "all")
_MESSAGE_OPS = {
    "create": "create",
    "ack": "delete",
    "cancel": "delete",
    "release": "released",
    "retry": "released",
    "bury": "buried",
    "unreserve": "unreserved",
    "reschedule": "rescheduled",
}

Sample = tuple[str, tuple[str, ...], float]
"""A name of `FAMILIES`, the values of its labels, and its value."""


class BrokerMetrics(Collector):
    """What the node counted, and what its `watched` parts say when they are asked."""

    def __init__(self, cluster: str = "default", tags: Mapping[str, str] | None = None) -> None:
        self._tags = {"cluster": cluster, **(tags or {})}
        self._counted: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)
        self._lateness: defaultdict[str, LatenessHistogram] = defaultdict(LatenessHistogram)
        self._watched: list[Callable[[], Iterable[Sample]]] = []
        # Shown from the start, so that the first one can be seen as a change.
        for partner in ("producer", "consumer"):
            self.add("networkbroker_active_channels_errors", (partner, ""), 0)

    def watch(self, part: Callable[[], Iterable[Sample]]) -> None:
        """Asks this part at every scrape."""
        self._watched.append(part)

    def add(self, name: str, labels: tuple[str, ...], value: float = 1) -> None:
        self._counted[name, labels] += value

    # What happens

    def command(self, command: str, topic: str) -> AbstractContextManager[None]:
        """Counts a command, and its failure."""
        return self._counting("broker_commands", (command, topic))

    def topic_command(self, op: str, topic: str) -> AbstractContextManager[None]:
        """Counts the creation or deletion of a topic, and its failure."""
        return self._counting("topic_commands", (op, topic))

    @contextmanager
    def _counting(self, family: str, labels: tuple[str, ...]) -> Iterator[None]:
        self.add(f"{family}_count", labels)
        try:
            yield
        except Exception:
            self.add(f"{family}_errors", labels)
            raise

    def changed(self, command: str, topic: str, outcomes: Sequence[Outcome]) -> None:
        """What a batch came to."""
        done = sum(1 for each in outcomes if each.done)
        if command == "extend":
            family, op = "topic_leases", "extend"
        else:
            family, op = "topic_messages", _MESSAGE_OPS[command]
        self.add(f"{family}_count", (op, topic), done)
        if done < len(outcomes):
            self.add(f"{family}_errors", (op, topic), len(outcomes) - done)

    def leased(self, topic: str, grant: Grant) -> None:
        self.add("topic_leases_count", ("create", topic), len(grant.leased))
        size = sum(
            content_bytes(each.body, each.message.key, each.message.headers)
            for each in grant.leased
        )
        self.add("topic_leases_body_total_bytes", (topic,), size)
        if grant.refused:
            self.add("topic_leases_errors", ("create", topic), len(grant.refused))

    def pushed(self, topic: str, leased: Sequence[LeasedMessage], now_ms: int) -> None:
        """Lateness is that of first deliveries, as they leave."""
        lateness = self._lateness[topic]
        for each in leased:
            if not each.redelivered:
                lateness.observe(max(0, now_ms - each.message.due))

    def called(self, topic: str, outcome: str) -> None:
        """A topic's target was called."""
        self.add("topic_target_calls_count", (outcome, topic))

    def refused(self, edge: str, reason: str) -> None:
        """A request or a connection, before anything was done with it."""
        self.add("broker_refused_count", (edge, reason))

    def queried(self, query: str, topic: str, *, took_s: float) -> None:
        labels = (*_QUERIES.get(query, _OTHER_QUERY), topic)
        self.add("storage_queries_count", labels)
        self.add("storage_query_duration_ms", labels, took_s * 1000)

    def query_failed(self, query: str, topic: str) -> None:
        labels = (*_QUERIES.get(query, _OTHER_QUERY), topic)
        self.add("storage_queries_count", labels)
        self.add("storage_queries_errors", labels)

    def failed(self, what: str) -> None:
        """A part of the broker failed and was started anew."""
        self.add("broker_commands_errors", (what, ""))

    # What is shown

    def collect(self) -> Iterator[Metric]:
        samples: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for (name, labels), value in list(self._counted.items()):
            samples[name].append((labels, value))
        for part in self._watched:
            for name, labels, value in part():
                samples[name].append((labels, value))
        for name, family in FAMILIES.items():
            metric = Metric(name, family.help, "gauge" if family.gauge else "unknown")
            for labels, value in samples[name]:
                named = dict(zip(family.labels, labels, strict=True))
                metric.add_sample(name, {**named, **self._tags}, value)
            yield metric
        yield self._lateness_family()

    def _lateness_family(self) -> Metric:
        late = HistogramMetricFamily(
            "chronoline_lateness_seconds",
            "Lateness of first deliveries, as they leave the broker.",
            labels=["topic", *self._tags],
        )
        for topic, histogram in list(self._lateness.items()):
            late.add_metric([topic, *self._tags.values()], histogram.cumulative(), sum_value=None)
        return late
