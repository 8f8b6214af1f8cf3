"""The broker's metrics, and their text for Prometheus.

Prometheus' own client ends the names of all counters in `_total` where it states their type, and the samples
of a counter with another name then have no type. The broker's names are fixed and end otherwise, so this
module builds the families and writes the text format (version 0.0.4) itself.

Counting is one addition in a dictionary, since it is in the path of every message. The figures of a topic are
forgotten when any broker deletes the topic. A scrape copies the figures in the event loop, which is cheap,
and writes the text in a thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chronoline.core.lateness import LatenessHistogram
from chronoline.core.message import LeasedMessage
from chronoline.core.outcome import Grant, Outcome
from chronoline.core.permissions import TRAITS, Effect, Role, Traits
from chronoline.runtime.metrics import expose, lateness_family


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its labels besides `cluster`, and its help text."""

    labels: tuple[str, ...]
    help: str
    gauge: bool = False


_STORAGE = ("op", "type", "filter", "topic")
FAMILIES: Mapping[str, Family] = {
    "topic_commands_count": Family(
        ("op", "topic"),
        "Created and deleted topics; those of a deleted topic move to the empty one.",
    ),
    "topic_commands_errors": Family(("op", "topic"), "Failed commands on topics."),
    "topic_messages_count": Family(("op", "topic"), "Messages, by operation."),
    "topic_messages_errors": Family(
        ("op", "topic"), "Messages with a refused or failed operation."
    ),
    "topic_available_messages_count": Family(
        ("topic",), "Messages that are due and not leased: scale consumers by it.", True
    ),
    "topic_dead_letters_count": Family(
        ("topic",),
        "Dead letters in the store; of more than 1,000 the first 1,000 are counted.",
        True,
    ),
    "topic_waiting_messages_count_bucket": Family(
        ("topic", "le"), "Messages that fall due within `le` seconds: the next four windows.", True
    ),
    "topic_leases_count": Family(("op", "topic"), "Granted and extended leases."),
    "topic_reservations_count": Family(
        ("found", "topic"),
        "Reservations for a consumer, by whether they found messages: yes or no.",
    ),
    "topic_leases_errors": Family(("op", "topic"), "Refused and failed leases."),
    "topic_leases_body_total_bytes": Family(
        ("topic",), "Bodies, keys and headers of leased messages."
    ),
    "topic_paused": Family(("topic",), "1 while the topic is paused.", True),
    "topic_target_calls_count": Family(
        ("outcome", "topic"),
        "Calls of targets: succeeded, answered_badly, redirected, timed_out, unreachable, not_allowed, "
        "unknown_host, failed; no_turn was not begun.",
    ),
    "topic_throttled_count": Family(
        ("limit", "topic"),
        "How often a limit of the topic held its deliveries up: rate (most_per_s), in_flight.",
    ),
    "topic_throttled_duration_ms": Family(
        ("limit", "topic"), "How long limits of the topic held its deliveries up in all."
    ),
    "topic_quota_refused_count": Family(
        ("group", "quota", "topic"),
        "Creates that a quota, waiting or creates, refused; the 201st group and later ones are (others).",
    ),
    "topic_crowded_count": Family(
        ("topic",), "Messages created in a second that is fuller than the topic can deliver."
    ),
    "topic_schedule_occurrences_count": Family(
        ("outcome", "topic"),
        "Occurrences of schedules: created, or refused, as their id is taken or the topic takes none.",
    ),
    "topic_schedule_held_count": Family(
        ("topic",),
        "How often a schedule waited for a quota of its producer group, once a minute at most.",
    ),
    "broker_commands_count": Family(
        ("command", "topic"), "Requests of clients, pings included; a batch is one."
    ),
    "broker_commands_errors": Family(("command", "topic"), "Failed requests of clients."),
    "broker_refused_count": Family(
        ("edge", "reason"),
        "Refused before any work, at grpc or http: unauthenticated, node_busy, throttled, streams, "
        "connections.",
    ),
    "broker_under_way_bytes": Family(
        (), "Bytes of unanswered requests of all clients, as limits.node_bytes counts them.", True
    ),
    "broker_data_free_bytes": Family(
        (), "Free bytes on the file system of the node's folder, where SQLite keeps its file.", True
    ),
    "broker_shortages_count": Family(
        ("resource",), "How often the process ran short of descriptors, memory, ports or threads."
    ),
    "broker_active_timedrifts_count": Family(
        ("target", "topic"),
        "Clocks beyond limits.clock_bound_ms: of the store (storage), etcd (sync), brokers, clients.",
        True,
    ),
    "broker_active_timedrifts_seconds_avg": Family(
        ("target", "topic"), "The average offset of clocks, also within the bound.", True
    ),
    "broker_ready": Family((), "1 while the broker is ready, as /readyz says, else 0.", True),
    "broker_degradation_state": Family(
        ("type", "topic"), "1 while the broker is degraded, by type; see status.", True
    ),
    "storage_queries_count": Family(_STORAGE, "Queries of the store."),
    "storage_queries_errors": Family(_STORAGE, "Queries that failed, or got no answer."),
    "storage_query_duration_ms": Family(
        _STORAGE, "The total duration of queries, queueing included."
    ),
    "network_broker_bytes_total": Family(
        ("direction", "partner", "topic"),
        "Bytes: frames of clients, messages of etcd (sync), the connections of PostgreSQL (storage).",
    ),
    "network_broker_latency_ms": Family(
        ("partner", "topic"),
        "One-way latency: the average of clients, half of the last round trip of etcd and PostgreSQL.",
        True,
    ),
    "network_broker_tcp_connections_total": Family((), "Open streams.", True),
    "networkbroker_active_channels_total": Family(("type", "topic"), "Open channels.", True),
    "networkbroker_active_channels_errors": Family(
        ("type", "topic"), "Channels that ended with an error."
    ),
}
"""All metrics of the broker besides its lateness, by name."""
LATENESS = "Lateness of first deliveries, as they leave the broker."

_FILTERS = {Role.OWNER: "waiting", Role.HOLDER: "processing", Role.SYSTEM: "all"}


def _query_of(traits: Traits) -> tuple[str, str, str]:
    """The labels of a change: it looks a message up in the state in which its role finds it."""
    removes = traits.effect in (Effect.BURIES, Effect.DELETES)
    return "delete" if removes else "update", "lookup", _FILTERS[traits.role]


_QUERIES: Mapping[str, tuple[str, str, str]] = {
    **{each: _query_of(traits) for each, traits in TRAITS.items()},
    "create": ("create", "lookup", "all"),
    "reserve": ("update", "range", "available"),
    "resume": ("update", "range", "processing"),
    "next_ts": ("read", "range", "all"),
    "count": ("read", "range", "all"),
    "forecast": ("read", "range", "all"),
    "held": ("read", "range", "processing"),
    "await_durable": ("update", "lookup", "all"),
    "purge": ("delete", "range", "all"),
    "create_topic": ("create", "lookup", "all"),
    "drop_topic": ("delete", "lookup", "all"),
    "put_schedule": ("create", "lookup", "all"),
    "delete_schedule": ("delete", "lookup", "all"),
    "step_schedules": ("create", "range", "all"),
    "due_schedules": ("read", "range", "all"),
    "next_schedule": ("read", "range", "all"),
}
_OTHER_QUERY = ("read", "lookup", "all")
_COUNTED: Mapping[str, tuple[str, str]] = {
    "create": ("topic_messages", "create"),
    **{
        each: (
            "topic_leases" if traits.effect is Effect.EXTENDS else "topic_messages",
            traits.counted_as,
        )
        for each, traits in TRAITS.items()
        if traits.counted_as
    },
}
"""The family and the `op` that count the outcomes of a command."""

_OUTLIVE_TOPICS = ("topic_commands_count", "topic_commands_errors")
"""Summed up over deleted topics: otherwise the deletion of a topic would not be visible."""

_OF_TOPICS = frozenset(name for name, each in FAMILIES.items() if each.labels[-1:] == ("topic",))

Sample = tuple[str, tuple[str, ...], float]
"""A name of `FAMILIES`, the values of its labels, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts of all topics since the start, deleted ones included."""

    created: int
    """Messages that producers created."""
    delivered: int
    """Messages that left for a consumer or a target, redeliveries included."""
    lateness: LatenessHistogram


@dataclass(frozen=True, slots=True)
class Snapshot(Collector):
    """The metrics at one moment. Any thread may read it."""

    tags: Mapping[str, str]
    samples: Sequence[Sample]
    lateness: Mapping[str, LatenessHistogram]
    """By topic."""

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return expose(self.collect())

    def collect(self) -> Iterator[Metric]:
        by_name: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for name, labels, value in self.samples:
            by_name[name].append((labels, value))
        for name, family in FAMILIES.items():
            metric = Metric(name, family.help, "gauge" if family.gauge else "counter")
            for labels, value in by_name[name]:
                named = dict(zip(family.labels, labels, strict=True))
                metric.add_sample(name, {**named, **self.tags}, value)
            yield metric
        values = self.tags.values()
        yield lateness_family(
            LATENESS,
            [((topic, *values), each) for topic, each in self.lateness.items()],
            *("topic", *self.tags),
        )


class BrokerMetrics(Collector):
    """The counters of a node, and the samples of the parts that it watches."""

    def __init__(self, cluster: str = "default", tags: Mapping[str, str] | None = None) -> None:
        self._tags = {"cluster": cluster, **(tags or {})}
        # By topic, which is the last label where there is one.
        self._counted: defaultdict[str, defaultdict[tuple[str, tuple[str, ...]], float]]
        self._counted = defaultdict(lambda: defaultdict(float))
        self._lateness: defaultdict[str, LatenessHistogram] = defaultdict(LatenessHistogram)
        self._backlog: dict[str, Sequence[Sample]] = {}
        self._watched: list[Callable[[], Iterable[Sample]]] = []
        self.messages = 0
        """The messages that were changed since the start."""
        self._created = 0
        self._delivered = 0
        self._total_lateness = LatenessHistogram()
        # Present from the start: Prometheus sees the first error as a change.
        for partner in ("producer", "consumer"):
            self.add("networkbroker_active_channels_errors", (partner, ""), 0)

    def watch(self, part: Callable[[], Iterable[Sample]]) -> None:
        """Asks this part for samples at every scrape."""
        self._watched.append(part)

    def add(self, name: str, labels: tuple[str, ...], value: float = 1) -> None:
        topic = labels[-1] if name in _OF_TOPICS else ""
        self._counted[topic][name, labels] += value

    def show_backlog(self, samples: Mapping[str, Sequence[Sample]]) -> None:
        """Replaces the counts of messages, by topic."""
        self._backlog = dict(samples)

    # Deleted topics

    @property
    def topics(self) -> set[str]:
        """The names of topics that have samples."""
        return {*self._counted, *self._lateness, *self._backlog} - {""}

    def forget_topic(self, topic: str) -> None:
        """Forgets a deleted topic. Later counts of it need another call."""
        for (name, labels), value in self._counted.pop(topic, {}).items():
            if name in _OUTLIVE_TOPICS:
                self.add(name, (*labels[:-1], ""), value)
        self._lateness.pop(topic, None)
        self._backlog.pop(topic, None)

    # Counting

    @contextmanager
    def command(
        self, command: str, topic: str, *, family: str = "broker_commands"
    ) -> Iterator[None]:
        """Counts a command, and its failure. Commands on topics have a family of their own."""
        try:
            yield
        except Exception:
            self.add(f"{family}_errors", (command, topic))
            raise
        finally:
            self.add(f"{family}_count", (command, topic))

    def changed(self, command: str, topic: str, outcomes: Sequence[Outcome]) -> None:
        """Counts the outcomes of a batch, unless it changes dead letters."""
        if command not in _COUNTED:
            return
        family, op = _COUNTED[command]
        done = sum(1 for each in outcomes if each.done)
        self.messages += done
        if command == "create":
            self._created += done
        self.add(f"{family}_count", (op, topic), done)
        if done < len(outcomes):
            self.add(f"{family}_errors", (op, topic), len(outcomes) - done)

    def reserved(self, topic: str, grant: Grant) -> None:
        """Counts a reservation for a consumer, and its leases."""
        self.add("topic_reservations_count", ("yes" if grant.leased else "no", topic))
        self.add("topic_leases_count", ("create", topic), len(grant.leased))
        size = sum(each.content_bytes for each in grant.leased)
        self.add("topic_leases_body_total_bytes", (topic,), size)
        if grant.refused:
            self.add("topic_leases_errors", ("create", topic), len(grant.refused))

    def pushed(self, topic: str, leased: Sequence[LeasedMessage], now_ms: int) -> None:
        """Observes the lateness of first deliveries, as they leave."""
        lateness = self._lateness[topic]
        self._delivered += len(leased)
        for each in leased:
            if not each.redelivered:
                late_ms = max(0, now_ms - each.message.due)
                lateness.observe(late_ms)
                self._total_lateness.observe(late_ms)

    def called(self, topic: str, outcome: str) -> None:
        """Counts a call of a topic's target."""
        self.add("topic_target_calls_count", (outcome, topic))

    def refused(self, edge: str, reason: str) -> None:
        """Counts a request or a connection that was refused before any work on it."""
        self.add("broker_refused_count", (edge, reason))

    def queried(self, query: str, topic: str, *, took_s: float) -> None:
        labels = (*_QUERIES.get(query, _OTHER_QUERY), topic)
        self.add("storage_queries_count", labels)
        self.add("storage_query_duration_ms", labels, took_s * 1000)

    def query_failed(self, query: str, topic: str) -> None:
        labels = (*_QUERIES.get(query, _OTHER_QUERY), topic)
        self.add("storage_queries_count", labels)
        self.add("storage_queries_errors", labels)

    def failed(self, what: str, topic: str = "") -> None:
        """Counts the failure of a part of the broker that is restarted."""
        self.add("broker_commands_errors", (what, topic))

    # Showing

    def totals(self) -> Totals:
        lateness = self._total_lateness.copy()
        return Totals(created=self._created, delivered=self._delivered, lateness=lateness)

    def lateness_of(self, topic: str) -> LatenessHistogram:
        """Of the first deliveries of a topic by this broker."""
        found = self._lateness.get(topic)
        return LatenessHistogram() if found is None else found.copy()

    def snapshot(self) -> Snapshot:
        """A copy of all samples. Call it in the event loop, which owns the watched parts."""
        samples = [
            (name, labels, value)
            for counted in self._counted.values()
            for (name, labels), value in counted.items()
        ]
        for shown in self._backlog.values():
            samples += shown
        for part in self._watched:
            samples += part()
        lateness = {topic: each.copy() for topic, each in self._lateness.items()}
        return Snapshot(self._tags, samples, lateness)

    def collect(self) -> Iterator[Metric]:
        return self.snapshot().collect()
