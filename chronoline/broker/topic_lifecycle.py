"""The topics of a cluster: registered, provisioned, open, deleted, and finished by any broker.

This is the shell of `topic_steps`. It looks at a name (the registry first, then the store), does the next
step, and looks again, until there is nothing to do or another broker has the claim. It is woken by the views
of topics and claims: when a broker dies its claims vanish, and the others go on from what it left.

The order of a look matters: a topic that the store shows after the registry showed none was there without an
entry, whereas the other order would take a topic that was just removed for one to adopt.

Every step can be done twice, and late: steps of the registry are conditional on the claim, a uid is never
used again, and a creation in the store that was overtaken is taken back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from chronoline.broker.topic_steps import FOLLOWS_STORE, Holder, Step, StoredTopic, next_step
from chronoline.coordination import claims
from chronoline.coordination.claims import CLAIMS, TaskClaim, claims_of
from chronoline.coordination.contract import (
    BrokerSession,
    Coordination,
    HeldBy,
    KeyWatch,
    View,
)
from chronoline.coordination.generations import forget_generation
from chronoline.coordination.topics import (
    TOPICS,
    RegisteredTopic,
    TopicRegistry,
    TopicState,
    topics_of,
)
from chronoline.core.errors import (
    BrokerUnavailable,
    ChronolineError,
    CommitUnknown,
    CoordinationError,
    CoordinationUnavailable,
    InvalidInput,
    OutcomeUnknown,
    SessionLost,
    StoreUnavailable,
    TopicExists,
    TopicNotFound,
    TopicNotReady,
)
from chronoline.core.topic import Topic, TopicSettings
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.clock import Clock
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.message_ids import new_id
from chronoline.runtime.service import AsyncService
from chronoline.runtime.tasks import TaskSet, supervise
from chronoline.stores.contract import Store

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_BACKOFF = Backoff(first=0.05, longest=1.0, spread=0.5)
_ABLE_AGAIN_MS = 5_000
_AT_ONCE = 8
"""The most names that are worked on at a time."""
_ERASE_ROWS = 5_000
"""The rows of one write of the store, which other writers of a SQLite file wait for."""
_ERASE_BATCHES = 4
"""The most writes before the next look at registry and claim."""
_MOST_STEPS = 20
"""The most steps of a request; a creation takes five."""
_SEEN_WITHIN_S = 1.0
"""The longest wait of a creation until this broker sees its own entry."""
_NO_PART = "this broker takes no part in its cluster now, as its status shows; nothing was changed. Try again"

Result = TypeVar("Result")
_INTERRUPTIONS = (BrokerUnavailable, CoordinationError, StoreUnavailable, TopicNotReady)
"""Errors that say that nothing was changed. That is not so once the topic is registered."""


@dataclass(slots=True)
class _CreationAttempt:
    """A client's request for a topic."""

    request: str
    is_registered: bool = False
    """Whether any broker may create the topic from now on."""


class StoreCalls(Protocol):
    """The part of `StoreAccess` that topics need."""

    def check_changes(self) -> None: ...

    async def call(
        self, query: str, read: Callable[[Store], Result], *, changes: bool = False
    ) -> Result: ...

    async def await_durable(self) -> None: ...


class TopicLifecycle(AsyncService):
    """Creates and deletes topics, and finishes what other brokers began. Owned by the event loop."""

    def __init__(
        self,
        coordination: Coordination,
        access: StoreCalls,
        clock: Clock,
        *,
        broker: str,
        session: Callable[[], BrokerSession | None],
        failed: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """`session` answers the broker's session of now: without one it works on no topic.

        `clock` raises while it cannot be trusted. `failed` counts failures of its tasks.
        """
        self._coordination = coordination
        self._registry = TopicRegistry(coordination)
        self._access = access
        self._clock = clock
        self._broker = broker
        self._session = session
        self._failed = failed
        self.on_deleted: Callable[[int, str], None] = lambda _uid, _name: None
        """Called with uid and name of each topic that is deleted, at whichever broker."""
        self._registered: dict[str, RegisteredTopic] = {}
        self._changed = asyncio.Condition()
        self._claims: dict[str, TaskClaim] = {}
        self._doubtful: set[str] = set()
        """Names whose claims we may have: an answer was lost."""
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._awake: set[str] = set()
        """Names to look at again."""
        self._at_work: set[str] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._tasks = TaskSet()
        self._followers: list[asyncio.Task[None]] = []
        self._topics_watch: KeyWatch | None = None
        self._claims_watch: KeyWatch | None = None

    # For the broker's topics

    def check_able(self) -> None:
        """Raises the reason for which this broker can change nothing in the store, without a question to it.

        It names a longer time to try again than other refusals: each administrative act has a line in the
        audit trail, and those who wait for one want to hear the reason.
        """
        try:
            self._clock.now_ms()
            self._access.check_changes()
        except (BrokerUnavailable, StoreUnavailable) as error:
            error.retry_after_ms = _ABLE_AGAIN_MS
            raise

    def check(self, name: str, topic: Topic | None) -> None:
        """Whether clients may use this topic of the store, or the name that it does not have.

        Raises `TopicNotReady` while it is being created, and `TopicNotFound` once its deletion is registered.
        """
        registered = self._registered.get(name)
        if registered is None:
            if topic is not None:
                self._wake(name)  # to adopt it
            return
        if registered.state is TopicState.CREATING:
            raise TopicNotReady(f"topic {name!r} is still being created; try again")
        if registered.state is TopicState.DELETING and topic and topic.uid == registered.uid:
            raise TopicNotFound(f"topic {name!r} was deleted")

    def name_of(self, uid: int) -> str:
        """The name of a registered topic; empty if there is none."""
        return next((name for name, each in self._registered.items() if each.uid == uid), "")

    def is_open(self, topic: Topic) -> bool:
        """Whether clients may use this topic of the store."""
        with suppress(TopicNotReady, TopicNotFound):
            self.check(topic.name, topic)
            return True
        return False

    def listed(self, topics: Iterable[Topic]) -> None:
        """Compares all live topics of the store with the registry, and looks where they differ."""
        live = {topic.name: topic.uid for topic in topics}
        opened = {
            name: registered.uid
            for name, registered in self._registered.items()
            if registered.state is TopicState.OPEN
        }
        for name, _ in live.items() ^ opened.items():
            self._wake(name)

    async def create(self, name: str, settings: TopicSettings, *, if_missing: bool) -> Topic:
        """Registers, provisions and opens a topic.

        Raises `TopicExists`, `TopicNotReady` while another broker works on the name,
        `CoordinationUnavailable` and the errors of the store; `OutcomeUnknown` if it is registered and was
        not finished here: then it is finished in the background, by this broker or another.
        """
        attempt = _CreationAttempt(new_id())
        async with self._request(name):
            try:
                topic, is_new = await self._create(name, settings, attempt)
            except _INTERRUPTIONS as error:
                if not attempt.is_registered:
                    raise
                raise _unfinished(name, error) from error
        if not is_new and not if_missing:
            raise TopicExists(
                f"a topic named {name!r} exists; if_missing (--if-missing) leaves it as it is"
            )
        return topic

    async def delete(self, topic: Topic) -> bool:
        """Registers the deletion and makes every command fail; the storage is removed in the background.

        False if it was deleted already.
        """
        async with self._request(topic.name):
            is_new = await self._register_deletion(topic)
            self.on_deleted(topic.uid, topic.name)
            try:
                dropped = await self._drop(topic.uid)
            except (StoreUnavailable, BrokerUnavailable) as error:
                raise OutcomeUnknown(
                    f"the deletion of topic {topic.name!r} is registered and will be done: {error}"
                ) from error
        return is_new or dropped

    # Requests

    @asynccontextmanager
    async def _request(self, name: str) -> AsyncIterator[None]:
        """A client's request about a name: one at a time, with errors that have a code."""
        self.check_able()  # before anything is registered
        if self._session() is None:
            error = CoordinationUnavailable(_NO_PART)
            error.retry_after_ms = _ABLE_AGAIN_MS
            raise error
        try:
            async with self._lock(name):
                yield
        except CommitUnknown as error:
            raise OutcomeUnknown(str(error)) from error
        except SessionLost as error:
            raise CoordinationUnavailable(str(error)) from error
        finally:
            self._wake(name)

    def _lock(self, name: str) -> asyncio.Lock:
        """Steps for a name are done one after the other."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def _create(
        self, name: str, settings: TopicSettings, attempt: _CreationAttempt
    ) -> tuple[Topic, bool]:
        """The topic with this name, and whether it was made here."""
        made: Topic | None = None
        for _ in range(_MOST_STEPS):
            registered, stored = await self._look(name)
            if stored is not None and _is_deleted(registered, stored):
                raise TopicExists(
                    f"topic {name!r} is being deleted; its name is free when that is done"
                )
            if stored is not None and (registered is None or _is_same(registered, stored)):
                await self._access.await_durable()
                await self._wait_seen(name, stored.topic.uid)
                return stored.topic, made is not None and made.uid == stored.topic.uid
            if not await self._take_claim(name):
                raise TopicNotReady(f"another broker is at work on topic {name!r}; try again")
            if registered is None:
                await self._registry.register(
                    name,
                    request=attempt.request,
                    settings=asdict(settings),
                    guards=self._guards(name),
                )
                attempt.is_registered = True
                continue
            step = next_step(registered, stored, Holder.US)
            if step is Step.PROVISION and registered.request == attempt.request:
                made = await self._provision_or_abort(registered, attempt)
            else:
                await self._do(step, name, registered, stored)
        raise TopicNotReady(f"topic {name!r} is changed by others all the time; try again")

    async def _provision_or_abort(
        self, registered: RegisteredTopic, attempt: _CreationAttempt
    ) -> Topic | None:
        """Provisions a topic for a request. If nothing was changed in the store, nothing is left at all."""
        try:
            return await self._provision(registered)
        except (StoreUnavailable, BrokerUnavailable, InvalidInput) as error:
            try:
                await self._abort(registered)
            except ChronolineError:
                raise _unfinished(registered.name, error) from error
            attempt.is_registered = False
            raise

    async def _register_deletion(self, topic: Topic) -> bool:
        """Whether it was not registered before. Raises `TopicNotReady` while the entry is another's."""
        await self._registry.adopt(topic.name, uid=topic.uid)
        before = await self._registry.find(topic.name)
        if before is not None and before.uid != topic.uid:
            raise TopicNotReady(f"topic {topic.name!r} is not registered yet; try again")
        await self._registry.delete(topic.name, uid=topic.uid)
        return before is not None and before.state is TopicState.OPEN

    async def _wait_seen(self, name: str, uid: int) -> None:
        """Waits until the view is not behind our own creation: a client's next request is not refused."""

        def is_seen() -> bool:
            seen = self._registered.get(name)
            return seen is None or seen.state is not TopicState.CREATING or seen.uid == uid

        with suppress(TimeoutError):
            async with asyncio.timeout(_SEEN_WITHIN_S), self._changed:
                await self._changed.wait_for(is_seen)

    # Steps

    async def _look(self, name: str) -> tuple[RegisteredTopic | None, StoredTopic | None]:
        registered = await self._registry.find(name)
        stored = await self._access.call("topic", partial(_stored, name=name))
        return registered, stored

    async def _advance(self, name: str) -> bool:
        """Does the next step for a name. False if there is none for us."""
        if self._session() is None:
            raise SessionLost(_NO_PART)
        if name in self._doubtful:
            await self._take_claim(name)
        registered, stored = await self._look(name)
        step = next_step(registered, stored, self._holder(name))
        if step is Step.CLAIM:
            return await self._take_claim(name)
        if step in (Step.REST, Step.WAIT):
            return False
        await self._do(step, name, registered, stored)
        return step is not Step.GIVE_UP

    async def _do(
        self,
        step: Step,
        name: str,
        registered: RegisteredTopic | None,
        stored: StoredTopic | None,
    ) -> None:
        logger.debug("topic %r: %s", name, step, extra={"action": "topic_step", "topic": name})
        if step in FOLLOWS_STORE:
            await self._access.await_durable()
        if step is Step.GIVE_UP:
            await self._give_up(name)
        elif step is Step.ADOPT and stored is not None:
            await self._registry.adopt(name, uid=stored.topic.uid)
        elif registered is not None:
            await self._do_registered(step, registered, stored)

    async def _do_registered(
        self, step: Step, registered: RegisteredTopic, stored: StoredTopic | None
    ) -> None:
        name, request, uid = registered.name, registered.request, registered.uid
        match step:
            case Step.PROVISION:
                await self._provision(registered)
            case Step.OPEN if stored is not None:
                await self._registry.open(
                    name, request=request, uid=stored.topic.uid, guards=self._guards(name)
                )
            case Step.ABORT:
                await self._abort(registered)
            case Step.CLOSE if uid is not None:
                await self._registry.delete(name, uid=uid)
                self.on_deleted(uid, name)
            case Step.FORGET if uid is not None:
                await self._registry.forget(name, uid=uid)
            case Step.DROP if uid is not None:
                await self._drop(uid)
            case Step.ERASE:
                await self._erase(name)
            case Step.REMOVE:
                if uid is not None:
                    await forget_generation(self._coordination, uid)
                await self._registry.remove(name, request=request)

    async def _provision(self, registered: RegisteredTopic) -> Topic | None:
        """Makes the topic in the store; None if its name is taken there."""
        name, now_ms = registered.name, self._clock.now_ms()
        try:
            settings = TopicSettings(**registered.settings)
        except (TypeError, InvalidInput) as error:  # of a broker of another release
            logger.warning("the creation of topic %r is undone: %s", name, error)
            await self._abort(registered)
            return None
        try:
            topic = await self._access.call(
                "create_topic",
                lambda store: store.create_topic(name, settings, now_ms=now_ms),
                changes=True,
            )
        except TopicExists:
            return None
        await self._take_back_if_overtaken(registered, topic)
        return topic

    async def _take_back_if_overtaken(self, registered: RegisteredTopic, topic: Topic) -> None:
        """Deletes a topic that was made too late: its creation was finished by another, or undone.

        Nobody can use it unless another broker has adopted it meanwhile; then it stays.
        """
        found = await self._registry.find(topic.name)
        if found is None:
            await self._registry.adopt(topic.name, uid=topic.uid, state=TopicState.DELETING)
            raise SessionLost(f"the creation of topic {topic.name!r} was overtaken; try again")

    async def _abort(self, registered: RegisteredTopic) -> None:
        await self._registry.abort(
            registered.name, request=registered.request, guards=self._guards(registered.name)
        )

    async def _drop(self, uid: int) -> bool:
        now_ms = self._clock.now_ms()
        return await self._access.call(
            "drop_topic", lambda store: store.delete_topic(uid, now_ms=now_ms), changes=True
        )

    async def _erase(self, name: str) -> None:
        """Removes messages of deleted topics. Raises `StoreUnavailable` if others hold the last ones."""
        for _ in range(_ERASE_BATCHES):
            now_ms = self._clock.now_ms()
            removed = await self._access.call(
                "purge",
                lambda store, now_ms=now_ms: store.purge(limit=_ERASE_ROWS, now_ms=now_ms),  # type: ignore[misc]  # of this turn
            )
            if removed < _ERASE_ROWS:
                left = await self._access.call("topic", partial(_stored, name=name))
                if left is not None and not removed:
                    raise _RowsHeld
                return

    # Claims

    def _holder(self, name: str) -> Holder:
        claim = self._claims.get(name)
        if claim is not None and claim.is_trusted and claim.session is self._session():
            return Holder.US
        if self._claims.pop(name, None) is not None:
            self._doubtful.add(name)  # the session may be trusted again
        seen = {} if self._claims_watch is None else claims_of(self._claims_watch.view)
        broker = seen.get(_task(name))
        return Holder.NOBODY if broker in (None, self._broker) else Holder.ANOTHER

    async def _take_claim(self, name: str) -> bool:
        if self._holder(name) is Holder.US:
            return True
        session = self._session()
        if session is None or not session.is_trusted:
            raise CoordinationUnavailable
        self._doubtful.add(name)
        claim = await claims.take(self._coordination, session, *_task(name), broker=self._broker)
        self._doubtful.discard(name)
        if claim is not None:
            self._claims[name] = claim
        return claim is not None

    async def _give_up(self, name: str) -> None:
        claim = self._claims.pop(name, None)
        if claim is not None:
            self._doubtful.add(name)
            await claims.give_up(self._coordination, claim)
            self._doubtful.discard(name)

    def _guards(self, name: str) -> list[HeldBy]:
        claim = self._claims.get(name)
        if claim is None:
            raise SessionLost
        return [claim.condition]

    # Views

    async def _start(self) -> None:
        self._topics_watch = self._coordination.watch(TOPICS)
        self._claims_watch = self._coordination.watch(CLAIMS)
        works = {
            "following topics": partial(self._follow_topics, self._topics_watch),
            "following claims": partial(self._follow_claims, self._claims_watch),
        }
        self._followers = [supervise(name, work, self._failed) for name, work in works.items()]

    async def _stop(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        for watch in (self._topics_watch, self._claims_watch):
            if watch is not None:
                await watch.close()
        await self._tasks.end()
        self._claims.clear()  # they end with the session

    async def _follow_topics(self, watch: KeyWatch) -> None:
        await self._show_topics(watch.view)  # again, after a failure
        async for view in watch:
            await self._show_topics(view)

    async def _show_topics(self, view: View) -> None:
        before, self._registered = self._registered, topics_of(view)
        for name, registered in self._registered.items():
            if registered.state is not TopicState.OPEN:
                self._wake(name)
            if registered == before.get(name):
                continue
            if registered.state is TopicState.DELETING and registered.uid is not None:
                self.on_deleted(registered.uid, name)
        for name, gone in before.items():
            if gone.uid is not None and self._is_replaced(gone) and gone.state is TopicState.OPEN:
                self._tasks.start(self._tell_if_deleted(gone.uid, name))
        async with self._changed:
            self._changed.notify_all()

    def _is_replaced(self, before: RegisteredTopic) -> bool:
        now = self._registered.get(before.name)
        return now is None or now.uid != before.uid

    async def _tell_if_deleted(self, uid: int, name: str) -> None:
        """A slow watch shows no deletion between two views. Only the store knows whether there was one."""
        with suppress(ChronolineError):
            stored = await self._access.call("topic", partial(_stored, name=name))
            if stored is None or not stored.is_live or stored.topic.uid != uid:
                self.on_deleted(uid, name)

    async def _follow_claims(self, watch: KeyWatch) -> None:
        async for view in watch:
            claimed = claims_of(view)
            for name, registered in self._registered.items():
                if registered.state is not TopicState.OPEN and _task(name) not in claimed:
                    self._wake(name)

    # Work

    def _wake(self, name: str) -> None:
        """Looks at a name, and once more after a look that is under way."""
        if self._topics_watch is None or self._topics_watch.is_closed:
            return
        self._awake.add(name)
        if name not in self._at_work:
            self._at_work.add(name)
            self._tasks.start(self._work(name))

    async def _work(self, name: str) -> None:
        waits = Waits(_BACKOFF)
        try:
            while name in self._awake:
                self._awake.discard(name)
                try:
                    while await self._advance_in_turn(name):
                        waits.reset()
                except ChronolineError as error:
                    self._awake.add(name)
                    _log_failure(name, error)
                    await asyncio.sleep(waits.after(error))
        finally:
            self._at_work.discard(name)

    async def _advance_in_turn(self, name: str) -> bool:
        """One step, after which a request may come between."""
        async with self._turns, self._lock(name):
            return await self._advance(name)


class _RowsHeld(StoreUnavailable):
    """Other transactions hold the last messages of deleted topics. Try again."""


def _task(name: str) -> tuple[str, ...]:
    return "topic", name


def _stored(store: Store, name: str) -> StoredTopic | None:
    """The topic that has this name in the store."""
    live = store.find_topic(name)
    if live is not None:
        return StoredTopic(live, is_live=True)
    deleted = (each for each in store.deleted_topics() if each.name == name)
    return next((StoredTopic(each, is_live=False) for each in deleted), None)


def _is_deleted(registered: RegisteredTopic | None, stored: StoredTopic) -> bool:
    if not stored.is_live:
        return True
    return (
        registered is not None
        and registered.state is TopicState.DELETING
        and registered.uid == stored.topic.uid
    )


def _is_same(registered: RegisteredTopic, stored: StoredTopic) -> bool:
    return registered.state is TopicState.OPEN and registered.uid == stored.topic.uid


def _unfinished(name: str, error: ChronolineError) -> OutcomeUnknown:
    return OutcomeUnknown(f"topic {name!r} is registered, and may be created later: {error}")


def _log_failure(name: str, error: ChronolineError) -> None:
    level = logging.DEBUG if isinstance(error, _RowsHeld | SessionLost) else logging.WARNING
    _summary.log(level, "topic_waits", "work on topic %r waits: %s", name, error, topic=name)
