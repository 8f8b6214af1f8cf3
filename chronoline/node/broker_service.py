"""The broker of a node: all its parts, started and stopped together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from chronoline.broker.auth import Door
from chronoline.broker.carrier import Carrier
from chronoline.broker.client_clocks import Timekeeper, average_seconds, wall_us_of
from chronoline.broker.cluster.agreement import Agreement
from chronoline.broker.cluster.clocks import ClusterClocks
from chronoline.broker.cluster.member import ClusterMember, MemberOptions
from chronoline.broker.context import BrokerContext
from chronoline.broker.degradation import Degradation, Degradations, DegradationType
from chronoline.broker.gate import Gate, Work
from chronoline.broker.grpc.producer_stream import ProducerClientStream
from chronoline.broker.grpc.server import GrpcEdge
from chronoline.broker.limits import Limits
from chronoline.broker.loaders import Loaders
from chronoline.broker.metrics import BrokerMetrics, Sample
from chronoline.broker.occurrences import Occurrences
from chronoline.broker.overseer import LoadMeter, Overseer
from chronoline.broker.schedules import Schedules
from chronoline.broker.shares import LocalShares, ShareFactory
from chronoline.broker.store_access import StoreAccess
from chronoline.broker.store_probe import StoreProbe
from chronoline.broker.store_watch import StoreWatch
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.targets import Targets
from chronoline.broker.topic_lifecycle import TopicLifecycle
from chronoline.broker.topic_watch import TopicWatch
from chronoline.broker.topics import Topics
from chronoline.broker.trusted_clock import TrustedClock, compare_clocks, watch_clock
from chronoline.callbacks.address_guard import AddressGuard
from chronoline.callbacks.caller import Caller
from chronoline.coordination.contract import Coordination
from chronoline.coordination.factory import EMBEDDED, open_coordination
from chronoline.coordination.membership import BrokerLoad
from chronoline.core.errors import ChronolineError
from chronoline.core.quotas import GroupOverrides
from chronoline.core.topic import Topic
from chronoline.core.version import VERSION
from chronoline.runtime.admission import Admission
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.descriptors import SHORTAGES
from chronoline.runtime.gc_tuning import switch_often
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise
from chronoline.stores.contract import Store
from chronoline.stores.purge_pace import PurgePace

if TYPE_CHECKING:
    from chronoline.broker.http.console_mount import ConsoleFactory
    from chronoline.broker.http.server import HttpEdge

logger = logging.getLogger(__name__)

_PURGE_ROWS = 1_000
_UPKEEP_EVERY_S = 1.0
"""The shortest time between two purges; no request waits for them."""
_MOST_NAMES = 5
"""The most names in a reason."""
Address = tuple[str, int]
"""A host and a port."""


class BrokerService(AsyncService):
    """One broker on one store, from `start` to `stop`. The caller closes the store, after that."""

    def __init__(  # noqa: PLR0913 - each part of a node, with a default
        self,
        store: Store,
        *,
        grpc_address: Address = ("127.0.0.1", 7400),
        http_address: Address | None = None,
        limits: Limits | None = None,
        door: Door | None = None,
        clock: Clock | None = None,
        metrics: BrokerMetrics | None = None,
        patience_s: float = 10.0,
        calls: TargetPolicy | None = None,
        admission: Admission | None = None,
        upkeep_every_s: float = _UPKEEP_EVERY_S,
        shares: ShareFactory | None = None,
        coordination: Coordination | None = None,
        member: MemberOptions | None = None,
        console: ConsoleFactory | None = None,
        quotas: GroupOverrides | None = None,
    ) -> None:
        """Port 0 picks a free port. Without `http_address` there is no HTTP.

        `patience_s` is the time-out of the store; after it a change is answered as unknown.
        Without `calls` the targets of topics are called with the defaults, on loopback too. `admission` is
        given by a caller that has other services in the same process. `coordination` is where
        it meets other brokers; it is started and stopped with this broker. Without it the broker is alone.
        `console` makes the pages for browsers; without it there are none.
        `shares` makes the source of the shares of a topic's consumers; without it they follow from the
        agreement of the brokers, or, in a broker that is alone, from its own consumers. `quotas` replace
        those of topics for some producer groups.
        """
        self._store = store
        self._grpc_address = grpc_address
        self._http_address = http_address
        self._limits = limits or Limits()
        self._door = door or Door()
        self._clock = clock or SystemClock()
        self.metrics = metrics or BrokerMetrics()
        self._patience_s = patience_s
        self._calls = calls
        self._upkeep_every_s = upkeep_every_s
        self._shares = shares
        self._pace = PurgePace(upkeep_every_s)
        self._admission = admission or self._limits.admission()
        self._coordination = coordination
        self._console = console
        self.agreement: Agreement | None = None
        """With other brokers; None for one that is alone."""
        self._load = LoadMeter(time.monotonic(), time.process_time())
        self._run = f"b-{new_id()}"
        given = member or MemberOptions()
        self._options = replace(given, name=given.name or self._run)
        self._quotas = quotas
        self._exits = AsyncExitStack()
        self.grpc: GrpcEdge | None = None
        self.http: HttpEdge | None = None
        self.parts: BrokerContext | None = None
        self._topic_watch: TopicWatch | None = None

    @property
    def broker(self) -> str:
        """The name of this broker in its cluster."""
        return self._options.name

    async def _start(self) -> None:
        switch_often()  # storage threads would delay the event loop
        access = StoreAccess(
            self._store,
            self._clock,
            self.metrics,
            patience_s=self._patience_s,
            clock_bound_ms=self._limits.clock_bound_ms,
        )
        self._exits.push_async_callback(access.stop)
        await compare_clocks(access.clock, access.compare_clocks)
        member = ClusterMember(
            self._coordination or open_coordination(EMBEDDED),
            self._options,
            # A broker that is alone has nothing to compare with.
            None if self._coordination is None else access.identity,
        )
        await self._exits.enter_async_context(member)
        overseer = Overseer(
            member.coordination,
            lambda: member.record,
            self.metrics.failed,
            takes_part=lambda: member.takes_part,
        )
        await self._exits.enter_async_context(overseer)
        gate = Gate(access, lambda: member.problem, lambda: member.problem_details)
        shares = self._shares or await self._share_factory(member, gate)
        loaders = Loaders(
            access, self._clock, self.metrics, gate, shares, latest=self._latest_topic
        )
        self._exits.push_async_callback(loaders.stop)
        lifecycle = TopicLifecycle(
            member.coordination,
            access,
            access.clock,
            broker=self.broker,
            session=lambda: member.session,
            failed=self.metrics.failed,
        )
        calls = self._calls
        if calls is None:
            caller = await self._exits.enter_async_context(
                Caller(AddressGuard(loopback=lambda: self._door.is_open))
            )
            calls = TargetPolicy(caller=caller)
        topics = Topics(
            access,
            lifecycle,
            self.metrics,
            frame_bytes=self._limits.frame_bytes,
            deleted=self._topic_deleted,
            learned=self._topic_learned,
            latest=self._latest_topic,
            target_refusal=calls.caller.refusal,
        )
        carrier = Carrier(
            access, topics, loaders, self._clock, self.metrics, overrides=self._quotas
        )
        self._exits.push_async_callback(carrier.stop)
        occurrences = Occurrences(
            access, gate, self.metrics, topics, carrier.quotas, turn=overseer.turn
        )
        clocks = ClusterClocks(member, self._clock, bound_ms=self._limits.clock_bound_ms)
        await self._exits.enter_async_context(clocks)
        probe = StoreProbe(access, self._store_changed)
        self._exits.callback(probe.stop)
        self.parts = BrokerContext(
            broker=self.broker,
            run=self._run,
            member=member,
            overseer=overseer,
            clocks=clocks,
            agreement=self.agreement,
            version=VERSION,
            access=access,
            topics=topics,
            loaders=loaders,
            carrier=carrier,
            schedules=Schedules(access, topics, occurrences, most=self._limits.schedules),
            gate=gate,
            degradation=Degradations(probe, gate),
            clock=self._clock,
            timekeeper=Timekeeper(
                wall_us_of(self._clock), is_trusted=lambda: not access.clock.problem
            ),
            metrics=self.metrics,
            limits=self._limits,
            admission=self._admission,
        )
        for find in (clocks.degradations, loaders.degradations, self._throttled_producers):
            self.parts.degradation.watch(find)
        self.metrics.watch(clocks.samples)
        topic_watch = TopicWatch(access, self._topic_changed, self.metrics.failed)
        self._topic_watch = topic_watch
        self.metrics.watch(topic_watch.samples)
        await self._exits.enter_async_context(lifecycle)
        await self._exits.enter_async_context(
            StoreWatch(
                self._store,
                access,
                loaders.noticed,
                lambda: list(
                    {each.topic.uid: each.topic for each in loaders.subscriptions}.values()
                ),
                topics_noticed=topic_watch.noticed,
                schedules_changed=occurrences.changed,
            )
        )
        # After the watch, so that nothing is missed in between.
        await self._exits.enter_async_context(topic_watch)
        works = {
            "probing the store": probe.run,
            "describing the broker": self._keep_describing,
            "purging": self._keep_purging,
            "watching the clock": self._watch_clock,
        }
        for what, work in works.items():
            self._exits.callback(supervise(what, work, self.metrics.failed).cancel)
        if "carrier" in self._options.roles:
            await self._exits.enter_async_context(Targets(self.parts, calls))
            await self._exits.enter_async_context(occurrences)
        self.metrics.watch(self._samples)
        await self._listen(self.parts)
        self._describe()

    async def _share_factory(self, member: ClusterMember, gate: Gate) -> ShareFactory:
        """A broker that is alone needs no agreement: its own consumers are all there are."""
        if self._coordination is None:
            return LocalShares
        self.agreement = Agreement(
            member,
            self._clock,
            may_decide=lambda: gate.closure(Work.RESERVE) is None,
            failed=self.metrics.failed,
        )
        await self._exits.enter_async_context(self.agreement)
        return self.agreement.shares

    def _clock_moved(self) -> None:
        assert self.parts is not None
        self.parts.loaders.moved()
        self.parts.schedules.clock_moved()
        if self.agreement is not None:
            self.agreement.moved()

    async def _listen(self, parts: BrokerContext) -> None:
        http = self._http_edge(parts)  # before a client is served, since its import takes long
        host, port = self._grpc_address
        self.grpc = GrpcEdge(parts, self._door, host=host, port=port)
        await self._exits.enter_async_context(self.grpc)
        parts.member.appear(f"{host}:{self.grpc.port}")
        if http is not None:
            self.http = http
            await self._exits.enter_async_context(http)

    def _http_edge(self, parts: BrokerContext) -> HttpEdge | None:
        if self._http_address is None:
            return None
        # FastAPI is slow to import, and a node for gRPC alone does without it.
        from chronoline.broker.http.server import HttpEdge  # noqa: PLC0415

        host, port = self._http_address
        return HttpEdge(parts, self._door, host=host, port=port, console=self._console)

    async def _stop(self) -> None:
        """Stops leasing, answers requests under way, and disconnects streams."""
        if self.parts is not None:
            self.parts.degradation.stop()
            self._describe()
        if self.grpc is not None:
            self.grpc.go_away()  # before HTTP, whose polls take time to end
        await self._exits.aclose()

    async def _watch_clock(self) -> None:
        assert self.parts is not None
        access = self.parts.access
        await watch_clock(
            access.clock,
            self.parts.timekeeper,
            ask=access.compare_clocks,
            changed=self._clock_moved,
        )

    def _store_changed(self) -> None:
        """The store does not answer any more, or does again: nobody waits for a timer to hear of it."""
        assert self.parts is not None
        self.parts.degradation.log_changes()
        self.parts.loaders.store_changed()
        self._describe()
        self.parts.overseer.look()

    async def _keep_describing(self) -> None:
        assert self.parts is not None
        while True:
            await asyncio.sleep(self._upkeep_every_s)
            self.parts.loaders.tidy()
            self.parts.degradation.log_changes()
            self._describe()

    async def _keep_purging(self) -> None:
        assert self.parts is not None
        while True:
            await asyncio.sleep(self._upkeep_every_s)
            gate = self.parts.gate
            if gate.closure(Work.PURGE) or gate.store_problem or not self._pace.is_due:
                continue
            try:
                await self._purge()
            except ChronolineError as error:
                logger.warning("purging failed; trying again: %s", error)

    def _describe(self) -> None:
        """Shows the load and the problems of this broker to the others."""
        assert self.parts is not None
        subscriptions = self.parts.loaders.subscriptions
        topics = {each.topic.uid for each in subscriptions}
        degraded = (*self.parts.degradation.current, *self.parts.degradation.notices)
        problems = {each.type.value: each.public for each in degraded}
        messages_per_s, core_percent = self._load.measure(
            time.monotonic(), time.process_time(), self.metrics.messages
        )
        load = BrokerLoad(len(topics), len(subscriptions), messages_per_s, core_percent)
        self.parts.member.describe(load, problems)

    async def _purge(self) -> None:
        assert self.parts is not None
        purged = _PURGE_ROWS
        removed = 0
        while purged == _PURGE_ROWS:
            now_ms = self.parts.access.clock.now_ms()
            purged = await self.parts.access.call(
                "purge",
                lambda store, now_ms=now_ms: store.purge(limit=_PURGE_ROWS, now_ms=now_ms),  # type: ignore[misc]  # of this turn
            )
            removed += purged
        self._pace.purged(removed)

    def _topic_deleted(self, topic_uid: int) -> None:
        assert self.parts is not None
        loader = self.parts.loaders.of(topic_uid)
        if loader is not None:
            loader.topic_deleted()

    def _topic_learned(self, topic: Topic) -> None:
        assert self._topic_watch is not None
        self._topic_watch.learn(topic)

    def _latest_topic(self, topic: Topic) -> Topic:
        return topic if self._topic_watch is None else self._topic_watch.latest(topic)

    def _topic_changed(self, topic: Topic) -> None:
        assert self.parts is not None
        self.parts.topics.refresh(topic)
        self.parts.loaders.topic_changed(topic)

    def _traffic_samples(self) -> Iterable[Sample]:
        """The traffic with etcd and with the store's server, if the broker has them."""
        assert self.parts is not None
        coordination = self.parts.member.coordination
        for partner, traffic in (("sync", coordination.traffic), ("storage", self._store.traffic)):
            if traffic is None:
                continue
            for direction, count in (("out", traffic.out_bytes), ("in", traffic.in_bytes)):
                yield "network_broker_bytes_total", (direction, partner, ""), count
            if traffic.latency_ms is not None:
                yield "network_broker_latency_ms", (partner, ""), traffic.latency_ms

    def _samples(self) -> Iterable[Sample]:
        assert self.parts is not None
        assert self.grpc is not None
        sessions = self.grpc.sessions
        requests = 0 if self.http is None else self.http.connections
        yield "network_broker_tcp_connections_total", (), len(sessions) + requests
        for partner in ("producer", "consumer"):
            those = [each for each in sessions if each.partner == partner]
            yield "networkbroker_active_channels_total", (partner, ""), len(those)
            drifting = [each for each in those if each.measured.drifting]
            yield "broker_active_timedrifts_count", (partner, ""), len(drifting)
            seconds = average_seconds(each.measured.drift_us for each in those)
            yield "broker_active_timedrifts_seconds_avg", (partner, ""), seconds
            latencies = [each.measured.latency_us / 1000 for each in those]
            if latencies:
                mean = sum(latencies) / len(latencies)
                yield "network_broker_latency_ms", (partner, ""), mean
        yield from self._traffic_samples()
        yield "broker_under_way_bytes", (), self._admission.under_way_bytes
        for resource, count in SHORTAGES.counted.items():
            yield "broker_shortages_count", (resource,), count
        current = self.parts.degradation.current
        yield "broker_ready", (), float(not current)
        found = (*current, *self.parts.degradation.notices)
        degraded = {each.type for each in found}
        for kind in DegradationType:
            yield "broker_degradation_state", (kind.value, ""), float(kind in degraded)
        for each in found:
            if each.topic:
                yield "broker_degradation_state", (each.type.value, each.topic), 1.0
        yield from self._clock_samples(self.parts.access.clock)

    def _throttled_producers(self) -> Iterator[Degradation]:
        sessions = () if self.grpc is None else self.grpc.sessions
        producers = (each for each in sessions if isinstance(each, ProducerClientStream))
        names = sorted(each.name for each in producers if each.throttle.is_failing)
        names += [] if self.http is None else self.http.throttled_producers
        if names:
            words = f"most requests of {len(names)} producers fail, which are throttled"
            shown = ", ".join(names[:_MOST_NAMES])
            yield Degradation(DegradationType.PRODUCERS, f"{words}: {shown}", words)

    @staticmethod
    def _clock_samples(clock: TrustedClock) -> Iterator[Sample]:
        """The offset of the store's clock, if it has one of its own."""
        if (ahead_ms := clock.ahead_ms) is not None:
            yield "broker_active_timedrifts_count", ("storage", ""), float(bool(clock.problem))
            yield "broker_active_timedrifts_seconds_avg", ("storage", ""), abs(ahead_ms) / 1000
