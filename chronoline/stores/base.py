"""What all engines share: checking input once, and turning what an engine did into outcomes.

An engine supplies the `Primitives`. Ids that a primitive did not change are looked up, and the refusal is
named by `changes.explain`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from chronoline.core.errors import InvalidInput, OutcomeUnknown, TopicExists, TopicNotFound
from chronoline.core.ids import MAX_UID, UID_ENTROPY_BYTES, bucket_of, make_topic_uid
from chronoline.core.limits import MAX_TIME_MS, name_problem
from chronoline.core.message import DeadLetter, Lease, LeasedMessage, Message, NewMessage
from chronoline.core.outcome import Grant, Outcome, Refusal
from chronoline.core.permissions import Actor, Operation, refusal_of
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import DEFAULT_SETTINGS, Topic, TopicSettings, check_topic_name
from chronoline.stores.asking import (
    Asked,
    change_batch,
    lease_item,
    new_message_batch,
    pair_item,
)
from chronoline.stores.batch import (
    Batch,
    Item,
    check_after,
    check_batch,
    check_limit,
    check_name,
    check_request,
    check_size,
    check_span,
    check_time,
    check_uid,
    check_whole,
    first_of_each,
    invalid,
)
from chronoline.stores.changes import (
    Change,
    Span,
    StoredRow,
    Taken,
    explain,
    explain_create,
    explain_lease,
    is_move,
    refused,
    repeated,
)
from chronoline.stores.contract import (
    MAX_FORECAST_STEPS,
    NOTICE_HORIZON_MS,
    Bodies,
    Counts,
    ForecastStep,
    IfExists,
    Notice,
    Page,
    Store,
)
from chronoline.stores.primitives import Key, Primitives

_UID_TRIES = 10
_STATEMENT_BYTES = 16 * 1024 * 1024
"""Of bodies, keys and headers: more are written in several statements."""
_MOST_KNOWN_TOPICS = 10_000
_BEFORE_ALL = (0, "")
"""Before every (moment, id): ids are not empty."""
_SYSTEM = "system"
"""The name of the hand that changes dead letters; no guard looks at it."""


class EngineStore(Primitives, Store):
    """The contract's methods over an engine's primitives."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        # Topics by uid. A uid is never used again and settings are fixed, so this cannot be wrong;
        # whether the topic still lives is checked by every write, and before every look.
        self._known_topics: dict[int, Topic] = {}
        self._known_topics_lock = threading.Lock()

    # Topics

    def create_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        check_topic_name(name)
        check_time("now_ms", now_ms)
        if not isinstance(settings, TopicSettings):
            raise InvalidInput(f"settings must be TopicSettings, not {type(settings).__name__}")
        for _ in range(_UID_TRIES):
            uid = make_topic_uid(now_ms, self._random_bytes(UID_ENTROPY_BYTES))
            topic = Topic(uid=uid, name=name, settings=settings)
            if self._insert_topic(topic):
                return self._remember(topic)
            if self._is_name_taken(name):
                break
        raise TopicExists(f"a topic named {name!r} exists, or is still being dropped")

    def ensure_topic(
        self, name: str, settings: TopicSettings = DEFAULT_SETTINGS, *, now_ms: int
    ) -> Topic:
        found = self.find_topic(name)
        if found is not None:
            return found
        try:
            return self.create_topic(name, settings, now_ms=now_ms)
        except TopicExists:
            found = self.find_topic(name)  # another may have been faster
            if found is None:
                raise
            return found

    def get_topic(self, uid: int) -> Topic:
        check_uid(uid)
        topic = self._fetch_topic(uid) if 0 <= uid <= MAX_UID else None
        if topic is None:
            raise TopicNotFound(f"there is no topic with uid {uid}; it may have been dropped")
        return topic

    def find_topic(self, name: str) -> Topic | None:
        return self._find_topic(name) if name_problem("topic name", name) is None else None

    def drop_topic(self, uid: int, *, now_ms: int) -> bool:
        check_time("now_ms", now_ms)
        check_uid(uid)
        return self._drop_topic(uid, now_ms) if 0 <= uid <= MAX_UID else False

    def _topic(self, uid: int) -> Topic:
        check_uid(uid)
        return self._known_topics.get(uid) or self._remember(self.get_topic(uid))

    def _remember(self, topic: Topic) -> Topic:
        with self._known_topics_lock:
            if len(self._known_topics) >= _MOST_KNOWN_TOPICS:
                self._known_topics.clear()
            self._known_topics[topic.uid] = topic
        return topic

    # What producers do

    def create(
        self,
        topic_uid: int,
        messages: Sequence[NewMessage],
        *,
        if_exists: IfExists = "refuse",
        now_ms: int,
    ) -> list[Outcome]:
        if if_exists not in ("refuse", "replace"):
            raise InvalidInput(f'if_exists must be "refuse" or "replace", not {if_exists!r}')
        replace = if_exists == "replace"
        topic = self._topic(topic_uid)

        def name(row: StoredRow | None, item: tuple[int, NewMessage]) -> Outcome:
            change = Change(item[0], item[1].id, item[1].producer_group)
            return refused(change.id, explain_create(row, change, replace, now_ms))

        batch = new_message_batch(topic, messages, now_ms)
        again = None if replace else _exists_again
        with batch.honest():
            for chosen in batch.rounds(_weight, _STATEMENT_BYTES, again):
                dues = {new.id: new.due for _, new in chosen}
                with self._telling(topic, dues, now_ms) as made:
                    made.update(self._create(topic, chosen, replace, now_ms))
                keyed = {(bucket, new.id): (bucket, new) for bucket, new in chosen}
                self._settle(batch, topic, keyed, made, name)
        return batch.outcomes()

    def reschedule(
        self,
        topic_uid: int,
        moves: Sequence[tuple[str, int]],
        *,
        producer_group: str,
        now_ms: int,
    ) -> list[Outcome]:
        check_name("producer group", producer_group)
        check_size(moves)
        items = [pair_item(move, "(id, due)", producer_group) for move in moves]
        return self._change_all(Operation.RESCHEDULE, topic_uid, items, now_ms)

    def cancel(
        self, topic_uid: int, ids: Sequence[str], *, producer_group: str, now_ms: int
    ) -> list[Outcome]:
        check_name("producer group", producer_group)
        check_size(ids)
        items = [Asked(message_id, producer_group, 0, now_ms) for message_id in ids]
        return self._change_all(Operation.CANCEL, topic_uid, items, now_ms)

    # What consumers do

    def reserve(
        self,
        topic_uid: int,
        ranges: Sequence[BucketRange],
        *,
        consumer: str,
        limit: int,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        now_ms: int,
    ) -> Grant:
        request = check_request(consumer, lease_ms, reserve_ahead_ms, now_ms)
        check_limit(limit)
        topic = self._topic(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        taken, more = self._reserve(topic, merged, limit, request)
        if not taken:
            self.get_topic(topic_uid)  # nothing to lease, or the topic was dropped
        taken.sort(key=_due_of)
        return _grant(taken, consumer, [], more=more)

    def lease(
        self,
        topic_uid: int,
        wanted: Sequence[tuple[str, int]],
        *,
        consumer: str,
        lease_ms: int,
        reserve_ahead_ms: int = 0,
        now_ms: int,
    ) -> Grant:
        request = check_request(consumer, lease_ms, reserve_ahead_ms, now_ms)
        topic = self._topic(topic_uid)
        check_size(wanted)
        pairs = [pair_item(pair, "(id, version)", consumer) for pair in wanted]
        items = [each._replace(version=each.to, to=now_ms) for each in pairs]
        batch = change_batch(topic, items, now_ms)
        taken: list[Taken] = []

        def name(row: StoredRow | None, change: Change) -> Outcome:
            return refused(change.id, explain_lease(row, change, request))

        with batch.honest():
            for chosen in batch.rounds():
                got = self._lease(topic, chosen, request)
                taken += got
                made = {each.message.id: each.message.version for each in got}
                self._settle(batch, topic, {change[:2]: change for change in chosen}, made, name)
        taken.sort(key=_due_of)
        return _grant(taken, consumer, [o for o in batch.outcomes() if not o.done], more=False)

    def resume(
        self, topic_uid: int, consumer: str, *, after: str = "", limit: int, now_ms: int
    ) -> Grant:
        check_name("consumer", consumer)
        check_after(after)
        check_time("now_ms", now_ms)
        check_limit(limit)
        taken = self._resume(self._topic(topic_uid), consumer, after, limit, now_ms)
        if not taken:
            self.get_topic(topic_uid)  # nothing to resume, or the topic was dropped
        taken.sort(key=lambda each: each.message.id)
        return _grant(taken, consumer, [], more=len(taken) >= limit)

    def extend(
        self, topic_uid: int, leases: Sequence[tuple[Lease, int]], *, now_ms: int
    ) -> list[Outcome]:
        return self._change_leases(Operation.EXTEND, topic_uid, leases, now_ms)

    def release(
        self, topic_uid: int, leases: Sequence[tuple[Lease, int]], *, now_ms: int
    ) -> list[Outcome]:
        return self._change_leases(Operation.RELEASE, topic_uid, leases, now_ms)

    def retry(
        self, topic_uid: int, leases: Sequence[tuple[Lease, int]], *, now_ms: int
    ) -> list[Outcome]:
        return self._change_leases(Operation.RETRY, topic_uid, leases, now_ms)

    def unreserve(self, topic_uid: int, leases: Sequence[Lease], *, now_ms: int) -> list[Outcome]:
        check_size(leases)
        items = [lease_item(lease, now_ms) for lease in leases]
        return self._change_all(Operation.UNRESERVE, topic_uid, items, now_ms)

    def ack(self, topic_uid: int, leases: Sequence[Lease], *, now_ms: int) -> list[Outcome]:
        check_size(leases)
        items = [lease_item(lease, now_ms) for lease in leases]
        return self._change_all(Operation.ACK, topic_uid, items, now_ms)

    # Looking

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
            problem = name_problem("id", message_id)
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

    def select_held(self, topic_uid: int, consumer: str, *, after: str = "", limit: int) -> Page:
        check_name("consumer", consumer)
        check_after(after)
        check_limit(limit)
        topic = self.get_topic(topic_uid)
        return _page(self._select_held(topic, consumer, after, limit + 1), limit)

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

    # Dead letters and upkeep

    def dead_letters(
        self, topic_uid: int, *, after: DeadLetter | None = None, limit: int
    ) -> list[DeadLetter]:
        check_limit(limit)
        if after is not None and not isinstance(after, DeadLetter):
            raise InvalidInput(f"after must be a DeadLetter, not {type(after).__name__}")
        behind = (after.died, after.message.id) if after else _BEFORE_ALL
        return self._dead_letters(self.get_topic(topic_uid), behind, limit)

    def redrive(
        self, topic_uid: int, ids: Sequence[str], *, due: int, now_ms: int
    ) -> list[Outcome]:
        check_time("due", due)
        check_size(ids)
        items = [Asked(message_id, _SYSTEM, 0, due) for message_id in ids]
        return self._change_all(Operation.REDRIVE, topic_uid, items, now_ms)

    def discard(self, topic_uid: int, ids: Sequence[str], *, now_ms: int) -> list[Outcome]:
        check_size(ids)
        items = [Asked(message_id, _SYSTEM, 0, now_ms) for message_id in ids]
        return self._change_all(Operation.DISCARD, topic_uid, items, now_ms)

    def purge(self, *, limit: int = 1_000, now_ms: int) -> int:
        check_limit(limit)
        check_time("now_ms", now_ms)
        return self._purge(limit, now_ms)

    # How changes are made

    def _change_leases(
        self,
        operation: Operation,
        topic_uid: int,
        leases: Sequence[tuple[Lease, int]],
        now_ms: int,
    ) -> list[Outcome]:
        check_size(leases)
        pairs = [pair_item(pair, "(lease, time)", "-") for pair in leases]
        items = [
            each if each.problem else lease_item(each.id, each.to)  # its first half is the lease
            for each in pairs
        ]
        return self._change_all(operation, topic_uid, items, now_ms)

    def _change_all(
        self,
        operation: Operation,
        topic_uid: int,
        items: Sequence[Asked],
        now_ms: int,
    ) -> list[Outcome]:
        topic = self._topic(topic_uid)

        def name(row: StoredRow | None, change: Change) -> Outcome:
            done = repeated(operation, row, change, now_ms)
            return done or refused(change.id, explain(operation, row, change, now_ms))

        batch = change_batch(topic, items, now_ms)
        with batch.honest():
            for chosen in batch.rounds():
                moved = {each.id: each.to for each in chosen if is_move(operation, each)}
                with self._telling(topic, moved, now_ms) as made:
                    made.update(self._change(operation, topic, chosen, now_ms))
                self._settle(batch, topic, {change[:2]: change for change in chosen}, made, name)
        return batch.outcomes()

    def _settle(
        self,
        batch: Batch[Item],
        topic: Topic,
        chosen: Mapping[Key, Item],
        made: Mapping[str, int],
        name: Callable[[StoredRow | None, Item], Outcome],
    ) -> None:
        """Notes what a round made, and names the reason for each item that it did not."""
        batch.settle_done(made)
        if len(made) < len(chosen):
            left = [key for key in chosen if key[1] not in made]
            rows = self._refused_rows(topic, left)
            for key in left:
                batch.settle(name(rows.get(key[1]), chosen[key]))

    @contextmanager
    def _telling(
        self, topic: Topic, dues: Mapping[str, int], now_ms: int
    ) -> Iterator[dict[str, int]]:
        """Tells sleepers of what was put where; of all of it, if nobody knows what was done."""
        made: dict[str, int] = {}
        try:
            yield made
        except OutcomeUnknown:
            self._tell(topic, dues.values(), now_ms)
            raise
        self._tell(topic, (due for each, due in dues.items() if each in made), now_ms)

    def _tell(self, topic: Topic, dues: Iterable[int], now_ms: int) -> None:
        earliest = min(dues, default=None)
        if earliest is not None and earliest <= now_ms + NOTICE_HORIZON_MS:
            self._announce(Notice(topic_uid=topic.uid, due=earliest))

    def _refused_rows(self, topic: Topic, keys: Sequence[Key]) -> dict[str, StoredRow]:
        rows = self._rows(topic, keys)
        if len(rows) < len(keys):
            self.get_topic(topic.uid)  # the reason may be that the topic was dropped
        return rows


def _weight(item: tuple[int, NewMessage]) -> int:
    """About how many bytes a statement carries for a message."""
    _, new = item
    headers = sum(len(name) + len(value or b"") for name, value in new.headers)
    return len(new.body or b"") + len(new.key or b"") + headers


def _exists_again(first: Outcome) -> Outcome | None:
    """What a create of an id is told when one before it in the batch was told this."""
    taken = first.done or first.refusal is Refusal.EXISTS
    return Outcome(id=first.id, refusal=Refusal.EXISTS) if taken else None


def _keys(topic: Topic, ids: Sequence[str]) -> list[Key]:
    return [(bucket_of(each, topic.settings.buckets), each) for each in first_of_each(ids)]


def _page(messages: list[Message], limit: int) -> Page:
    return Page(messages=tuple(messages[:limit]), more=len(messages) > limit)


def _due_of(taken: Taken) -> int:
    return taken.message.due


def _grant(taken: list[Taken], consumer: str, denied: list[Outcome], *, more: bool) -> Grant:
    leased: list[LeasedMessage] = []
    for message, body, redelivered, death in taken:
        if death is not None:
            detail = f"sent to the dead letters: {death}"
            denied.append(Outcome(id=message.id, refusal=Refusal.DEAD, detail=detail))
            continue
        lease = Lease(id=message.id, consumer=consumer, version=message.version, until=message.ts)
        leased.append(
            LeasedMessage(lease=lease, message=message, body=body, redelivered=redelivered)
        )
    return Grant(leased=tuple(leased), refused=tuple(denied), more=more)
