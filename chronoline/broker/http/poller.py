"""Pollers: the consumers behind requests that poll for messages.

For the loader of its topic a poller is a consumer like any other. While it polls it has credit for the count
of its request, and the first messages that come are the answer. After that:

- Its share is kept for about one window, so that it loses nothing if it polls again soon. If its client went
  away the share is not kept.
- Then it counts as busy: its share goes to others. While it has live leases it stays subscribed, since a
  consumer that subscribes again gets its leases under new versions, and could not settle its work.
- Then it is unsubscribed; earlier, if another needs the room and it has no live leases.

Polls without a name, of the same lease and rack, share one poller. If each were a consumer of its own, it
would wait for a share until the next window, and leave it unserved as soon as it had one message.

Messages that were reserved for a poller and did not get into an answer are given back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from chronoline.broker.context import BrokerContext
from chronoline.broker.subscription import Subscription
from chronoline.core.errors import (
    AlreadySubscribed,
    BrokerUnavailable,
    ChronolineError,
    ConsumerReplaced,
    TooMuch,
    TopicNotFound,
    TopicPiped,
)
from chronoline.core.message import LeasedMessage
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import supervise

LEAST_WAIT_S = 0.1
"""The shortest wait: the broker needs it to read the store, whatever the request says."""
_LOOK_AFTER_S = 0.2
"""Between two checks of idle pollers: a client that does not come back sends nothing."""
_LINGER_S = 1.0
"""A poller without leases stays for this time: a reservation can be on its way to it."""


class Poll:
    """One waiting request. Its answer has at most `most_bytes`, or a single message of any size."""

    def __init__(self, poller: Poller, count: int, most_bytes: int) -> None:
        self.poller = poller
        self.came: list[LeasedMessage] = []
        self._count = count
        self._most_bytes = most_bytes
        self._bytes = 0
        self._news = asyncio.Event()

    @property
    def room(self) -> int:
        return self._count - len(self.came)

    def takes(self, leased: LeasedMessage) -> bool:
        """Whether it took the message."""
        size_bytes = leased.content_bytes
        if not self.room or (self.came and self._bytes + size_bytes > self._most_bytes):
            return False
        self.came.append(leased)
        self._bytes += size_bytes
        self._news.set()
        return True

    def wake(self) -> None:
        self._news.set()

    async def wait(self, seconds: float) -> None:
        """Returns when a message came, at `wake`, or when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass


class Poller:
    """A consumer of one topic. The loader pushes to it."""

    def __init__(
        self,
        name: str,
        topic: Topic,
        refuse: Callable[[LeasedMessage], None],
        *,
        rack: str,
        nameless: bool,
    ) -> None:
        """`refuse` gets messages that no poll takes. A `nameless` poller serves all polls without a name."""
        self.name = name
        self.instance = new_id()
        self.rack = rack
        self.topic = topic
        self.nameless = nameless
        self.polls: list[Poll] = []  # the longest waiting first
        self.busy = False
        self.end_reason: ChronolineError | None = None
        # When its share goes to others, by the monotonic clock.
        self.keep_until_s = 0.0
        self.joining: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._refuse = refuse

    def join(self, subscription: Subscription) -> None:
        self._subscription = subscription

    @property
    def subscription(self) -> Subscription:
        """Set when it has joined."""
        assert self._subscription is not None
        return self._subscription

    @property
    def resting(self) -> bool:
        return self._subscription is not None and not self.polls

    @property
    def can_leave(self) -> bool:
        """No poll waits, and it has no live leases: those would come back under new versions."""
        return self.resting and (self.subscription.closed or not self.subscription.outstanding)

    @property
    def clogged(self) -> bool:
        return False

    @property
    def advance_ms(self) -> int:
        return 0

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        for each in leased:
            if not any(poll.takes(each) for poll in self.polls):
                self._refuse(each)

    def shared(self, topic: Topic, share: BucketRange) -> None:
        """Its clients need no share."""

    def paused(self, topic: Topic, reason: str) -> None:
        if self._subscription is not None and self._subscription.piped:
            self._wake_all()  # the polls of a topic that an operator paused wait on

    def ended(self, topic: Topic, reason: str) -> None:
        self.end_reason = TopicNotFound(reason)
        self._wake_all()

    def replaced(self, topic: Topic) -> None:
        self.end_reason = ConsumerReplaced(
            f"consumer {self.name!r} receives from topic {topic.name!r} at another broker now"
        )
        self._wake_all()

    def _wake_all(self) -> None:
        for poll in self.polls:
            poll.wake()


class Pollers(AsyncService):
    """All pollers of a node, from `start` to `stop`; then it does not start again."""

    def __init__(self, parts: BrokerContext) -> None:
        self._parts = parts
        self._pollers: dict[tuple[int, str], Poller] = {}
        # The names of pollers without a given name, by topic, lease and rack.
        self._nameless: dict[tuple[int, int, str], str] = {}
        self._looking: asyncio.Task[None] | None = None
        self._stopping = False

    async def _start(self) -> None:
        self._looking = supervise(
            "looking after polls", self._look_after, self._parts.metrics.failed
        )

    def end_polls(self) -> None:
        """Answers all polls now, and refuses new ones."""
        self._stopping = True
        for poller in self._pollers.values():
            for poll in poller.polls:
                poll.wake()

    async def _stop(self) -> None:
        """Gives back what was not handed over."""
        self.end_polls()
        if self._looking is not None:
            self._looking.cancel()
        for poller in list(self._pollers.values()):
            if poller.joining is not None:
                poller.joining.cancel()
            elif poller.resting:
                self._leave(poller)

    # One poll

    async def begin(
        self,
        topic: Topic,
        name: str | None,
        *,
        count: int,
        lease_ms: int,
        rack: str = "",
        resume: bool = False,
    ) -> Poll:
        """A new poll. Raises `AlreadySubscribed` while another poll of that name waits, and `TooMuch`.

        A consumer that is not known yet, or that wants to `resume`, gets its live leases first.
        """
        if self._stopping:
            raise BrokerUnavailable("the broker is stopping; nothing was changed. Ask another one")
        poller = self._poller(topic, name, lease_ms, rack=rack, resume=resume)
        poll = Poll(poller, count, self._parts.limits.frame_bytes)
        poller.polls.append(poll)
        try:
            if poller.joining is not None:
                await asyncio.shield(poller.joining)
        except BaseException:
            poller.polls.remove(poll)
            raise
        subscription = poller.subscription
        # No poll without a name gets a shorter lease than it asked for.
        subscription.lease_ms = max(lease_ms, subscription.lease_ms if poller.nameless else 0)
        subscription.noticed(None)  # its last read can be long ago
        poller.busy = False
        self._set_credit(poller)
        return poll

    def _poller(
        self, topic: Topic, name: str | None, lease_ms: int, *, rack: str, resume: bool
    ) -> Poller:
        key = (topic.uid, lease_ms, rack)
        known = name or self._nameless.get(key)
        poller = None if known is None else self._pollers.get((topic.uid, known))
        if poller is not None and poller.polls and not poller.nameless:
            raise AlreadySubscribed(
                f"consumer {name!r} polls topic {topic.name!r} already: one poll at a time, or another name"
            )
        if poller is not None and poller.resting and (resume or poller.subscription.closed):
            self._leave(poller)
            poller = None
        if poller is None:
            poller = self._join(topic, name, lease_ms, rack)
        if name is None:
            self._nameless[key] = poller.name
        return poller

    def _join(self, topic: Topic, name: str | None, lease_ms: int, rack: str) -> Poller:
        self._make_room()
        poller = Poller(
            name or f"c-{new_id()}",
            topic,
            lambda leased: self._return(poller, [leased]),
            rack=rack,
            nameless=name is None,
        )
        self._pollers[topic.uid, poller.name] = poller
        poller.joining = asyncio.create_task(self._subscribe(poller, lease_ms))
        # Marks the exception as seen: there can be no poll that awaits it.
        poller.joining.add_done_callback(lambda task: task.cancelled() or task.exception())
        return poller

    def _make_room(self) -> None:
        most = self._parts.limits.connections
        if len(self._pollers) < most:
            return
        leaving = [each for each in self._pollers.values() if each.can_leave]
        if not leaving:
            raise TooMuch(f"{most} consumers poll or have leases already; try again later")
        self._leave(min(leaving, key=lambda each: each.keep_until_s))

    async def _subscribe(self, poller: Poller, lease_ms: int) -> None:
        try:
            subscription, _ = await self._parts.loaders.subscribe(
                poller.topic, poller, lease_ms=lease_ms, credit=0
            )
        except BaseException:
            self._forget(poller)
            raise
        poller.join(subscription)
        poller.joining = None

    async def wait(self, poll: Poll, seconds: float) -> list[LeasedMessage]:
        """The messages of a poll, as soon as there are any; none if the time is over.

        Raises `TopicNotFound`, `ConsumerReplaced` if another has polled elsewhere under its name, and
        `TopicPiped` unless something came before the pipe did. On a topic that is paused it waits on.
        """
        subscription = poll.poller.subscription
        if not (self._stopping or subscription.closed or subscription.piped):
            await poll.wait(max(seconds, LEAST_WAIT_S))
        self._close(poll)
        if poll.poller.end_reason is not None:
            raise poll.poller.end_reason
        if subscription.piped and not poll.came:
            raise TopicPiped(subscription.paused)
        return poll.came

    def _close(self, poll: Poll) -> None:
        """Takes no more messages."""
        if poll in poll.poller.polls:
            poll.poller.polls.remove(poll)
            self._set_credit(poll.poller)

    def _set_credit(self, poller: Poller) -> None:
        subscription = poller.subscription
        if not subscription.closed:
            wanted = sum(poll.room for poll in poller.polls)
            subscription.grant(wanted - subscription.credit, self._parts.clock.now_ms())

    def end(self, poll: Poll, *, handed: bool) -> None:
        """Ends a poll. Its messages are given back if they were not `handed` over."""
        poller = poll.poller
        self._close(poll)
        if not handed:
            self._return(poller, poll.came)
        if poller.polls:
            return
        kept_s = poller.topic.settings.window_ms / 1000 if handed or poller.nameless else 0
        poller.keep_until_s = time.monotonic() + kept_s
        if self._stopping or poller.subscription.closed or poller.end_reason is not None:
            self._leave(poller)
        else:
            self._rest(poller)

    # Between polls

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AFTER_S)
            now_ms = self._parts.clock.now_ms()
            if self._parts.access.clock.problem:
                continue  # it is unknown which leases are over
            for poller in [each for each in self._pollers.values() if each.resting]:
                poller.subscription.forget_lapsed(now_ms)
                if self._is_done_with(poller):
                    self._leave(poller)
                else:
                    self._rest(poller)

    def _is_done_with(self, poller: Poller) -> bool:
        idle = poller.busy and not poller.subscription.outstanding
        lingered = time.monotonic() >= poller.keep_until_s + _LINGER_S
        ended = poller.subscription.closed or poller.end_reason is not None
        return ended or (idle and lingered)

    def _rest(self, poller: Poller) -> None:
        """Gives back what is reserved, and leaves the share to others when its time is over."""
        subscription = poller.subscription
        if subscription.agenda:
            subscription.give_back(subscription.agenda.give_back())
            subscription.changed()
        if not poller.busy and time.monotonic() >= poller.keep_until_s:
            poller.busy = True
            subscription.changed()

    def _leave(self, poller: Poller) -> None:
        self._forget(poller)
        self._parts.loaders.unsubscribe(poller.subscription)

    def _forget(self, poller: Poller) -> None:
        self._pollers.pop((poller.topic.uid, poller.name), None)
        for key in [key for key, name in self._nameless.items() if name == poller.name]:
            del self._nameless[key]

    # Giving back

    def _return(self, poller: Poller, leased: Sequence[LeasedMessage]) -> None:
        """The loader gives them back."""
        subscription, leases = poller.subscription, [each.lease for each in leased]
        subscription.settle("unreserve", leases, now_ms=self._parts.clock.now_ms())
        subscription.changed()
