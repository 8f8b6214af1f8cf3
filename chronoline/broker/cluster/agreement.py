"""The agreement of brokers on the members of their topics, and the shares that follow from it.

Each broker registers the consumers that are connected to it, and sees those of all brokers in one view. A
broker that serves a topic compares its consumers with the topic's generation, and writes the next one when
`core.generation` asks for it. Of several brokers that do so one succeeds; the others see its generation and
have nothing left to write. All of them compute the shares from the generation alone, so they agree, and
change together at the begin of a window.

A broker decides only while it may grant leases, and by a current view: one that was cut off does not take
others for lost. A decision by an old view costs time, and is never unsafe, since the store gives each
message to one consumer.

Views wake the loaders; nothing is polled. Only a planned change is looked at again when its window begins,
and a broker that may not decide looks again after a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from chronoline.broker.cluster.member import ClusterMember
from chronoline.broker.shares import ConnectedConsumer, ShareUser
from chronoline.coordination.contract import NOTHING_SEEN, KeyWatch
from chronoline.coordination.generations import (
    NOTHING_AGREED,
    AgreedGeneration,
    Members,
    write_generation,
)
from chronoline.coordination.membership import MEMBERS, ConsumerRecord
from chronoline.core.dealer import Dealer, Share
from chronoline.core.errors import CoordinationError, InvalidInput, TopicNotReady
from chronoline.core.generation import (
    Generation,
    TopicMember,
    first_window,
    next_generation,
    window_at,
)
from chronoline.core.topic import Topic
from chronoline.runtime.alarm import Alarm
from chronoline.runtime.clock import Clock
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise
from chronoline.stores.contract import Returned

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_NOTICE_MS = 250
"""The time before a window in which no change for it is decided: brokers need it to hear of one."""
_REST_MS = 200
"""The wait of a broker that may not decide, or whose generation could not be written."""
_AT_ONCE = 16
"""The most generations that are written at a time."""


class AgreedShares:
    """The shares of one topic for the consumers of this broker, by the topic's generation."""

    def __init__(self, topic: Topic, agreement: Agreement, user: ShareUser) -> None:
        self.topic = topic
        self._agreement = agreement
        self._user = user
        self._agreed = NOTHING_AGREED
        self._records: dict[str, ConsumerRecord] = {}  # of the consumers here, by name
        self._in_force: Mapping[str, Share] = {}
        self._is_settled = False
        """Whether the shares are computed, and no change is planned."""
        self.failure = ""
        """Why its members could not be written; logged once."""
        self._tried: int | None = None
        """The version for which a successor was written or refused; another view shows the outcome."""

    # The source of shares

    def observe(self, connected: Sequence[ConnectedConsumer]) -> None:
        records = {each.member.consumer: self._record(each) for each in connected}
        self._publish(records)

    def shares(self, observed: frozenset[TopicMember], now_ms: int) -> Mapping[str, Share]:
        if self._is_settled:
            return self._in_force
        window = window_at(now_ms, self._window_ms)
        generation = self._agreed.generation
        self._is_settled = window >= generation.window
        shares = generation.served_by(
            self._agreement.broker,
            window,
            buckets=self.topic.settings.buckets,
            dealer=Dealer.RACK_AWARE,
        )
        if shares != self._in_force:
            self._in_force = shares
        return self._in_force

    def changes_at(self, now_ms: int) -> int | None:
        if self._is_settled:
            return None
        return (window_at(now_ms, self._window_ms) + 1) * self._window_ms

    def close(self) -> None:
        self._publish({})
        self._agreement.forget(self)

    # The agreement

    def saw(self, members: Members) -> None:
        """A new view: wakes the loader, and tells consumers whose name another one has."""
        agreed = members.generations.get(self.topic.uid, NOTHING_AGREED)
        if agreed.version != self._agreed.version:
            self._agreed, self._is_settled, self._tried = agreed, False, None
            self._user.changed()
        everywhere = members.consumers.get(self.topic.uid, {})
        for name in list(self._records):
            other = everywhere.get(name)
            if other is not None and other.broker != self._agreement.broker:
                self._user.returned(Returned(other.since_ms, other.session, name))

    def following(self, members: Members, now_ms: int) -> Generation | None:
        """The generation that this broker would write now."""
        if self._tried == self._agreed.version:
            return None
        window_ms = self._window_ms
        notice_ms = min(_NOTICE_MS, window_ms // 4)
        return next_generation(
            self._agreed.generation,
            members.observed(self.topic.uid),
            window=window_at(now_ms, window_ms),
            from_window=first_window(now_ms, window_ms, notice_ms=notice_ms),
        )

    def decide_at(self, now_ms: int) -> int | None:
        """When the members may have to change by the time alone: a planned change is in force then."""
        window = window_at(now_ms, self._window_ms)
        is_planned = window < self._agreed.generation.window
        return (window + 1) * self._window_ms if is_planned else None

    @property
    def agreed(self) -> AgreedGeneration:
        return self._agreed

    def tried(self, agreed: AgreedGeneration) -> None:
        """A successor of this generation was written, by this broker or by another."""
        self._tried = agreed.version

    @property
    def _window_ms(self) -> int:
        return self.topic.settings.window_ms

    def _record(self, connected: ConnectedConsumer) -> ConsumerRecord:
        member, returned = connected
        return ConsumerRecord(
            self.topic.uid,
            member.consumer,
            self._agreement.broker,
            returned.session,
            rack=member.rack,
            busy=member.busy,
            since_ms=returned.at,
        )

    def _publish(self, records: dict[str, ConsumerRecord]) -> None:
        gone = [each.key for name, each in self._records.items() if name not in records]
        self._records = records
        self._agreement.register(records.values(), gone)


class Agreement(AsyncService):
    """Follows the members of all topics, and decides about those of its own. Owned by the event loop."""

    def __init__(
        self,
        member: ClusterMember,
        clock: Clock,
        *,
        may_decide: Callable[[], bool],
        failed: Callable[[str, str], None],
    ) -> None:
        """`may_decide` says whether this broker may grant leases; `failed` counts failures of its tasks."""
        self._member = member
        self._clock = clock
        self._may_decide = may_decide
        self._failed = failed
        self._sources: dict[int, AgreedShares] = {}
        self._watch: KeyWatch | None = None
        self._members = Members({}, {})
        self._seen = NOTHING_SEEN
        """The view from which `_members` come."""
        self._to_decide = Alarm()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def broker(self) -> str:
        return self._member.name

    @property
    def members(self) -> Members:
        """The consumers of all brokers, and the generations of all topics, as this broker sees them."""
        return self._members

    def shares(self, topic: Topic, user: ShareUser) -> AgreedShares:
        """The source of a topic's shares."""
        source = self._sources[topic.uid] = AgreedShares(topic, self, user)
        source.saw(self._members)
        self._to_decide.ring()
        return source

    def register(self, records: Collection[ConsumerRecord], gone: Sequence[str]) -> None:
        """These consumers are connected to this broker; those entries are not any more."""
        self._member.registration.hide(*gone)
        self._member.registration.show(*records)

    def forget(self, source: AgreedShares) -> None:
        if self._sources.get(source.topic.uid) is source:
            del self._sources[source.topic.uid]

    def moved(self) -> None:
        """The clock was moved: windows have other numbers."""
        self._to_decide.ring()

    async def _start(self) -> None:
        self._watch = self._member.coordination.watch(MEMBERS)
        works = {"following members": self._follow, "deciding on members": self._decide}
        self._tasks = [supervise(name, work, self._failed) for name, work in works.items()]

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._watch is not None:
            await self._watch.close()

    async def _follow(self) -> None:
        assert self._watch is not None
        async for view in self._watch:
            self._members, self._seen = Members.of(view), view
            for source in list(self._sources.values()):
                source.saw(self._members)
            self._to_decide.ring()

    @property
    def _is_up_to_date(self) -> bool:
        """Whether the members are those of the view of now, and that one is current."""
        assert self._watch is not None
        return self._seen is self._watch.view and self._seen.is_current

    async def _decide(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            if not self._sources:
                await self._to_decide.sleep(None)
            elif not (self._is_up_to_date and self._may_decide()):
                await self._to_decide.sleep(_REST_MS / 1000)
            elif wanted := list(self._wanted(now_ms)):
                written = await asyncio.gather(*(self._write(*each) for each in wanted))
                if not all(written):
                    await self._to_decide.sleep(_REST_MS / 1000)
            else:
                moments = [each.decide_at(now_ms) for each in self._sources.values()]
                known = [each for each in moments if each is not None]
                seconds = self._clock.seconds_until(min(known)) if known else None
                await self._to_decide.sleep(seconds)

    def _wanted(self, now_ms: int) -> Iterator[tuple[AgreedShares, Generation]]:
        found = 0
        for source in self._sources.values():
            following = source.following(self._members, now_ms)
            if following is not None and found < _AT_ONCE:
                found += 1
                yield source, following

    async def _write(self, source: AgreedShares, following: Generation) -> bool:
        """Whether the coordination service answered."""
        agreed = source.agreed
        try:
            await write_generation(self._member.coordination, source.topic, agreed, following)
        except TopicNotReady:  # another broker deletes it, or this one registers it soon
            return False
        except (CoordinationError, InvalidInput) as error:  # invalid: too many for an entry
            if str(error) != source.failure:
                _summary.warning(
                    "members_not_written",
                    "the members of topic %r could not be written; trying again: %s",
                    source.topic.name,
                    error,
                    topic=source.topic.name,
                )
            source.failure = str(error)
            return False
        source.failure = ""
        source.tried(agreed)
        return True
