"""What all engines share: checking input once, and turning what an engine did into outcomes.

An engine supplies the `Primitives`. Ids that a primitive did not change are looked up, and the refusal is
named by `changes.explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from chronoline.core.errors import InvalidInput, OutcomeUnknown
from chronoline.core.limits import MIN_LEASE_MS
from chronoline.core.message import Lease, LeasedMessage, LeaseTime, NewMessage, content_bytes
from chronoline.core.outcome import Grant, Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.topic import Topic
from chronoline.stores.batch import (
    Batch,
    Item,
    check_after,
    check_limit,
    check_name,
    check_request,
    check_session,
    check_size,
    check_time,
)
from chronoline.stores.changes import (
    DELETIONS,
    Change,
    ResumeRequest,
    RowsHeld,
    StoredRow,
    Taken,
    explain,
    explain_create,
    explain_lease,
    is_move,
    is_undecided,
    refused,
    repeated,
    sets_time,
    unknown,
)
from chronoline.stores.contract import (
    NOTICE_HORIZON_MS,
    IfExists,
    Notice,
    Result,
    Returned,
)
from chronoline.stores.primitives import Key
from chronoline.stores.reads import Looks
from chronoline.stores.requests import (
    Asked,
    burial_item,
    change_batch,
    lease_item,
    move_item,
    new_message_batch,
    pair_item,
)

_STATEMENT_BYTES = 16 * 1024 * 1024
"""Of bodies, keys and headers: more are written in several statements."""
_SYSTEM = "system"
"""The name of the hand that changes dead letters; no guard looks at it."""


class EngineStore(Looks):
    """The contract's methods over an engine's primitives: topics, looks, and here what changes messages."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        super().__init__(random_bytes)
        self._deleted_in: set[int] = set()
        """Topics without a dedupe time in which something was deleted here since the last purge."""

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result | Exception]:
        return [_result_of(work) for work in works]

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
                    held = _made_into(made, partial(self._create, topic, chosen, replace, now_ms))
                batch.set_aside(held)
                keyed = {
                    (bucket, new.id): (bucket, new) for bucket, new in chosen if new.id not in held
                }
                self._settle(batch, topic, keyed, made, name)
        return batch.outcomes()

    def reschedule(
        self,
        topic_uid: int,
        moves: Sequence[tuple[str, int]],
        *,
        producer_group: str,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        check_name("producer group", producer_group)
        check_size(moves)
        items = [pair_item(move, "(id, due)", producer_group) for move in moves]
        return self._change_all(Operation.RESCHEDULE, topic_uid, items, now_ms, again=again)

    def cancel(
        self,
        topic_uid: int,
        ids: Sequence[str],
        *,
        producer_group: str,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        check_name("producer group", producer_group)
        check_size(ids)
        items = [Asked(message_id, producer_group, 0, now_ms) for message_id in ids]
        return self._change_all(Operation.CANCEL, topic_uid, items, now_ms, again=again)

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
        session: str = "",
        now_ms: int,
    ) -> Grant:
        request = check_request(consumer, lease_ms, reserve_ahead_ms, session, now_ms)
        check_limit(limit)
        topic = self._topic(topic_uid)
        merged = merge_ranges(ranges, topic.settings.buckets)
        taken, more = self._reserve(topic, merged, limit, request)
        if not taken:
            self.get_topic(topic_uid)  # nothing to lease, or the topic was dropped
        taken.sort(key=_due_of)
        return _grant(taken, consumer, session, [], more=more)

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
        request = check_request(consumer, lease_ms, reserve_ahead_ms, session, now_ms)
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
        taken = self._resume(self._topic(topic_uid), request)
        if not taken:
            self.get_topic(topic_uid)  # nothing to resume, or the topic was dropped
        taken.sort(key=lambda each: each.message.id)
        if session and not after:
            returned = Returned(now_ms, session, consumer)
            self._announce(Notice(topic_uid=topic_uid, returned=returned))
        grant = _grant(taken, consumer, session, [], more=len(taken) >= limit)
        return replace(grant, at=now_ms)

    def extend(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        return self._move_leases(Operation.EXTEND, topic_uid, leases, now_ms, again=again)

    def release(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        return self._move_leases(Operation.RELEASE, topic_uid, leases, now_ms, again=again)

    def retry(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        return self._move_leases(Operation.RETRY, topic_uid, leases, now_ms, again=again)

    def bury(
        self,
        topic_uid: int,
        leases: Sequence[tuple[Lease, str]],
        *,
        again: bool = False,
        now_ms: int,
    ) -> list[Outcome]:
        check_size(leases)
        items = [burial_item(pair, now_ms) for pair in leases]
        return self._change_all(Operation.BURY, topic_uid, items, now_ms, again=again)

    def unreserve(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        check_size(leases)
        items = [lease_item(lease, now_ms) for lease in leases]
        return self._change_all(Operation.UNRESERVE, topic_uid, items, now_ms, again=again)

    def ack(
        self, topic_uid: int, leases: Sequence[Lease], *, again: bool = False, now_ms: int
    ) -> list[Outcome]:
        check_size(leases)
        items = [lease_item(lease, now_ms) for lease in leases]
        return self._change_all(Operation.ACK, topic_uid, items, now_ms, again=again)

    # Dead letters and upkeep

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
        uids = self._deleted_in.copy()
        self._deleted_in -= uids
        if uids:
            self._raise_floors(sorted(uids), now_ms)
        return self._purge(limit, now_ms)

    # How changes are made

    def _move_leases(
        self,
        operation: Operation,
        topic_uid: int,
        leases: Sequence[tuple[Lease, LeaseTime]],
        now_ms: int,
        *,
        again: bool,
    ) -> list[Outcome]:
        check_size(leases)
        check_time("now_ms", now_ms)
        soonest_ms = 0 if operation is Operation.EXTEND else MIN_LEASE_MS
        items = [move_item(pair, now_ms, soonest_ms) for pair in leases]
        return self._change_all(operation, topic_uid, items, now_ms, again=again)

    def _change_all(
        self,
        operation: Operation,
        topic_uid: int,
        items: Sequence[Asked],
        now_ms: int,
        *,
        again: bool = False,
    ) -> list[Outcome]:
        topic = self._topic(topic_uid)
        if operation in DELETIONS and not topic.settings.dedupe_ms:
            self._deleted_in.add(topic.uid)

        def name(row: StoredRow | None, change: Change) -> Outcome:
            done = repeated(operation, row, change, now_ms, again=again)
            if done is not None:
                return done
            refusal = explain(operation, row, change, now_ms)
            if again and is_undecided(operation, row, change, refusal):
                return unknown(change.id)
            return refused(change.id, refusal)

        batch = change_batch(topic, items, now_ms)
        with batch.honest():
            for chosen in batch.rounds():
                moved = {each.id: each.to for each in chosen if is_move(operation, each)}
                with self._telling(topic, moved, now_ms) as made:
                    held = _made_into(made, partial(self._change, operation, topic, chosen, now_ms))
                batch.set_aside(held)
                keyed = {change[:2]: change for change in chosen if change.id not in held}
                times = {each.id: each.to for each in chosen} if sets_time(operation) else {}
                self._settle(batch, topic, keyed, made, name, times=times)
        return batch.outcomes()

    def _settle(
        self,
        batch: Batch[Item],
        topic: Topic,
        chosen: Mapping[Key, Item],
        made: Mapping[str, int],
        name: Callable[[StoredRow | None, Item], Outcome],
        *,
        times: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Notes what a round made, and names the reason for each item that it did not."""
        batch.settle_done(made, times)
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


def _made_into(made: dict[str, int], change: Callable[[], dict[str, int]]) -> frozenset[str]:
    """Notes what a change of many made, and answers the ids that other transactions hold."""
    try:
        made.update(change())
    except RowsHeld as error:
        made.update(error.made)
        return error.held
    return frozenset()


def _result_of(work: Callable[[], Result]) -> Result | Exception:
    try:
        return work()
    except Exception as error:
        return error


def _weight(item: tuple[int, NewMessage]) -> int:
    """About how many bytes a statement carries for a message."""
    _, new = item
    return content_bytes(new.body, new.key, new.headers)


def _exists_again(first: Outcome) -> Outcome | None:
    """What a create of an id is told when one before it in the batch was told this."""
    taken = first.done or first.refusal is Refusal.EXISTS
    return Outcome(id=first.id, refusal=Refusal.EXISTS) if taken else None


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
