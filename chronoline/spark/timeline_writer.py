"""Writers of a timeline: every Arrow batch is one bulk create.

State: the plan travels to the tasks, and each opens the store for itself. Written messages stay even if the
job fails: there is no rollback, and a repeated task meets its own messages.

Repetition: Spark repeats a task that failed, and a stream repeats a batch that was not committed. An id
makes that harmless: a row whose message is on the timeline, or was within the dedupe time, is `repeated`, and
no refusal. The store keeps a digest of each row for that, so that another message under the same id is
refused. So an id comes with each row; where Chronoline is to make them, they are made of the row's place and
content, and are the same the next time.

Refusals: the others of a batch are done. The job fails on the driver when all tasks are through, and says how
many were refused and why; or the refused rows are kept as Parquet in a folder, each with its reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from chronoline.core.errors import ChronolineError, InvalidInput, OutcomeUnknown, StoreUnavailable
from chronoline.core.limits import name_problem
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Message, NewMessage
from chronoline.core.outcome import Outcome, Refusal
from chronoline.core.permissions import System
from chronoline.runtime.backoff import Backoff, Waits
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.gc_tuning import searched_seldom
from chronoline.runtime.message_ids import new_id
from chronoline.spark.options import Options
from chronoline.spark.output_folder import OutputFolder, find_folder
from chronoline.spark.python_worker import BATCH, QUERY, check_no_catalog_table
from chronoline.spark.timeline_reader import TimelineTarget, find_target
from chronoline.spark.timeline_refusals import RefusedRows, make_readable
from chronoline.spark.timeline_rows import MadeIds, Rows, read_rows
from chronoline.spark.timeline_schema import FORMAT, check_written
from chronoline.stores.contract import MAX_BATCH, Store

logger = logging.getLogger(__name__)
IfExists = Literal["refuse", "replace", "ignore"]
_PATIENCE_S = 60.0
_BACKOFF = Backoff(0.05, 1.0)
_MOST_SHOWN = 5
_FAIL = "fail"
_MAY_BE_REPEATED = (Refusal.EXISTS, Refusal.LEASED)

OPTIONS = {
    "ifExists": "`replace`: the new message replaces the owner's message with the same id. `ignore`: the old"
    " one stays, and the row is not refused.",
    "refusals": "`fail`, or the folder that keeps refused rows as Parquet: a path or a URL, `s3://…`.",
    "producerGroup": "The owner, by default `default`. Clients of this group may reschedule and cancel.",
    "delay": "The delay of rows without a due time, such as `15m`: from the start of the write, or in a"
    " stream from the write of the rows.",
    "counts": "A folder that keeps the counts of each write or micro-batch as JSON: a path or a URL.",
    "ids": "`made`: rows without an id get one.",
}
"""The meaning of each option, for the reference; `store` and `topic` are those of reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """How messages are to be written."""

    target: TimelineTarget
    if_exists: IfExists
    producer_group: str
    delay_ms: int | None
    makes_ids: bool
    refusals: OutputFolder | None
    """Where refused rows go; without a place the job fails."""
    counts: OutputFolder | None
    """Where the counts go, for programs."""
    streaming: bool
    write: str
    """The name of this write, the same in a repeated task. A stream has one for each batch."""
    now_ms: int
    """When the write began: delays of a batch are counted from here, and are the same in a repeated task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """The counts of a task."""

    created: int = 0
    repeated: int = 0
    ignored: int = 0
    refused: int = 0
    shown: tuple[Outcome, ...] = ()
    """A few examples of refusals."""
    write: str = field(default="", compare=False)
    """The name of the write."""


def plan_writing(
    options: Options, schema: StructType, overwrite: bool, *, streaming: bool = False
) -> WritePlan:
    """Checks everything that the driver can check before a task runs."""
    if overwrite:
        raise InvalidInput(
            "a timeline is not overwritten: write with mode('append'), and"
            " .option('ifExists', 'replace') to replace messages by their ids"
        )
    target = find_target(options)
    group = options.optional("producerGroup", DEFAULT_PRODUCER_GROUP) or DEFAULT_PRODUCER_GROUP
    problem = name_problem("option 'producerGroup'", group)
    if problem:
        raise InvalidInput(problem)
    if_exists = options.choice("ifExists", ("refuse", "replace", "ignore"), "refuse")
    delay_ms = options.duration_ms("delay", None)
    makes_ids = options.choice("ids", ("given", "made"), "given") == "made"
    refusals = options.optional("refusals", "fail") or _FAIL
    counts = options.optional("counts")
    options.finish("checkpointLocation", "path")
    check_written(schema, needs_id=not makes_ids, needs_due=delay_ms is None)
    clock = SystemClock()
    return WritePlan(
        target=target,
        if_exists=if_exists,  # type: ignore[arg-type]  # one of the choices
        producer_group=group,
        delay_ms=delay_ms,
        makes_ids=makes_ids,
        refusals=(
            None
            if refusals.lower() == _FAIL
            else find_folder("refusals", refusals, f"{_FAIL!r}, or ")
        ),
        counts=None if counts is None else find_folder("counts", counts),
        streaming=streaming,
        write=new_id(clock),
        now_ms=clock.now_ms(),
    )


class BatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        check_no_catalog_table(FORMAT)
        return write_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        conclude(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report_abort(self._plan, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        conclude(self._plan, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report_abort(self._plan, messages)


class Attempt(NamedTuple):
    """The part of the write that a task does."""

    write: str
    partition: int
    name: str
    """Different for each attempt."""


def this_attempt(plan: WritePlan) -> Attempt:
    """The task in which this is called, as Spark describes it."""
    task = TaskContext.get()
    if task is None:
        return Attempt(plan.write, 0, "0")
    write = plan.write
    if plan.streaming:
        query, batch = (task.getLocalProperty(each) for each in (QUERY, BATCH))
        write = f"{query}-{batch}" if query and batch else write
    return Attempt(write, task.partitionId(), str(task.taskAttemptId()))


def write_task(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Written:
    """Writes one partition."""
    attempt = this_attempt(plan)
    done = Written(write=attempt.write)
    with (
        searched_seldom(),
        plan.target.open() as store,
        RefusedRows(plan.refusals, attempt.write, attempt.partition, attempt.name) as refused,
    ):
        writing = _PartitionWriter(plan, attempt, store, refused)
        for batch in batches:
            for first in range(0, batch.num_rows, MAX_BATCH):
                done = _sum(plan, [done, writing.write(batch.slice(first, MAX_BATCH))])
        refused.keep()
    return done


class _PartitionWriter:
    """A partition that is being written."""

    def __init__(
        self, plan: WritePlan, attempt: Attempt, store: Store, refused: RefusedRows
    ) -> None:
        self._plan = plan
        self._store = store
        self._refused = refused
        self._uid = plan.target.topic.uid
        self._write = attempt.write
        made = MadeIds(f"{attempt.write}/{attempt.partition}") if plan.makes_ids else None
        self._rows = Rows(producer_group=plan.producer_group, made=made)

    def write(self, batch: pa.RecordBatch) -> Written:
        plan = self._plan
        default_due = None
        if plan.delay_ms is not None:
            begun_ms = SystemClock().now_ms() if plan.streaming else plan.now_ms
            default_due = begun_ms + plan.delay_ms
        messages = read_rows(self._rows, batch, default_due)
        outcomes = self._create(messages)
        left = [place for place, outcome in enumerate(outcomes) if not outcome.done]
        created = len(messages) - len(left)
        if not left:
            return Written(write=self._write, created=created)
        ignored = 0
        if plan.if_exists == "ignore":
            existing = [p for p in left if outcomes[p].refusal is Refusal.EXISTS]
            ignored, left = len(existing), sorted(set(left) - set(existing))
        repeated = self._repeated(messages, outcomes, left)
        left = [place for place in left if place not in repeated]
        if left:
            self._refused.add(batch, left, [outcomes[place] for place in left])
        return Written(
            write=self._write,
            created=created,
            repeated=len(repeated),
            ignored=ignored,
            refused=len(left),
            shown=tuple(outcomes[place] for place in left[:_MOST_SHOWN]),
        )

    def _create(self, messages: Sequence[NewMessage]) -> list[Outcome]:
        """Repeats the create while the store is unavailable or busy; the ids make that harmless."""
        if_exists: Literal["refuse", "replace"] = (
            "replace" if self._plan.if_exists == "replace" else "refuse"
        )
        give_up_s, waits = time.monotonic() + _PATIENCE_S, Waits(_BACKOFF)
        while True:
            try:
                return self._store.create(
                    self._uid, messages, if_exists=if_exists, now_ms=SystemClock().now_ms()
                )
            except (StoreUnavailable, OutcomeUnknown) as error:
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(waits.after(error))  # nothing tells when a store is back

    def _repeated(
        self, messages: Sequence[NewMessage], outcomes: Sequence[Outcome], left: Sequence[int]
    ) -> set[int]:
        """The indexes of messages that are refused because the same row was written before.

        The digest tells, also if the message has left the timeline; a message that came another way has none,
        and is compared.
        """
        written = {
            (new.id, new.digest)
            for new, outcome in zip(messages, outcomes, strict=True)
            if outcome.done or outcome.repeated
        }
        asked = [place for place in left if outcomes[place].refusal in _MAY_BE_REPEATED]
        found = {p for p in asked if (messages[p].id, messages[p].digest) in written}
        others = [place for place in asked if place not in found]
        return found | self._equal([messages[place] for place in others], others)

    def _equal(self, messages: Sequence[NewMessage], places: Sequence[int]) -> set[int]:
        """The indexes of messages that are on the timeline with the same content."""
        if not messages:
            return set()
        there = self._store.lookup(self._uid, [new.id for new in messages])
        now_ms = SystemClock().now_ms()
        bodies = self._store.bodies(self._uid, list(there), actor=System(), now_ms=now_ms).found
        self._store.await_durable()
        return {
            place
            for place, new in zip(places, messages, strict=True)
            if new.id in there and _is_equal(new, there[new.id], bodies.get(new.id))
        }


def _is_equal(new: NewMessage, old: Message, body: bytes | None) -> bool:
    fields = (new.producer_group, new.due, new.expires, new.key, new.headers, new.body)
    return fields == (old.producer_group, old.due, old.expires, old.key, old.headers, body)


def conclude(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Fails the job, on the driver after all tasks, if rows were refused and there is no folder for them."""
    done = _sum(plan, [message for message in messages if isinstance(message, Written)])
    logger.info("written to %s: %s", plan.target.topic.name, _words(done))
    if plan.counts is not None:
        plan.counts.put_json(done.write, {"write": done.write, **_counts(done)})
    if plan.refusals is not None:
        make_readable(plan.refusals)
    elif done.refused:
        shown = "; ".join(f"{each.id!r}: {each.reason}" for each in done.shown[:_MOST_SHOWN])
        more = done.refused - min(len(done.shown), _MOST_SHOWN)
        raise ChronolineError(
            f"refused: {shown}{f'; and {more} more' if more else ''}. The others are on the timeline"
            f" ({_words(done)}), and writing them again is harmless. To keep refused rows instead of"
            " failing: .option('refusals', folder)"
        )


def report_abort(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Written messages stay."""
    done = _sum(plan, [message for message in messages if isinstance(message, Written)])
    logger.warning("writing to %s was aborted: %s", plan.target.topic.name, _words(done))


def _sum(plan: WritePlan, parts: Sequence[Written]) -> Written:
    return Written(
        write=parts[0].write if parts else plan.write,
        created=sum(each.created for each in parts),
        repeated=sum(each.repeated for each in parts),
        ignored=sum(each.ignored for each in parts),
        refused=sum(each.refused for each in parts),
        shown=tuple(shown for each in parts for shown in each.shown)[:_MOST_SHOWN],
    )


def _counts(done: Written) -> dict[str, int]:
    return {
        "created": done.created,
        "repeated": done.repeated,
        "ignored": done.ignored,
        "refused": done.refused,
    }


def _words(done: Written) -> str:
    return ", ".join(f"{number} {name}" for name, number in _counts(done).items())
