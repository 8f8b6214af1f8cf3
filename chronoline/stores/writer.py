"""Writes of batches: rounds through an engine, an outcome for each item, and notices to sleepers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from chronoline.core.change import Change
from chronoline.core.errors import OutcomeUnknown
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import Operation
from chronoline.core.topic import Topic
from chronoline.stores.batch import Batch, change_batch, message_batch
from chronoline.stores.contract import NOTICE_HORIZON_MS, Notice, StoredRow
from chronoline.stores.engine import ChangedRows, Engine, RowsHeld
from chronoline.stores.guards import (
    SETS_TIME,
    dues_of,
    explain_create,
    has_digest_of,
    judge,
    refused,
)
from chronoline.stores.topics import TopicCatalog

_STATEMENT_BYTES = 16 * 1024 * 1024
"""Bodies, keys and headers of one statement. A batch with more is written in several."""
_MOST_BUCKETS = 64
"""A notice of more messages names no buckets."""
_NO_TIMES: Mapping[str, int] = {}

Value = TypeVar("Value", NewMessage, Change)
Answer = TypeVar("Answer")


class Writer:
    """Creates and changes messages, in transactions of their own or in the transaction of a connection.

    `create` replaces the engine's primitive. `announce` can keep notices until the transaction is committed.
    """

    def __init__(
        self,
        engine: Engine[Any],
        topics: TopicCatalog,
        connection: Any = None,
        *,
        create: Callable[..., dict[str, int]] | None = None,
        announce: Callable[[Notice], None] | None = None,
    ) -> None:
        self._engine = engine
        self._topics = topics
        self.connection = connection
        self._create = create
        self._announce = announce or partial(engine.announce, connection)

    def create(
        self, topic: Topic, messages: Sequence[NewMessage], *, replace: bool, now_ms: int
    ) -> list[Outcome]:
        """Creates messages, and answers an outcome for each."""

        def explain(row: StoredRow | None, new: NewMessage) -> Outcome:
            outcome = refused(new.id, explain_create(row, new, replace, now_ms))
            return dataclasses.replace(outcome, repeated=has_digest_of(row, new))

        batch = message_batch(topic, messages, now_ms)
        again = _not_again if replace else _exists_again
        primitive = self._create or self._engine.create
        with batch.unknown_once_begun():
            for chosen in batch.weighed_rounds(
                lambda item: item[1].content_bytes, _STATEMENT_BYTES, again
            ):
                dues = {new.id: new.due for _, new in chosen}
                write = partial(primitive, self.connection, topic, chosen, replace, now_ms)
                made, held = self._written(topic, chosen, dues, write, now_ms)
                times = dues if topic.settings.spread_ms else _NO_TIMES
                self.settle(batch, topic, chosen, made, explain, held=held, times=times)
        return batch.outcomes()

    def change(
        self,
        operation: Operation,
        topic: Topic,
        changes: Sequence[Change],
        *,
        again: bool,
        now_ms: int,
    ) -> list[Outcome]:
        """Makes changes of one operation, and answers an outcome for each."""

        def explain(row: StoredRow | None, change: Change) -> Outcome:
            return judge(row, change, now_ms, again=again)

        batch = change_batch(operation, topic, changes, now_ms)
        with batch.unknown_once_begun():
            for chosen in batch.rounds():
                made, held = self._change(topic, chosen, now_ms)
                times = _NO_TIMES
                if operation in SETS_TIME:
                    times = {change.id: change.to_ms for _, change in chosen}
                self.settle(batch, topic, chosen, made, explain, held=held, times=times)
        return batch.outcomes()

    def change_some(
        self, operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
    ) -> list[str]:
        """Makes changes of one operation, and answers the ids of those made, without a look at the others."""
        batch = change_batch(operation, topic, changes, now_ms)
        return [
            each for chosen in batch.rounds() for each in self._change(topic, chosen, now_ms)[0]
        ]

    def settle(
        self,
        batch: Batch[tuple[int, Value]],
        topic: Topic,
        chosen: Sequence[tuple[int, Value]],
        made: Mapping[str, int],
        explain: Callable[[StoredRow | None, Value], Outcome],
        *,
        held: frozenset[str] = frozenset(),
        times: Mapping[str, int] = _NO_TIMES,
    ) -> None:
        """Notes the changes of a round by their new versions, and names the reason for all others."""
        if held:
            batch.set_aside(held)
        batch.settle_done(made, times)
        if len(made) + len(held) == len(chosen):
            return
        left = [item for item in chosen if item[1].id not in made and item[1].id not in held]
        keys = [(bucket, value.id) for bucket, value in left]
        rows = self._engine.rows(self.connection, topic, keys)
        if len(rows) < len(keys):
            self.check_topic(topic)  # it may have been deleted
        self._engine.await_durable(self.connection)  # the rows may answer that it was done before
        for _, value in left:
            batch.settle(explain(rows.get(value.id), value))

    def check_topic(self, topic: Topic) -> None:
        """Raises `TopicNotFound` if the topic was deleted."""
        self._topics.get(topic.uid, self.connection)

    def _change(
        self, topic: Topic, chosen: ChangedRows, now_ms: int
    ) -> tuple[dict[str, int], frozenset[str]]:
        dues = dues_of(chosen, now_ms)
        write = partial(self._engine.change, self.connection, topic, chosen, now_ms)
        return self._written(topic, chosen, dues, write, now_ms)

    def _written(
        self,
        topic: Topic,
        chosen: Sequence[tuple[int, NewMessage | Change]],
        dues: Mapping[str, int],
        write: Callable[[], dict[str, int]],
        now_ms: int,
    ) -> tuple[dict[str, int], frozenset[str]]:
        """The versions that a write made, and the ids that other transactions hold.

        Announces the dues of those that it made, and all dues if nobody knows what it made.
        """
        held: frozenset[str] = frozenset()
        try:
            made = write()
        except RowsHeld as error:
            made, held = error.made, error.held
        except OutcomeUnknown:
            self._announce_dues(topic, chosen, dues, now_ms)
            raise
        if dues:
            announced = {each: due for each, due in dues.items() if each in made}
            self._announce_dues(topic, chosen, announced, now_ms)
        return made, held

    def _announce_dues(
        self,
        topic: Topic,
        chosen: Sequence[tuple[int, NewMessage | Change]],
        dues: Mapping[str, int],
        now_ms: int,
    ) -> None:
        earliest = min(dues.values(), default=None)
        if earliest is None or earliest > now_ms + NOTICE_HORIZON_MS:
            return
        buckets: tuple[int, ...] | None = None
        if len(dues) <= _MOST_BUCKETS:
            buckets = tuple(sorted({bucket for bucket, value in chosen if value.id in dues}))
        self._announce(Notice(topic_uid=topic.uid, due=earliest, buckets=buckets))


def transact(
    engine: Engine[Any],
    topics: TopicCatalog,
    work: Callable[[Writer], Answer],
    *,
    always: Sequence[Notice] = (),
) -> Answer:
    """Runs a transaction, and announces what it changed, and `always`, once it is committed."""
    notices: list[Notice] = []

    def run(connection: Any) -> Answer:
        notices.clear()  # of an attempt that the database gave up
        return work(Writer(engine, topics, connection, announce=notices.append))

    try:
        answer = engine.transact(run)
    except OutcomeUnknown:
        for notice in (Notice(), *always):  # it may be done: sleepers have to look
            engine.announce(None, notice)
        raise
    for notice in (*notices, *always):
        engine.announce(None, notice)
    return answer


def _exists_again(first: Outcome) -> Outcome | None:
    """The outcome of a second create of an id in a batch, if that of the first tells it."""
    taken = first.done or first.refusal is Refusal.EXISTS
    return Outcome(id=first.id, refusal=Refusal.EXISTS) if taken else None


def _not_again(_: Outcome) -> None:
    """A second replacement of an id in a batch is written like the first."""
