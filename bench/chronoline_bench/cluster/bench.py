"""The bench `cluster`: brokers, an etcd and a PostgreSQL on this machine, with their clients in this process.

The cases: `kill`, the gap of a killed broker's consumers; `lateness`, three brokers beside one; `overlap`,
consumers of two racks beside those of one; `connected`, many consumers at one broker; `deletion`, the time
until the name of a deleted topic is free.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

from chronoline.core.errors import ChronolineError
from chronoline.core.lateness import Lateness
from chronoline.testing.cluster import LocalCluster
from chronoline.testing.cluster_load import ClusterLoad
from chronoline_bench.cluster.deletion import DeletionSizes, measure_deletion
from chronoline_bench.cluster.fail_over import GAP_PARTS, Gap, Steps, recorded_steps
from chronoline_bench.harness.cores import CoreMeter, Part, family
from chronoline_bench.report import PERCENTILES, Wanted
from chronoline_bench.session import Session
from chronoline_bench.tally import Tally

FAIL_OVER = Wanted(value_at_most=4)
BESIDE_ONE = Wanted(at_most=1.3)
_PATIENCE_S = 60.0
_TOPIC = "bench"
_BROKERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSizes:
    kills: int
    rate: int
    consumers: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessSizes:
    rate: int
    seconds: float
    consumers: int = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedSizes:
    consumers: int
    clients: int
    rate: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of all cases."""

    kill: KillSizes
    lateness: LatenessSizes
    overlap: LatenessSizes
    connected: ConnectedSizes
    deletion: DeletionSizes


FULL = Sizes(
    kill=KillSizes(kills=10, rate=240),
    lateness=LatenessSizes(rate=1_000, seconds=20),
    overlap=LatenessSizes(rate=500, seconds=20),
    connected=ConnectedSizes(consumers=1_000, clients=20, rate=1_000, seconds=20),
    deletion=DeletionSizes(messages=1_000_000),
)
QUICK = Sizes(
    kill=KillSizes(kills=2, rate=120),
    lateness=LatenessSizes(rate=200, seconds=4),
    overlap=LatenessSizes(rate=100, seconds=4),
    connected=ConnectedSizes(consumers=100, clients=10, rate=200, seconds=4),
    deletion=DeletionSizes(messages=20_000),
)


def measure(session: Session) -> None:
    measure_sizes(session, QUICK if session.quick else FULL)


def measure_sizes(session: Session, sizes: Sizes) -> None:
    """Measures the chosen cases in this order; all if none is chosen."""
    session.notes += _notes()
    cases: dict[str, Callable[[], None]] = {
        "kill": lambda: measure_kill(session, sizes.kill),
        "lateness": lambda: measure_lateness(session, sizes.lateness),
        "overlap": lambda: measure_overlap(session, sizes.overlap),
        "connected": lambda: measure_connected(session, sizes.connected),
        "deletion": lambda: measure_deletion(session, sizes.deletion),
    }
    session.measure_cases(cases)


def _notes() -> tuple[str, ...]:
    return (
        "brokers, etcd, PostgreSQL and clients share the same cores; all clients are one process",
        "gap: from the kill of a broker until each of its consumers has its next message, at another broker",
        "late: from the due time until the consumer has the message",
    )


@contextmanager
def _cluster(
    session: Session, name: str, brokers: int, settings: Sequence[str] = ()
) -> Iterator[LocalCluster]:
    with LocalCluster(session.folder / name, brokers, settings) as cluster:
        yield cluster


def _names(number: int) -> list[str]:
    return [f"consumer-{each:04}" for each in range(number)]


async def _served(load: ClusterLoad, names: Sequence[str]) -> None:
    """Waits until every consumer has had a message: all shares are dealt."""
    if not await load.until(lambda: load.served == set(names), _PATIENCE_S):
        raise ChronolineError(f"some consumers got no message within {_PATIENCE_S:g} s")


async def _finish(session: Session, load: ClusterLoad) -> None:
    """Waits for the last message, and counts what must be 0."""
    await load.end_sending()
    await load.until(lambda: load.is_complete, _PATIENCE_S)
    found = load.tally()
    session.tally.add(Tally(lost=found.lost, duplicated=found.double, early=found.early))


# The case `kill`


def measure_kill(session: Session, sizes: KillSizes) -> None:
    with (
        session.show.work("kill -9 of a broker", sizes.kills) as advance,
        _cluster(session, "kill", _BROKERS) as cluster,
    ):
        gaps, again = asyncio.run(_kill(session, sizes, cluster, advance))
    report_kill(session, sizes, gaps, again)


async def _kill(
    session: Session, sizes: KillSizes, cluster: LocalCluster, advance: Callable[[int], None]
) -> tuple[list[Gap], int]:
    names, gaps = _names(sizes.consumers), list[Gap]()
    load = ClusterLoad(cluster.addresses, topic=_TOPIC, consumers=names, per_s=sizes.rate)
    with recorded_steps() as steps:
        async with load:
            await _served(load, names)
            for _ in range(sizes.kills):
                connected = [(set(each.consumers()), each) for each in cluster.brokers]
                orphans, victim = max(connected, key=lambda each: len(each[0]))
                killed_s = time.monotonic()
                await asyncio.to_thread(victim.kill)
                served = partial(_were_served_again, load, steps, orphans, killed_s)
                await load.until(served, _PATIENCE_S)
                gaps += steps.gaps(_whole_gaps_s(load, steps, orphans, killed_s), killed_s)
                await asyncio.to_thread(cluster.start)
                advance(1)
            await _finish(session, load)
    return gaps, load.tally().again


def _were_served_again(
    load: ClusterLoad, steps: Steps, orphans: Collection[str], killed_s: float
) -> bool:
    return len(_whole_gaps_s(load, steps, orphans, killed_s)) == len(orphans)


def _whole_gaps_s(
    load: ClusterLoad, steps: Steps, orphans: Collection[str], killed_s: float
) -> dict[str, float]:
    """The gaps of the consumers that have a message from another broker.

    A message that the killed broker had pushed may be handed over after the kill; it does not count.
    """
    gaps_s: dict[str, float] = {}
    for name in orphans:
        resumed_s = steps.resumed_s(name, killed_s)
        if resumed_s is not None:
            for next_s in load.gaps_s([name], resumed_s).values():
                gaps_s[name] = resumed_s - killed_s + next_s
    return gaps_s


def report_kill(session: Session, sizes: KillSizes, gaps: Sequence[Gap], again: int) -> None:
    if not gaps:
        raise ChronolineError("no broker that was killed had consumers")
    case = f"kill -9 of one of {_BROKERS} brokers, {sizes.kills} times, {sizes.rate:,} messages/s"
    whole_s = [gap.whole_s for gap in gaps]
    session.add(case, "gap of its consumers, p50", median(whole_s), "s")
    session.add(case, "gap of its consumers, max", max(whole_s), "s", wanted=FAIL_OVER)
    longest = max(gaps, key=lambda gap: gap.whole_s)
    for part in GAP_PARTS:
        session.add(case, f"of it: {part}, p50", median(gap.parts_s[part] for gap in gaps), "s")
        session.add(case, f"of the longest: {part}", longest.parts_s[part], "s")
    mean_s = sizes.consumers / sizes.rate
    session.add(case, "mean time between two messages of a consumer", mean_s, "s")
    session.add(case, "consumers that changed their broker", len(gaps), "consumers")
    session.add(case, "messages delivered again, whose ack was lost", again, "messages")


# The case `lateness`


@dataclass(frozen=True, slots=True)
class Steady:
    """A steady load: its lateness, and the cores that each part used."""

    late: Lateness
    cores: dict[str, float]
    memory_mib: float
    """Of the brokers together."""


def measure_lateness(session: Session, sizes: LatenessSizes) -> None:
    found: dict[int, Steady] = {}
    with session.show.work("three brokers beside one", 2) as advance:
        for brokers in (1, _BROKERS):
            with _cluster(session, f"lateness-{brokers}", brokers) as cluster:
                names = _names(sizes.consumers)
                load = ClusterLoad(
                    cluster.addresses, topic=_TOPIC, consumers=names, per_s=sizes.rate
                )
                found[brokers] = asyncio.run(_steady(session, cluster, load, names, sizes.seconds))
            advance(1)
    report_lateness(session, sizes, found[_BROKERS], found[1])


async def _steady(
    session: Session,
    cluster: LocalCluster,
    load: ClusterLoad,
    names: Sequence[str],
    seconds: float,
) -> Steady:
    async with load:
        await _served(load, names)
        meter, begins_s = CoreMeter(_parts(cluster)), time.monotonic()
        await asyncio.sleep(seconds)  # the measured span
        cores = meter.read()
        late = Lateness.of([each.late_ms for each in load.deliveries if each.at_s >= begins_s])
        memory = sum(each.memory_info().rss for each in family(*_pids(cluster))) / 2**20
        await _finish(session, load)
    return Steady(late, cores, memory)


def _pids(cluster: LocalCluster) -> list[int]:
    return [broker.pid for broker in cluster.brokers if broker.pid is not None]


def _parts(cluster: LocalCluster) -> dict[str, Part]:
    assert cluster.etcd.pid is not None
    assert cluster.postgres.pid is not None
    return {
        "brokers": Part(pids=_pids(cluster)),
        "PostgreSQL": Part(pids=[cluster.postgres.pid]),
        "etcd": Part(pids=[cluster.etcd.pid]),
        "clients": Part(pids=[os.getpid()], is_alone=True),
    }


def report_lateness(session: Session, sizes: LatenessSizes, three: Steady, one: Steady) -> None:
    case = f"{_BROKERS} brokers, {sizes.rate:,} messages/s to {sizes.consumers} consumers"
    for name, attribute in PERCENTILES.items():
        session.add(
            case,
            f"late, {name}",
            getattr(three.late, attribute),
            "ms",
            beside=(f"one broker, {name}", getattr(one.late, attribute)),
            wanted=BESIDE_ONE if name == "p99" else None,
        )
    for part, cores in three.cores.items():
        session.add(case, part, cores, "cores", beside=("one broker", one.cores[part]))


# The case `overlap`


@dataclass(frozen=True, slots=True)
class Reserving:
    """Requests of the brokers to the store during a steady load, a second."""

    reservations: float
    in_vain: float
    """Reservations of a consumer that found nothing: at most those of its backup ranges, and of ticks."""
    refused: float
    """Leases that were refused because another broker's consumer had them."""


def measure_overlap(session: Session, sizes: LatenessSizes) -> None:
    found: dict[str, tuple[Steady, Reserving]] = {}
    with session.show.work("two racks beside one", 2) as advance:
        for dealer, racks in _DEALERS.items():
            with _cluster(session, f"overlap-{len(racks)}", _BROKERS) as cluster:
                names = _names(sizes.consumers)
                load = ClusterLoad(
                    cluster.addresses,
                    topic=_TOPIC,
                    consumers=names,
                    per_s=sizes.rate,
                    racks=racks,
                )
                before = _queries(cluster)
                began_s = time.monotonic()
                steady = asyncio.run(_steady(session, cluster, load, names, sizes.seconds))
                asked = _queries(cluster)
                asked.subtract(before)
                took_s = time.monotonic() - began_s
                found[dealer] = steady, Reserving(*(asked[each] / took_s for each in _ASKED))
            advance(1)
    report_overlap(session, sizes, found)


_DEALERS: dict[str, Sequence[str]] = {"simple ranges": ("",), "rack-aware": ("rack-a", "rack-b")}
_ASKED = {
    "reservations": ("topic_reservations_count", ""),
    "in_vain": ("topic_reservations_count", 'found="no"'),
    "refused": ("topic_leases_errors", 'op="create"'),
}
"""The metrics of the fields of `Reserving`, and a label of the samples that count."""


def _queries(cluster: LocalCluster) -> Counter[str]:
    """The sums of these counters over all brokers."""
    found: Counter[str] = Counter()
    for broker in cluster.brokers:
        for line in broker.metrics().splitlines():
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            for field, (metric, label) in _ASKED.items():
                if name == metric and label in labels:
                    found[field] += int(float(value))
    return found


def report_overlap(
    session: Session, sizes: LatenessSizes, found: Mapping[str, tuple[Steady, Reserving]]
) -> None:
    simple, simply = found["simple ranges"]
    aware, awarely = found["rack-aware"]
    case = (
        f"two racks, {_BROKERS} brokers, {sizes.rate:,} messages/s to {sizes.consumers} consumers"
    )
    for metric in ("reservations", "in_vain", "refused"):
        session.add(
            case,
            {"in_vain": "reservations in vain", "refused": "leases refused"}.get(metric, metric),
            getattr(awarely, metric),
            "a second",
            beside=("one rack", getattr(simply, metric)),
        )
    session.add(case, "late, p99", aware.late.p99_ms, "ms", beside=("one rack", simple.late.p99_ms))


# The case `connected`


def measure_connected(session: Session, sizes: ConnectedSizes) -> None:
    names = _names(sizes.consumers)
    # A stream for each consumer, and some for those that send and ask.
    room = f"limits.connections={sizes.consumers + 2 * sizes.clients}"
    with (
        session.show.work("many consumers at one broker", 1),
        _cluster(session, "connected", 1, [room]) as cluster,
    ):
        idle_mib = sum(each.memory_info().rss for each in family(*_pids(cluster))) / 2**20
        load = ClusterLoad(
            cluster.addresses,
            topic=_TOPIC,
            consumers=names,
            per_s=sizes.rate,
            clients=sizes.clients,
        )
        found = asyncio.run(_steady(session, cluster, load, names, sizes.seconds))
    report_connected(session, sizes, found, idle_mib)


def report_connected(
    session: Session, sizes: ConnectedSizes, found: Steady, idle_mib: float
) -> None:
    case = f"{sizes.consumers:,} consumers at one broker, {sizes.rate:,} messages/s"
    for name, attribute in PERCENTILES.items():
        session.add(case, f"late, {name}", getattr(found.late, attribute), "ms")
    session.add(
        case, "memory of the broker", found.memory_mib, "MiB", beside=("without clients", idle_mib)
    )
    for part, cores in found.cores.items():
        session.add(case, part, cores, "cores")
