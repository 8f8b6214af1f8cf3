"""The status of a pipe, read from its store and its input, whether or not a process of it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chronoline.core.errors import ChronolineError
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.topic import Topic
from chronoline.pipe.claims import source_name
from chronoline.pipe.counters import Counters
from chronoline.pipe.inputs import open_input
from chronoline.pipe.lane_tasks import lane_tasks, node_counters
from chronoline.pipe.places import check_log
from chronoline.pipe.settings import PipeSettings
from chronoline.stores.contract import Counts, Store
from chronoline.stores.inputs import InputAccount, Tally
from chronoline.stores.members import pipe_members

MOST_DEAD_LETTERS = 10_000
"""The most dead letters that are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One process of a pipe, by its last heartbeat and those of its tasks."""

    name: str
    alive: bool
    stopping: bool
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    account: InputAccount
    lag: int | None
    """None if the input is unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStatus:
    name: str
    on_timeline: Counts
    dead_letters: int
    nodes: tuple[NodeStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    input_problem: str | None

    @property
    def tally(self) -> Tally:
        """The outcomes of all records that were taken in."""
        return sum((each.account.tally for each in self.partitions), Tally())

    @property
    def lag(self) -> int | None:
        if self.input_problem:
            return None
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def total(self) -> Counters:
        """The sum of the counts of all processes since their starts."""
        total = Counters()
        for node in self.nodes:
            total.add(node.counters)
        return total


def read_status(settings: PipeSettings, store: Store, now_ms: int) -> PipeStatus:
    """The status, with the lag that the input shows."""
    topic = store.find_topic(settings.name)
    source, latest, problem = _ask_input(settings)
    if topic is not None:
        return status_in_store(store, topic, now_ms, source=source, latest=latest, problem=problem)
    return PipeStatus(
        name=settings.name,
        on_timeline=Counts(),
        dead_letters=0,
        nodes=(),
        partitions=_partitions(store, source, latest, problem),
        input_problem=problem,
    )


def status_in_store(
    store: Store,
    topic: Topic,
    now_ms: int,
    *,
    source: str = "",
    latest: Mapping[int, int] | None = None,
    problem: str | None = "the input was not asked",
) -> PipeStatus:
    """The status as the store has it. With a `problem` the input is the one that the pipes named."""
    members, tasks = pipe_members(store, topic), lane_tasks(store, topic)
    if problem:  # the pipes read it at their start
        source = next((Counters.from_json(each.details).source for each in members), "")
    return PipeStatus(
        name=topic.name,
        on_timeline=_count(store, topic, now_ms),
        dead_letters=_count_dead(store, topic),
        nodes=tuple(
            NodeStatus(
                name=member.name,
                alive=member.alive(now_ms),
                stopping=member.stopping,
                counters=node_counters(member, tasks),
            )
            for member in members
        ),
        partitions=_partitions(store, source, latest or {}, problem),
        input_problem=problem,
    )


def _partitions(
    store: Store, source: str, latest: Mapping[int, int], problem: str | None
) -> tuple[PartitionStatus, ...]:
    return tuple(
        PartitionStatus(
            account=account,
            lag=None if problem else max(0, latest.get(account.partition, 0) - account.position),
        )
        for account in store.input_accounts(source)
    )


def _ask_input(settings: PipeSettings) -> tuple[str, dict[int, int], str | None]:
    """The name of the input in the store, the ends of its partitions, and its problem."""
    try:
        check_log(settings.input)
        with open_input(settings.input, settings.name) as source:
            return source_name(settings, source.identity()), source.latest(), None
    except ChronolineError as error:
        return "", {}, str(error)


def _count(store: Store, topic: Topic, now_ms: int) -> Counts:
    return store.count(topic.uid, topic.all_buckets, start=0, end=MAX_TIME_MS, now_ms=now_ms)


def _count_dead(store: Store, topic: Topic) -> int:
    return len(store.dead_letters(topic.uid, limit=MOST_DEAD_LETTERS))
