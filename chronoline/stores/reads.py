"""Looks at a timeline, as all engines take them: they change nothing."""

from __future__ import annotations

from collections.abc import Sequence

from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.core.limits import MAX_TIME_MS, id_problem
from chronoline.core.message import DeadLetter, Message
from chronoline.core.outcome import Outcome
from chronoline.core.permissions import Actor, Operation, refusal_of
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import Topic
from chronoline.stores.batch import (
    check_after,
    check_batch,
    check_limit,
    check_name,
    check_session,
    check_size,
    check_span,
    check_time,
    check_whole,
    first_of_each,
    invalid,
)
from chronoline.stores.changes import Span
from chronoline.stores.contract import (
    MAX_FORECAST_STEPS,
    Bodies,
    Counts,
    ForecastStep,
    Page,
)
from chronoline.stores.primitives import Key
from chronoline.stores.stripes import cells_of
from chronoline.stores.topics import KnowsTopics

_BEFORE_ALL = (0, "")
"""Before every (moment, id): ids are not empty."""
_AFTER_ALL_MS = 1 << 62
"""After every ts: a lease on the last millisecond ends behind it."""


class Looks(KnowsTopics):
    """The contract's methods that change nothing."""

    def select(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, limit: int, max_ts: int
    ) -> Page:
        check_limit(limit)
        check_time("max_ts", max_ts)
        topic = self.get_topic(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        return _page(self._select(topic, merged, limit + 1, max_ts), limit)

    def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        check_size(ids)
        topic = self.get_topic(topic_uid)
        keys = _keys(topic, ids)
        return {message.id: message for message in self._lookup(topic, keys)} if keys else {}

    def bodies(self, topic_uid: int, ids: Sequence[str], *, actor: Actor, now_ms: int) -> Bodies:
        check_batch(ids, now_ms)
        if not isinstance(actor, Actor):
            raise InvalidInput(f"actor must be a Producer, Consumer or System, not {actor!r}")
        topic = self.get_topic(topic_uid)
        found: dict[str, bytes | None] = {}
        denied: dict[str, Outcome] = {}
        stored = self._bodies(topic, _keys(topic, ids))
        for message_id in ids:
            problem = id_problem(message_id)
            if problem:
                outcome = invalid(message_id, problem)
                denied[outcome.id] = outcome
                continue
            row, body = stored.get(message_id, (None, None))
            refusal = refusal_of(Operation.READ_BODY, actor, row, now_ms)
            if refusal is None:
                found[message_id] = body
            else:
                denied[message_id] = Outcome(id=message_id, refusal=refusal)
        return Bodies(found=found, refused=tuple(denied.values()))

    def select_held(
        self,
        topic_uid: int,
        consumer: str,
        *,
        session: str | None = None,
        after: str = "",
        limit: int,
    ) -> Page:
        check_name("consumer", consumer)
        check_session(session or "")
        check_after(after)
        check_limit(limit)
        topic = self.get_topic(topic_uid)
        return _page(self._select_held(topic, consumer, session, after, limit + 1), limit)

    def select_owned(
        self, topic_uid: int, producer_group: str, *, after: str = "", limit: int
    ) -> Page:
        check_name("producer group", producer_group)
        check_after(after)
        check_limit(limit)
        topic = self.get_topic(topic_uid)
        return _page(self._select_owned(topic, producer_group, after, limit + 1), limit)

    def next_ts(self, topic_uid: int, ranges: Sequence[BucketRange]) -> int | None:
        topic = self._topic(topic_uid)
        ts = self._next_ts(topic, merge_ranges(ranges, topic.settings.buckets))
        if ts is None:
            self.get_topic(topic_uid)  # nothing is there, or the topic was dropped
        return ts

    def count(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, start: int, end: int, now_ms: int
    ) -> Counts:
        check_span(start, end)
        step_ms = max(1, end - start)
        steps = self.forecast(
            topic_uid, ranges, start=start, end=end, step_ms=step_ms, now_ms=now_ms
        )
        return steps[0].counts if steps else Counts()

    def forecast(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        start: int,
        end: int,
        step_ms: int,
        now_ms: int,
    ) -> list[ForecastStep]:
        check_span(start, end)
        check_time("now_ms", now_ms)
        check_whole("step_ms", step_ms, 1, MAX_TIME_MS)
        steps = -(-(end - start) // step_ms)
        if steps > MAX_FORECAST_STEPS:
            raise InvalidInput(
                f"a forecast has at most {MAX_FORECAST_STEPS} steps, not {steps}: use longer ones"
            )
        topic = self.get_topic(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        counted = self._forecast(topic, merged, Span(start, end, step_ms, now_ms))
        return [
            ForecastStep(start=start + step * step_ms, counts=counted.get(step, Counts()))
            for step in range(steps)
        ]

    def scan(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        start: int = 0,
        end: int | None = None,
        after: Message | None = None,
        limit: int,
    ) -> Page:
        check_span(start, MAX_TIME_MS if end is None else end)
        check_limit(limit)
        if after is not None and not isinstance(after, Message):
            raise InvalidInput(f"after must be a Message, not {type(after).__name__}")
        topic = self.get_topic(topic_uid)
        buckets = topic.settings.buckets
        before = _AFTER_ALL_MS if end is None else end
        # Cell by cell: a merge of all cells would read as many rows of each, and give most of them up.
        found: list[Message] = []
        for cell in cells_of(merge_ranges(ranges, buckets), buckets):
            if after is None or after.bucket < cell.start:
                behind = start, ""  # before every id
            elif after.bucket < cell.stop:
                behind = max((start, ""), (after.ts, after.id))
            else:
                continue
            found += self._scan(topic, cell, behind, before, limit + 1 - len(found))
            if len(found) > limit:
                break
        return _page(found, limit)

    def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None = None, limit: int
    ) -> list[DeadLetter]:
        check_limit(limit)
        if after is not None and not isinstance(after, DeadLetter):
            raise InvalidInput(f"after must be a DeadLetter, not {type(after).__name__}")
        behind = (after.died, after.message.id) if after else _BEFORE_ALL
        check_after(behind[1])
        return self._dead_letters(self.get_topic(topic_uid), behind, limit)


def _keys(topic: Topic, ids: Sequence[str]) -> list[Key]:
    return [(bucket_of(each, topic.settings.buckets), each) for each in first_of_each(ids)]


def _page(messages: list[Message], limit: int) -> Page:
    return Page(messages=tuple(messages[:limit]), more=len(messages) > limit)
