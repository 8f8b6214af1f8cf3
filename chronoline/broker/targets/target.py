"""The consumer of one topic that calls its URL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from chronoline.broker.context import BrokerContext
from chronoline.broker.gate import Work
from chronoline.broker.subscription import Subscription
from chronoline.broker.targets.policy import TargetPolicy
from chronoline.broker.targets.requests import call_id, request_headers
from chronoline.callbacks.caller import Answer, CallOrigin, Verdict
from chronoline.core.change import lease_change
from chronoline.core.errors import ChronolineError, OutcomeUnknown, StoreBusy, TopicNotFound
from chronoline.core.limits import MAX_REASON_CHARACTERS
from chronoline.core.message import After, Lease, LeasedMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.log_summary import LogSummary
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.traces import context_of

logger = logging.getLogger(__name__)
_summary = LogSummary(logger)

_MOST_BYTES = 16 * 1024 * 1024
"""The most bytes under way for one topic, or one message of any size."""
_BACKOFF = Backoff(0.2, 2.0)
"""The waits before a settlement is repeated, in seconds."""
_TELL_EVERY_S = 10.0
"""The interval between two log lines on failures of a topic: there can be a thousand per second."""


class Target:
    """A consumer to which the loader of its topic pushes. Owned by the event loop."""

    busy = False
    advance_ms = 0
    rack = ""

    def __init__(
        self,
        topic: Topic,
        parts: BrokerContext,
        calls: TargetPolicy,
        *,
        ended: Callable[[Target], None],
    ) -> None:
        """`ended` is called when the topic was deleted."""
        self.topic = topic
        self._parts = parts
        self._calls = calls
        self._on_ended = ended
        self._subscription: Subscription | None = None
        self._under_way: dict[asyncio.Task[None], Lease] = {}
        self._under_way_bytes = 0
        # True when no more calls are begun.
        self._is_leaving = False
        self._failures = 0
        self._tell_failures_s = 0.0

    # The interface for the loader

    @property
    def name(self) -> str:
        """New in each life of a node: the leases of the earlier life have to lapse."""
        return f"target-{self._parts.run}"

    @property
    def instance(self) -> str:
        return self._parts.run

    @property
    def clogged(self) -> bool:
        return self._under_way_bytes >= _MOST_BYTES

    def push(self, topic: Topic, leased: Sequence[LeasedMessage]) -> None:
        for each in leased:
            size_bytes = each.content_bytes
            self._under_way_bytes += size_bytes
            task = asyncio.create_task(self._serve(each))
            self._under_way[task] = each.lease
            task.add_done_callback(partial(self._finished, size_bytes))

    def shared(self, topic: Topic, share: BucketRange) -> None:
        """Does nothing: a target needs no share."""

    def paused(self, topic: Topic, reason: str) -> None:
        """Does nothing: the loader logs it."""

    def ended(self, topic: Topic, reason: str) -> None:
        self._is_leaving = True
        self._on_ended(self)

    def replaced(self, topic: Topic) -> None:
        """Does nothing: the name belongs to the node."""

    # Start and stop

    async def join(self) -> None:
        """Subscribes. It can be called again after an error."""
        await self._calls.caller.open()
        self._subscription, _ = await self._parts.loaders.subscribe(
            self.topic,
            self,
            lease_ms=self._calls.lease_ms,
            credit=self._calls.most_of_a_topic,
            for_target=True,
        )

    def leave(self) -> None:
        """Unsubscribes, which gives back the messages that were not begun. May be called twice."""
        self._is_leaving = True
        if self._subscription is not None and not self._subscription.closed:
            self._parts.loaders.unsubscribe(self._subscription)

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    async def stop(self) -> None:
        """Waits a while for answers, and gives back the unanswered messages. May be called twice."""
        self._is_leaving = True
        subscription = self._subscription
        if subscription is not None and not subscription.closed:
            subscription.end()
            subscription.changed()
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=self._calls.stop_ms / 1000)
        unanswered = dict(self._under_way)
        for task in unanswered:
            task.cancel()
        await asyncio.gather(*unanswered, return_exceptions=True)
        if subscription is not None:  # its loader gives them back
            leases = list(unanswered.values())
            subscription.settle("unreserve", leases, now_ms=self._parts.clock.now_ms())
        self.leave()

    # One message

    async def _serve(self, leased: LeasedMessage) -> None:
        left_ms = leased.lease.until - self._parts.clock.now_ms()
        lapses_s = time.monotonic() + left_ms / 1000
        try:
            answer = await self._answer(leased, lapses_s)
            self._parts.metrics.called(self.topic.name, answer.verdict)
            self._note(answer)
            await self._settle(leased, answer, lapses_s)
        except Exception:
            self._parts.metrics.failed("calling a target")
            logger.exception(
                "calling the target with message %r of topic %r failed; it is served again after its lease",
                leased.message.id,
                self.topic.name,
            )

    async def _answer(self, leased: LeasedMessage, lapses_s: float) -> Answer:
        """The answer of the call. An error of its own is a failed attempt, so the message does not stay."""
        try:
            return await self._call(leased, lapses_s)
        except Exception as error:
            return self._calls.caller.failure(error, f"the target of {self.topic.name!r}")

    async def _call(self, leased: LeasedMessage, lapses_s: float) -> Answer:
        timeout_s = self._calls.caller.limits.timeout_ms / 1000
        subscription = self._subscription

        def is_ours() -> bool:
            """Whether the call is still wanted.

            Its lease can be over, because the node was frozen, or end before the answer could be settled in a
            slow store; its topic can be deleted, or a pipe fires it.
            """
            loader = self._parts.loaders.of(self.topic.uid)
            may_call = loader is None or loader.gate.closure(Work.CALL) is None
            wanted = may_call and not self._is_leaving
            settling_s = 0 if subscription is None else subscription.agenda.margin_ms / 1000
            return wanted and time.monotonic() + timeout_s + settling_s < lapses_s

        url, body = self.topic.settings.target, leased.body or b""
        assert url is not None
        headers = request_headers(self.topic, leased)
        if self._calls.signer is not None:
            headers |= self._calls.signer.headers(
                call_id(self.topic, leased.message.id),
                body,
                wall_s=self._parts.clock.now_ms() // 1000,
            )
        message = leased.message
        return await self._calls.caller.post_traced(
            url,
            body,
            headers,
            origin=CallOrigin(self.topic.name, message.id, context_of(message.headers)),
            attempt=leased.message.attempts,
            turn_within_s=self._calls.turn_ms / 1000,
            may_begin=is_ours,
        )

    async def _settle(self, leased: LeasedMessage, answer: Answer, lapses_s: float) -> None:
        """Settles the lease, and learns how long that takes: leases are longer while the store is slow."""
        begun_s = time.monotonic()
        try:
            await self._settle_in_time(leased, answer, lapses_s)
        finally:
            if self._subscription is not None:
                self._subscription.took(int((time.monotonic() - begun_s) * 1000))

    async def _settle_in_time(self, leased: LeasedMessage, answer: Answer, lapses_s: float) -> None:
        """Repeats the settlement until the store answers, or the lease is over."""
        again, waits = False, Waits(_BACKOFF)
        while True:
            try:
                outcome = await self._settle_once(leased, answer, again=again)
            except TopicNotFound:
                return  # there is nothing to settle
            except ChronolineError as error:
                again = again or isinstance(error, OutcomeUnknown)
                rest_s, problem = waits.after(error), error
            else:
                self._note_outcome(outcome)
                return
            if time.monotonic() + rest_s >= lapses_s:
                _summary.warning(
                    "not_settled",
                    "the store did not settle message %r of topic %r after its call, which is repeated: "
                    "%s",
                    leased.message.id,
                    self.topic.name,
                    problem,
                    topic=self.topic.name,
                )
                return
            await asyncio.sleep(rest_s)  # the store has no event for being available again

    async def _settle_once(self, leased: LeasedMessage, answer: Answer, *, again: bool) -> Outcome:
        """Settles the lease by the answer of the call."""
        lease, attempts = leased.lease, leased.message.attempts + 1
        if answer.succeeded:
            change = lease_change(Operation.ACK, lease)
        elif answer.verdict is Verdict.no_turn:
            change = lease_change(Operation.UNRESERVE, lease)
        elif attempts >= self.topic.settings.max_attempts:
            change = lease_change(Operation.BURY, lease, reason=_last_words(attempts, answer))
        else:
            wait = After(self._calls.wait_ms(attempts))
            change = lease_change(Operation.RETRY, lease, wait)
        (outcome,) = await self._parts.carrier.change(self.topic.uid, [change], again=again)
        if outcome.refusal is Refusal.BUSY:
            raise StoreBusy(outcome.reason)
        return outcome

    def _finished(self, size_bytes: int, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._under_way_bytes -= size_bytes
        if self._subscription is not None and not self._subscription.closed:
            self._subscription.grant(1, self._parts.clock.now_ms())

    # Logging

    def _note(self, answer: Answer) -> None:
        if answer.succeeded or answer.verdict is Verdict.no_turn:
            return
        self._failures += 1
        now_s = time.monotonic()
        if now_s < self._tell_failures_s:
            return
        logger.warning(
            "calls of topic %r failed, %d since the last such line: %s",
            self.topic.name,
            self._failures,
            answer.reason,
            extra={"action": "target_failed", "topic": self.topic.name},
        )
        self._failures, self._tell_failures_s = 0, now_s + _TELL_EVERY_S

    def _note_outcome(self, outcome: Outcome) -> None:
        if not outcome.done:
            _summary.info(
                "settled_otherwise",
                "message %r of topic %r was settled already, or its lease was over, after its call: %s",
                outcome.id,
                self.topic.name,
                outcome.reason,
                topic=self.topic.name,
            )


def _last_words(attempts: int, answer: Answer) -> str:
    """The reason that is kept with a dead letter."""
    words = f"{attempts} attempts failed, the last: {answer.reason}"
    return printable(words, instead=" ")[:MAX_REASON_CHARACTERS]
