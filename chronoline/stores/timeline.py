"""The timeline store: the rules of the contract, over an engine that is passed in.

`Timeline` checks input once, lets the engine write, and turns the result into outcomes: done, refused for a
named reason, or done before. `stores.engine` is the contract of an engine.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from chronoline.core.change import (
    DELETIONS,
    Change,
    check_batch_size,
    operation_of,
    pair_changes,
)
from chronoline.core.errors import InvalidInput
from chronoline.core.filters import end_of_prefix
from chronoline.core.ids import HASH_VALUES, bucket_of
from chronoline.core.limits import (
    MAX_RESERVE_AHEAD_MS,
    MAX_TIME_MS,
    MIN_LEASE_MS,
    history_problem,
    id_problem,
)
from chronoline.core.message import (
    DeadLetter,
    Lease,
    LeasedMessage,
    Message,
    NewMessage,
    SavedMessage,
)
from chronoline.core.outcome import Grant, Outcome, Refusal
from chronoline.core.permissions import Actor, Operation, refusal_of
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.schedule import Schedule
from chronoline.core.topic import (
    DEFAULT_SETTINGS,
    Pause,
    Topic,
    TopicSettings,
    check_settings_change,
)
from chronoline.stores.batch import change_batch, invalid
from chronoline.stores.checks import (
    check_after,
    check_batch,
    check_limit,
    check_name,
    check_session,
    check_span,
    check_time,
    check_whole,
)
from chronoline.stores.contract import (
    MAX_FORECAST_STEPS,
    Bodies,
    Counts,
    ForecastStep,
    IfExists,
    Notice,
    Page,
    Reach,
    Recipient,
    Result,
    Returned,
    Store,
    StoredRow,
    Watch,
)
from chronoline.stores.engine import (
    Engine,
    Ids,
    Key,
    LeaseRequest,
    RestoredRow,
    ResumeRequest,
    Span,
    Taken,
)
from chronoline.stores.guards import explain_lease, refused
from chronoline.stores.inputs import InputAccount, InputClaim, Intake, TakenIn
from chronoline.stores.intake import IntakeRun, check_intakes
from chronoline.stores.members import FORGOTTEN_AFTER_MS, MAX_DETAILS_BYTES, Member
from chronoline.stores.schedule_table import ScheduleTable
from chronoline.stores.schedules import SchedulePlace, ScheduleStep, Stepped
from chronoline.stores.stripes import Cell, cells_of
from chronoline.stores.topics import TopicCatalog
from chronoline.stores.writer import Writer, transact

_BEFORE_ALL = (0, "")
"""Before every (moment, id): ids are not empty."""
_AFTER_ALL_MS = 1 << 62
"""After every ts: a lease on the last millisecond ends behind it."""


class Timeline(Store):
    """A timeline store over an engine."""

    def __init__(
        self, engine: Engine[Any], random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self.engine = engine
        self.capabilities = engine.capabilities
        self.traffic = engine.traffic
        self.topics = TopicCatalog(engine, random_bytes)
        self._writer = Writer(engine, self.topics)
        # Topics without a dedupe time in which a message was deleted here since the last purge.
        self._deleted_in: set[int] = set()
        self._schedules = ScheduleTable(
            engine, self.topics, random_bytes, cancelled_in=self._deleted_in.add
        )

    # Topics

    def create_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        return self.topics.create(name, settings, now_ms)

    def ensure_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        return self.topics.ensure(name, settings, now_ms)

    def get_topic(self, uid: int) -> Topic:
        return self.topics.get(uid)

    def find_topic(self, name: str) -> Topic | None:
        return self.topics.find(name)

    def list_topics(self) -> list[Topic]:
        return self.engine.list_topics()

    def deleted_topics(self) -> list[Topic]:
        return self.engine.deleted_topics()

    def delete_topic(self, uid: int, *, now_ms: int) -> bool:
        return self.topics.delete(uid, now_ms)

    def changed_topics(self) -> list[Topic]:
        return self.engine.changed_topics()

    def change_topic(
        self, uid: int, settings: TopicSettings, *, revision: int | None = None, now_ms: int
    ) -> Topic:
        if not isinstance(settings, TopicSettings):
            raise InvalidInput(f"settings must be TopicSettings, not {type(settings).__name__}")

        def change(topic: Topic) -> Topic:
            check_settings_change(topic.settings, settings)
            if topic.settings.dead_letters and not settings.dead_letters:
                self._check_no_letters(topic)
            return replace(topic, settings=settings)

        return self.topics.change(uid, change, revision=revision, now_ms=now_ms)

    def _check_no_letters(self, topic: Topic) -> None:
        if self.engine.dead_letters(topic, _BEFORE_ALL, 1):
            raise InvalidInput(
                "dead_letters cannot be switched off while there are some, which would be lost: put them "
                "back or discard them first"
            )

    def pause_topic(self, uid: int, *, by: str = "", reason: str = "", now_ms: int) -> Topic:
        pause = Pause(since=now_ms, by=by, reason=reason)

        def change(topic: Topic) -> Topic:
            since = now_ms if topic.pause is None else topic.pause.since
            return replace(topic, pause=replace(pause, since=since))

        return self.topics.change(uid, change, revision=None, now_ms=now_ms)

    def resume_topic(self, uid: int, *, now_ms: int) -> Topic:
        topic = self.topics.change(
            uid, lambda topic: replace(topic, pause=None), revision=None, now_ms=now_ms
        )
        # To sleepers that know nothing of pauses: something may be due.
        self.engine.announce(None, Notice(topic_uid=uid, due=0))
        return topic

    # Changes

    def create(
        self,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        return self._create(self._writer, topic_uid, messages, if_exists, now_ms)

    def _create(
        self,
        writer: Writer,
        topic_uid: int,
        messages: Sequence[NewMessage],
        if_exists: IfExists,
        now_ms: int,
    ) -> list[Outcome]:
        if if_exists not in ("refuse", "replace"):
            raise InvalidInput(f'if_exists must be "refuse" or "replace", not {if_exists!r}')
        check_time("now_ms", now_ms)
        topic = self.topics.known(topic_uid, writer.connection, now_ms=now_ms)
        return writer.create(topic, messages, replace=if_exists == "replace", now_ms=now_ms)

    def restore(
        self, topic_uid: int, messages: Sequence[SavedMessage], *, now_ms: int
    ) -> list[Outcome]:
        check_batch(messages, now_ms)
        for each in messages:
            _check_saved(each)
        topic = self.topics.known(topic_uid, now_ms=now_ms)
        # Their dues were spread when they were sent, if at all.
        as_saved = replace(topic, settings=replace(topic.settings, spread_ms=None))

        def work(writer: Writer) -> list[Outcome]:
            new = [each.to_new() for each in messages]
            outcomes = writer.create(as_saved, new, replace=False, now_ms=now_ms)
            rows = [
                _restored(topic, each)
                for each, outcome in zip(messages, outcomes, strict=True)
                if outcome.done
            ]
            if rows:
                self.engine.restore(writer.connection, topic, rows)
            return outcomes

        return transact(self.engine, self.topics, work) if messages else []

    def apply(
        self, topic_uid: int, changes: Sequence[Change], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        check_batch(changes, now_ms)
        topic = self.topics.known(topic_uid, now_ms=now_ms)
        if not changes:
            return []
        operation = operation_of(changes)
        if operation in DELETIONS and not topic.settings.dedupe_ms:
            self._deleted_in.add(topic.uid)
        return self._writer.change(operation, topic, changes, again=again, now_ms=now_ms)

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        return self.engine.together(works)

    # Leases

    def reserve(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        consumer: str,
        limit: int,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        session: str = "",
        since_ms: int = 0,
        now_ms: int,
    ) -> Grant:
        request = _lease_request(consumer, lease_ms, reserve_ahead_ms, session, now_ms)
        check_time("since_ms", since_ms)
        check_limit(limit)
        topic = self.topics.known(topic_uid, now_ms=now_ms)
        merged = merge_ranges(ranges, topic.settings.buckets)
        request = request._replace(since_ms=since_ms)
        taken, more, clear_ms = self.engine.reserve(topic, merged, limit, request)
        # There is nothing to lease, or the topic is paused, or it was deleted.
        if not taken and self.topics.get(topic_uid).pause is not None:
            clear_ms = 0
        taken.sort(key=_due_of)
        grant = _grant(taken, consumer, session, [], more=more)
        return replace(grant, clear_ms=clear_ms)

    def reserve_for(
        self,
        topic_uid: int,
        recipients: Sequence[Recipient],
        *,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        now_ms: int,
    ) -> list[Grant]:
        check_batch(recipients, now_ms)
        topic = self.topics.known(topic_uid, now_ms=now_ms)
        if not recipients:
            return []
        checked: list[Recipient] = []
        requests: list[LeaseRequest] = []
        for consumer, session, ranges, limit in recipients:
            check_limit(limit)
            requests.append(_lease_request(consumer, lease_ms, reserve_ahead_ms, session, now_ms))
            merged = merge_ranges(ranges, topic.settings.buckets)
            checked.append(Recipient(consumer, session, merged, limit))
        found = self.engine.reserve_for(topic, checked, requests[0])
        if not any(each.taken for each in found):
            self.topics.get(topic_uid)  # nothing to lease, or the topic was deleted
        grants: list[Grant] = []
        for (taken, more, _), recipient in zip(found, checked, strict=True):
            taken.sort(key=_due_of)
            grants.append(_grant(taken, recipient.consumer, recipient.session, [], more=more))
        return grants

    def lease(
        self,
        topic_uid: int,
        wanted: Sequence[tuple[str, int]],
        *,
        consumer: str,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        session: str = "",
        now_ms: int,
    ) -> Grant:
        request = _lease_request(consumer, lease_ms, reserve_ahead_ms, session, now_ms)
        topic = self.topics.known(topic_uid, now_ms=now_ms)
        changes = pair_changes(
            Operation.LEASE,
            wanted,
            "(id, version)",
            lambda each, version: Change(Operation.LEASE, each, consumer, version),
        )
        batch = change_batch(Operation.LEASE, topic, changes, now_ms)
        taken: list[Taken] = []

        def name(row: StoredRow | None, change: Change) -> Outcome:
            refusal = explain_lease(row, change.version, request)
            if refusal is None and self.topics.get(topic_uid).pause is not None:
                refusal = Refusal.PAUSED
            return refused(change.id, refusal)

        with batch.unknown_once_begun():
            for chosen in batch.rounds():
                got = self.engine.lease(topic, chosen, request)
                taken += got
                made = {each.message.id: each.message.version for each in got}
                self._writer.settle(batch, topic, chosen, made, name)
        taken.sort(key=_due_of)
        denied = [outcome for outcome in batch.outcomes() if not outcome.done]
        return _grant(taken, consumer, session, denied, more=False)

    def resume(
        self,
        topic_uid: int,
        consumer: str,
        *,
        after: str = "",
        limit: int,
        session: str = "",
        now_ms: int,
    ) -> Grant:
        check_name("consumer", consumer)
        check_session(session)
        check_after(after)
        check_time("now_ms", now_ms)
        check_limit(limit)
        request = ResumeRequest(consumer, session or None, after, limit, now_ms)
        taken = self.engine.resume(self.topics.known(topic_uid), request)
        if not taken:
            self.topics.get(topic_uid)  # nothing to resume, or the topic was deleted
        taken.sort(key=lambda each: each.message.id)
        if session and not after:
            returned = Returned(now_ms, session, consumer)
            self.engine.announce(None, Notice(topic_uid=topic_uid, returned=returned))
        grant = _grant(taken, consumer, session, [], more=len(taken) >= limit)
        return replace(grant, at=now_ms)

    # Reads

    def select(
        self, topic_uid: int, ranges: Sequence[BucketRange], *, limit: int, max_ts: int
    ) -> Page:
        check_limit(limit)
        check_time("max_ts", max_ts)
        topic = self.topics.get(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        return _page(self.engine.select(topic, merged, limit + 1, max_ts), limit)

    def lookup(self, topic_uid: int, ids: Sequence[str]) -> dict[str, Message]:
        check_batch_size(ids)
        topic = self.topics.get(topic_uid)
        keys = _keys(topic, ids)
        return {message.id: message for message in self.engine.lookup(topic, keys)} if keys else {}

    def bodies(self, topic_uid: int, ids: Sequence[str], *, actor: Actor, now_ms: int) -> Bodies:
        check_batch(ids, now_ms)
        if not isinstance(actor, Actor):
            raise InvalidInput(f"actor must be a Producer, Consumer or System, not {actor!r}")
        topic = self.topics.get(topic_uid)
        found: dict[str, bytes | None] = {}
        denied: dict[str, Outcome] = {}
        stored = self.engine.bodies(topic, _keys(topic, ids))
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
        first: str = "",
        limit: int,
    ) -> Page:
        check_name("consumer", consumer)
        check_session(session or "")
        ids = _ids(after, first)
        check_limit(limit)
        topic = self.topics.get(topic_uid)
        return _page(self.engine.select_held(topic, consumer, session, ids, limit + 1), limit)

    def select_owned(
        self, topic_uid: int, producer_group: str, *, after: str = "", first: str = "", limit: int
    ) -> Page:
        check_name("producer group", producer_group)
        ids = _ids(after, first)
        check_limit(limit)
        topic = self.topics.get(topic_uid)
        return _page(self.engine.select_owned(topic, producer_group, ids, limit + 1), limit)

    def select_prefix(
        self, topic_uid: int, prefix: str, *, after: tuple[int, str] | None = None, limit: int
    ) -> Page:
        bucket, behind = (0, "") if after is None else after
        check_whole("bucket", bucket, 0, HASH_VALUES)
        ids = _ids(behind, prefix)._replace(end=end_of_prefix(prefix))
        check_limit(limit)
        topic = self.topics.get(topic_uid)
        found: list[Message] = []
        # Each read covers twice the buckets of the one before, which did not fill the page.
        reach = 1
        while bucket < topic.settings.buckets and len(found) <= limit:
            stop = min(bucket + reach, topic.settings.buckets)
            buckets = BucketRange(bucket, stop)
            found += self.engine.select_keys(topic, buckets, ids, limit + 1 - len(found))
            bucket, ids, reach = stop, ids._replace(after=""), 2 * reach
        return _page(found, limit)

    def select_between(
        self,
        topic_uid: int,
        *,
        start: int = 0,
        end: int | None = None,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> Page:
        check_span(start, MAX_TIME_MS if end is None else end)
        check_limit(limit)
        topic = self.topics.get(topic_uid)
        before = _AFTER_ALL_MS if end is None else end
        place = max((start, ""), after or _BEFORE_ALL)
        cells = cells_of(topic.all_buckets, topic.settings.buckets)
        chunk = min(limit + 1, 2 * (limit + 1) // len(cells) + 10)

        def of_cell(cell: Cell) -> Iterator[Message]:
            behind = place
            while True:
                found = self.engine.scan(topic, cell, behind, before, chunk)
                yield from found
                if len(found) < chunk:
                    return
                behind = (found[-1].ts, found[-1].id)

        merged = heapq.merge(*map(of_cell, cells), key=lambda each: (each.ts, each.id))
        return _page(list(islice(merged, limit + 1)), limit)

    def rows(self, topic_uid: int, ids: Sequence[str]) -> dict[str, StoredRow]:
        check_batch_size(ids)
        topic = self.topics.get(topic_uid)
        keys = _keys(topic, ids)
        return self.engine.rows(None, topic, keys) if keys else {}

    def next_group(self, topic_uid: int, *, after: str = "") -> str | None:
        if after:
            check_name("producer group", after)
        return self.engine.next_group(self.topics.get(topic_uid), after)

    def count_owned(self, topic_uid: int, producer_group: str, *, most: int) -> int:
        check_name("producer group", producer_group)
        check_whole("most", most, 1, MAX_TIME_MS)
        return self.engine.count_owned(self.topics.get(topic_uid), producer_group, most)

    def next_times(
        self, topic_uid: int, shares: Sequence[Sequence[BucketRange]]
    ) -> list[int | None]:
        topic = self.topics.known(topic_uid)
        merged = [merge_ranges(ranges, topic.settings.buckets) for ranges in shares]
        found = self.engine.next_times(topic, merged)
        if all(ts is None for ts in found):
            self.topics.get(topic_uid)  # nothing is there, or the topic was deleted
        return found

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
        topic = self.topics.get(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        counted = self.engine.forecast(topic, merged, Span(start, end, step_ms, now_ms))
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
        topic = self.topics.get(topic_uid)
        buckets = topic.settings.buckets
        before = _AFTER_ALL_MS if end is None else end
        # Cell by cell: a merge of all cells would read a whole page of each, and use little of it.
        found: list[Message] = []
        for cell in cells_of(merge_ranges(ranges, buckets), buckets):
            if after is None or after.bucket < cell.start:
                behind = start, ""  # before every id
            elif after.bucket < cell.stop:
                behind = max((start, ""), (after.ts, after.id))
            else:
                continue
            found += self.engine.scan(topic, cell, behind, before, limit + 1 - len(found))
            if len(found) > limit:
                break
        return _page(found, limit)

    def scan_held(self, topic_uid: int, *, after: Message | None = None, limit: int) -> Page:
        check_limit(limit)
        behind = ("", "")
        if after is not None:
            holder = getattr(after, "lock_consumer", None)
            if holder is None:
                raise InvalidInput(f"after must be a Message with a holder, not {after!r}")
            behind = (holder, after.id)
        topic = self.topics.get(topic_uid)
        return _page(self.engine.scan_held(topic, behind, limit + 1), limit)

    def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None = None, limit: int
    ) -> list[DeadLetter]:
        check_limit(limit)
        if after is not None and not isinstance(after, DeadLetter):
            raise InvalidInput(f"after must be a DeadLetter, not {type(after).__name__}")
        behind = (after.died, after.message.id) if after else _BEFORE_ALL
        check_after(behind[1])
        return self.engine.dead_letters(self.topics.get(topic_uid), behind, limit)

    # Inputs

    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        check_name("source", source)
        check_name("holder", holder)
        check_time("until_ms", until_ms)
        check_time("now_ms", now_ms)
        check_batch_size(starts)
        for partition, start in starts.items():
            check_whole("partition", partition, 0, MAX_TIME_MS)
            check_whole("start", start, 0, MAX_TIME_MS)
        return self.engine.claim_inputs(source, starts, holder, until_ms, now_ms) if starts else []

    def renew_claims(
        self, claims: Sequence[InputClaim], *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        check_batch_size(claims)
        check_time("until_ms", until_ms)
        check_time("now_ms", now_ms)
        return self.engine.renew_claims(claims, until_ms, now_ms) if claims else []

    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        self.engine.release_claims(claims)

    def take_in(
        self, topic_uid: int, intakes: Sequence[Intake], *, producer_group: str, now_ms: int
    ) -> list[TakenIn]:
        check_name("producer group", producer_group)
        check_time("now_ms", now_ms)
        check_intakes(intakes)
        topic = self.topics.known(topic_uid)

        def work(writer: Writer) -> list[TakenIn]:
            run = IntakeRun(self.engine, writer, topic, producer_group, now_ms)
            return run.take_in(intakes)

        return transact(self.engine, self.topics, work) if intakes else []

    def input_accounts(self, source: str) -> list[InputAccount]:
        return self.engine.input_accounts(source)

    def forget_inputs(self, source: str, *, now_ms: int) -> int:
        return self.engine.forget_inputs(source, now_ms)

    # Members

    def beat(
        self, group: str, name: str, *, until_ms: int, details: str = "", now_ms: int
    ) -> list[Member]:
        check_name("group", group)
        check_name("member", name)
        check_time("until_ms", until_ms)
        check_time("now_ms", now_ms)
        if len(details.encode()) > MAX_DETAILS_BYTES:
            raise InvalidInput(f"details have at most {MAX_DETAILS_BYTES} bytes")
        self.engine.beat(group, name, until_ms, details, max(0, now_ms - FORGOTTEN_AFTER_MS))
        return self.members(group)

    def members(self, group: str) -> list[Member]:
        return self.engine.members(group)

    def live_groups(self, *, now_ms: int) -> frozenset[str]:
        return self.engine.live_groups(now_ms)

    def ask_to_stop(self, group: str, name: str | None = None) -> int:
        return self.engine.ask_to_stop(group, name)

    def leave(self, group: str, name: str) -> None:
        self.engine.leave(group, name)

    # Schedules

    def put_schedule(
        self,
        schedule: Schedule,
        *,
        instead_of: Schedule | None = None,
        cancel: Sequence[int] = (),
        now_ms: int,
    ) -> Schedule | None:
        return self._schedules.put(schedule, instead_of, cancel, now_ms)

    def delete_schedule(
        self, schedule: Schedule, *, cancel: Sequence[int] = (), until_ms: int = 0, now_ms: int
    ) -> bool:
        return self._schedules.delete(schedule, cancel, until_ms, now_ms)

    def schedule_floor_ms(self, name: str) -> int:
        check_name("schedule", name)
        return self.engine.schedule_floor_ms(name)

    def find_schedule(self, name: str) -> Schedule | None:
        check_name("schedule", name)
        return self.engine.find_schedule(name)

    def list_schedules(
        self, *, topic_uid: int | None = None, after: str = "", limit: int
    ) -> list[Schedule]:
        check_after(after)
        check_limit(limit)
        return self.engine.list_schedules(topic_uid, after, limit)

    def count_schedules(self, topic_uid: int, *, most: int) -> int:
        check_whole("most", most, 1, MAX_TIME_MS)
        return self.engine.count_schedules(topic_uid, most)

    def due_schedules(
        self, before_ms: int, *, after: SchedulePlace | None = None, limit: int
    ) -> list[Schedule]:
        check_time("before_ms", before_ms)
        check_limit(limit)
        return self.engine.due_schedules(before_ms, after or SchedulePlace(-1, ""), limit)

    def next_schedule_ms(self, after_ms: int) -> int | None:
        return self.engine.next_schedule_ms(after_ms)

    def step_schedules(self, steps: Sequence[ScheduleStep], *, now_ms: int) -> list[Stepped]:
        return self._schedules.step(steps, now_ms)

    # Upkeep

    def purge(self, *, limit: int = 1_000, now_ms: int) -> int:
        check_limit(limit)
        check_time("now_ms", now_ms)
        uids = self._deleted_in.copy()
        self._deleted_in -= uids
        if uids:
            self.engine.raise_floors(sorted(uids), now_ms)
        return self.engine.purge(limit, now_ms)

    def watch(self) -> Watch:
        return self.engine.watch()

    def probe(self, *, patience_s: float) -> Reach:
        return self.engine.probe(patience_s)

    def clock_ms(self) -> int | None:
        return self.engine.clock_ms()

    def await_durable(self) -> None:
        self.engine.await_durable(None)

    def identity(self) -> str:
        return self.engine.identity()

    def close(self) -> None:
        self.engine.close()


def _lease_request(
    consumer: str, lease_ms: int, reserve_ahead_ms: int, session: str, now_ms: int
) -> LeaseRequest:
    """The checked part of a request for leases that all its messages share."""
    check_name("consumer", consumer)
    check_session(session)
    check_time("now_ms", now_ms)
    check_whole("lease_ms", lease_ms, MIN_LEASE_MS, MAX_TIME_MS)
    check_whole("reserve_ahead_ms", reserve_ahead_ms, 0, MAX_RESERVE_AHEAD_MS)
    return LeaseRequest(consumer, lease_ms, reserve_ahead_ms, session or None, now_ms)


def _keys(topic: Topic, ids: Sequence[str]) -> list[Key]:
    """The keys of the ids that are valid, each once, in their order."""
    valid = dict.fromkeys(each for each in ids if id_problem(each) is None)
    return [(bucket_of(each, topic.settings.buckets), each) for each in valid]


def _check_saved(saved: object) -> None:
    if not isinstance(saved, SavedMessage):
        raise InvalidInput(f"must be a SavedMessage, not {type(saved).__name__}")
    if problem := history_problem(saved):
        raise InvalidInput(problem)


def _restored(topic: Topic, saved: SavedMessage) -> RestoredRow:
    key = bucket_of(saved.id, topic.settings.buckets), saved.id
    death = saved.reason if saved.is_dead else None
    return RestoredRow(key, saved.due, saved.attempts, death, saved.died)


def _ids(after: str, first: str) -> Ids:
    check_after(after)
    check_after(first)
    return Ids(after, first)


def _page(messages: list[Message], limit: int) -> Page:
    return Page(messages=tuple(messages[:limit]), more=len(messages) > limit)


def _due_of(taken: Taken) -> int:
    return taken.message.due


def _grant(
    taken: list[Taken], consumer: str, session: str, denied: list[Outcome], *, more: bool
) -> Grant:
    leased: list[LeasedMessage] = []
    for message, body, redelivered, death, taken_from, resumed_from in taken:
        if death is not None:
            detail = f"sent to the dead letters: {death}"
            denied.append(Outcome(id=message.id, refusal=Refusal.DEAD, detail=detail))
            continue
        lease = Lease(
            id=message.id,
            consumer=consumer,
            version=message.version,
            until=message.ts,
            session=session,
            since=message.version,
        )
        leased.append(
            LeasedMessage(
                lease=lease,
                message=message,
                body=body,
                redelivered=redelivered,
                taken_from=taken_from,
                resumed_from=resumed_from,
            )
        )
    return Grant(leased=tuple(leased), refused=tuple(denied), more=more)
