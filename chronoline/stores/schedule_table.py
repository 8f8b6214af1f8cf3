"""The schedules of a store: each change of a row and of its messages in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chronoline.core.change import Change, check_batch_size
from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.ids import UID_ENTROPY_BYTES, bucket_of, make_topic_uid
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.core.schedule import Schedule, check_new_schedule, check_schedule, occurrence_id
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.stores.checks import check_batch, check_time
from chronoline.stores.contract import Notice
from chronoline.stores.engine import Engine, ScheduleMove
from chronoline.stores.schedules import ScheduleStep, Stepped
from chronoline.stores.topics import TopicCatalog
from chronoline.stores.writer import Writer, transact

_CHANGED = Notice(schedules=True)


class ScheduleTable:
    """The writes of schedules, over an engine."""

    def __init__(
        self,
        engine: Engine[Any],
        topics: TopicCatalog,
        random_bytes: Callable[[int], bytes],
        *,
        cancelled_in: Callable[[int], None],
    ) -> None:
        """`cancelled_in` hears of topics without a dedupe time in which messages are cancelled."""
        self._engine = engine
        self._topics = topics
        self._random_bytes = random_bytes
        self._cancelled_in = cancelled_in

    def put(
        self, schedule: Schedule, instead_of: Schedule | None, cancel: Sequence[int], now_ms: int
    ) -> Schedule | None:
        check_batch(cancel, now_ms)
        check = check_new_schedule if instead_of is None else check_schedule
        check(schedule)
        if schedule.next_ms is not None:
            check_time("next_ms", schedule.next_ms)
        if instead_of is None:
            uid = make_topic_uid(now_ms, self._random_bytes(UID_ENTROPY_BYTES))
            new = replace(schedule, uid=uid, version=1)
        elif instead_of.name != schedule.name:
            raise InvalidInput("a schedule takes the place of one of its own name")
        else:
            new = replace(schedule, uid=instead_of.uid, version=instead_of.version + 1)

        def work(writer: Writer) -> Schedule | None:
            if instead_of is None:
                done = self._engine.insert_schedule(writer.connection, new)
            else:
                done = self._engine.replace_schedule(writer.connection, new, instead_of)
            if not done:
                self._topics.get(new.topic_uid, writer.connection)  # it may have been deleted
                return None
            if instead_of is not None:
                self._cancel(writer, instead_of, cancel, now_ms)
            return new

        return transact(self._engine, self._topics, work, always=[_CHANGED])

    def delete(self, schedule: Schedule, cancel: Sequence[int], until_ms: int, now_ms: int) -> bool:
        check_batch(cancel, now_ms)
        check_time("until_ms", until_ms)

        def work(writer: Writer) -> bool:
            # The row first: it is the lock of the schedule, for a step too.
            done = self._engine.remove_schedule(writer.connection, schedule, until_ms)
            if done and (held := self._cancel(writer, schedule, cancel, now_ms)):
                removed = replace(schedule, version=schedule.version + 1)
                self._engine.remove_schedule(writer.connection, removed, max(until_ms, *held))
            return done

        return transact(self._engine, self._topics, work)

    def step(self, steps: Sequence[ScheduleStep], now_ms: int) -> list[Stepped]:
        check_batch(steps, now_ms)
        check_batch_size([new for step in steps for new in step.occurrences])
        if len({step.schedule.name for step in steps}) < len(steps):
            raise InvalidInput("a schedule has one step at a time")
        moves = [
            ScheduleMove(each.name, each.uid, each.version, next_ms) for each, next_ms, _ in steps
        ]

        def work(writer: Writer) -> list[Stepped]:
            moved = self._engine.move_schedules(writer.connection, moves)
            made = [step for step in steps if step.schedule.name in moved]
            by_topic: dict[int, list[NewMessage]] = {}
            for step in made:
                by_topic.setdefault(step.schedule.topic_uid, []).extend(step.occurrences)
            created: set[tuple[int, str]] = set()
            for uid, messages in sorted(by_topic.items()):
                done = self._create(writer, uid, messages, now_ms)
                created.update((uid, each) for each in done)
            return [
                Stepped(
                    step.schedule.name in moved,
                    sum((step.schedule.topic_uid, new.id) in created for new in step.occurrences),
                )
                for step in steps
            ]

        return transact(self._engine, self._topics, work) if steps else []

    def _create(
        self, writer: Writer, uid: int, messages: Sequence[NewMessage], now_ms: int
    ) -> list[str]:
        """Creates messages, also in the place of what an earlier life of a schedule left."""
        topic = self._topics.known(uid, writer.connection)
        outcomes = writer.create(topic, messages, replace=False, now_ms=now_ms)
        taken = {each.id for each in outcomes if each.refusal is Refusal.EXISTS}
        acked = self._acked(writer, topic, taken) if taken else set()
        left = [new for new in messages if new.id in taken - acked]
        if left:
            outcomes += writer.create(topic, left, replace=True, now_ms=now_ms)
        return [each.id for each in outcomes if each.done]

    def _acked(self, writer: Writer, topic: Topic, ids: set[str]) -> set[str]:
        """Picks the ids whose marks tell that a consumer acked the message."""
        keys = [(bucket_of(each, topic.settings.buckets), each) for each in sorted(ids)]
        rows = self._engine.rows(writer.connection, topic, keys)
        return {
            each
            for each, row in rows.items()
            if row.life is Life.GONE and row.lock_consumer is not None
        }

    def _cancel(
        self, writer: Writer, schedule: Schedule, times_ms: Sequence[int], now_ms: int
    ) -> list[int]:
        """Cancels occurrences. Answers the times of those that are leased."""
        if not times_ms:
            return []
        try:
            topic = self._topics.get(schedule.topic_uid, writer.connection)
        except TopicNotFound:  # and its messages are gone with it
            return []
        ids = {occurrence_id(schedule.name, each): each for each in times_ms}
        changes = [Change(Operation.CANCEL, each, schedule.producer_group) for each in ids]
        if not topic.settings.dedupe_ms:
            self._cancelled_in(topic.uid)
        outcomes = writer.change(Operation.CANCEL, topic, changes, again=False, now_ms=now_ms)
        return [ids[each.id] for each in outcomes if each.refusal is Refusal.LEASED]
