"""Delivery of due messages to a handler without a server, as a worker does it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.limits import MIN_LEASE_MS
from chronoline.core.message import LeasedMessage
from chronoline.core.outcome import Outcome
from chronoline.core.topic import Topic
from chronoline.runtime.clock import Clock
from chronoline.stores.contract import Store
from chronoline.testing.clock import ManualClock
from chronoline.testing.timeline import TopicName, find_topic

Handler = Callable[[LeasedMessage], object]
"""Returns: the message is acked. Raises: it is given back by retry."""

CONSUMER = "chronoline.testing"
DEFAULT_RETRY_MS = 1_000
MOST_DELIVERIES = 10_000
_ASYNCHRONOUS = "the handler is asynchronous: wrap it in one that calls asyncio.run"


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """The outcomes of the delivered messages, in order."""

    acked: list[LeasedMessage] = field(default_factory=list)
    retried: list[tuple[LeasedMessage, Exception]] = field(default_factory=list)
    """Messages whose handler raised, with the exception."""
    refused: list[Outcome] = field(default_factory=list)
    """The store's refusals: messages that went to the dead letters instead of to the handler,
    and acks and retries under a lease that was over, or given back, when the handler returned."""

    @property
    def total(self) -> int:
        return len(self.acked) + len(self.retried) + len(self.refused)

    def raise_for_retried(self) -> None:
        """Raises the first exception that a handler raised, if there is one."""
        for _, error in self.retried:
            raise error


def deliver_due(
    store: Store,
    topic: TopicName,
    clock: Clock,
    handler: Handler,
    *,
    retry_ms: int = DEFAULT_RETRY_MS,
) -> Deliveries:
    """Delivers all due messages to a handler, in order of due, each under a lease.

    When the handler returns, the message is acked. When it raises, the message is given back by
    retry, and is due again in `retry_ms`. An `AssertionError` is then raised to the caller, since it
    concerns the test and not the attempt. Messages that the handler schedules for now are delivered too.

    The lease is the topic's default. A handler that advances the clock beyond its end loses it.
    """
    worker = _Worker(store, find_topic(store, topic), clock, handler, retry_ms)
    while worker.deliver_next():
        pass
    return worker.deliveries


def advance_until_idle(
    store: Store,
    topic: TopicName,
    clock: ManualClock,
    handler: Handler,
    *,
    retry_ms: int = DEFAULT_RETRY_MS,
) -> Deliveries:
    """Moves the clock from message to message and delivers each, until the timeline is empty.

    Otherwise like `deliver_due`. A message whose handler always raises becomes a dead letter.
    """
    topic = find_topic(store, topic)
    worker = _Worker(store, topic, clock, handler, retry_ms)
    while (ts := store.next_ts(topic.uid, topic.all_buckets)) is not None:
        clock.set(max(ts, clock.now_ms()))
        worker.deliver_next()
    return worker.deliveries


class _Worker:
    """Leases one message at a time, so that each handler's changes count for the next."""

    def __init__(
        self, store: Store, topic: Topic, clock: Clock, handler: Handler, retry_ms: int
    ) -> None:
        if retry_ms < MIN_LEASE_MS:
            raise InvalidInput(f"retry_ms must be at least {MIN_LEASE_MS}, not {retry_ms}")
        if not callable(handler):
            raise InvalidInput(f"the handler must be callable, not {type(handler).__name__}")
        if inspect.iscoroutinefunction(handler):
            raise InvalidInput(_ASYNCHRONOUS)
        self._store = store
        self._topic = topic
        self._clock = clock
        self._handler = handler
        self._retry_ms = retry_ms
        self.deliveries = Deliveries()

    def deliver_next(self) -> bool:
        """Delivers the oldest due message. Returns false if there is none."""
        if self.deliveries.total >= MOST_DELIVERIES:
            raise ChronolineError(
                f"{self._topic.name!r} has no end after {MOST_DELIVERIES} deliveries:"
                " does the handler schedule another message each time?"
            )
        grant = self._store.reserve(
            self._topic.uid,
            self._topic.all_buckets,
            consumer=CONSUMER,
            limit=1,
            lease_ms=self._topic.settings.default_lease_ms,
            now_ms=self._clock.now_ms(),
        )
        self.deliveries.refused += grant.refused
        for leased in grant.leased:
            self._handle(leased)
        return bool(grant.leased or grant.refused)

    def _handle(self, leased: LeasedMessage) -> None:
        try:
            answer = self._handler(leased)
        except Exception as error:
            self._retry(leased, error)
            if isinstance(error, AssertionError):
                raise
        else:
            if inspect.isawaitable(answer):
                self._store.unreserve(self._topic.uid, [leased.lease], now_ms=self._clock.now_ms())
                raise InvalidInput(_ASYNCHRONOUS)
            self._ack(leased)

    def _ack(self, leased: LeasedMessage) -> None:
        (outcome,) = self._store.ack(self._topic.uid, [leased.lease], now_ms=self._clock.now_ms())
        if outcome.done:
            self.deliveries.acked.append(leased)
        else:
            self.deliveries.refused.append(outcome)

    def _retry(self, leased: LeasedMessage, error: Exception) -> None:
        now_ms = self._clock.now_ms()
        again = [(leased.lease, now_ms + self._retry_ms)]
        (outcome,) = self._store.retry(self._topic.uid, again, now_ms=now_ms)
        self.deliveries.retried.append((leased, error))
        if not outcome.done:
            self.deliveries.refused.append(outcome)
