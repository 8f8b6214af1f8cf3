"""Intake: records of a source become messages, in one transaction with the positions of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from chronoline.core.change import Change, check_batch_size
from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.core.limits import (
    MAX_BATCH,
    MAX_BODY_BYTES,
    MAX_TIME_MS,
    bytes_problem,
    id_problem,
    time_problem,
)
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Refusal
from chronoline.core.permissions import Operation
from chronoline.core.topic import Topic
from chronoline.stores.checks import check_whole
from chronoline.stores.engine import Engine, InputMove
from chronoline.stores.inputs import (
    Cancel,
    ClaimLost,
    Entry,
    InputGap,
    InputRecord,
    Intake,
    Rejected,
    Reschedule,
    TakenIn,
    Tally,
)
from chronoline.stores.writer import Writer


class IntakeRun:
    """One `take_in`, inside its transaction."""

    def __init__(
        self, engine: Engine[Any], writer: Writer, topic: Topic, producer_group: str, now_ms: int
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._connection = writer.connection
        self._topic = topic
        self._producer_group = producer_group
        self._now_ms = now_ms

    def take_in(self, intakes: Sequence[Intake]) -> list[TakenIn]:
        """Writes the records, and moves the positions of their partitions."""
        claims = [intake.claim for intake in intakes]
        positions = self._engine.positions(self._connection, claims, self._now_ms)
        self._writer.check_topic(self._topic)  # a deleted topic takes nothing in
        taken: list[TakenIn] = []
        moves: list[InputMove] = []
        for claim, records, first, upto in intakes:
            partition = (claim.source, claim.partition)
            if partition not in positions:
                raise ClaimLost(
                    f"partition {claim.partition} of {claim.source!r} is no longer {claim.holder!r}'s"
                )
            position = positions[partition]
            if first > position:
                raise InputGap(
                    f"partition {claim.partition} of {claim.source!r} is taken in up to offset {position}, "
                    f"and was read from {first}: read it again from {position}"
                )
            fresh = [record for record in records if record.offset >= position]
            tally = self._do([record.entry for record in fresh])
            taken.append(TakenIn(skipped=len(records) - len(fresh), tally=tally))
            moves.append(InputMove(partition, upto, tally))
        self._engine.move_inputs(self._connection, moves)
        return taken

    def _do(self, entries: Iterable[Entry]) -> Tally:
        counted: Counter[str] = Counter()
        # One statement writes neighbours of one kind.
        for kind, run in groupby(entries, key=type):
            if kind is NewMessage:
                counted.update(self._create(cast(list[NewMessage], list(run))))
            elif kind is Rejected:
                counted.update(self._reject(cast(Iterable[Rejected], run)))
            elif kind is Cancel:
                counted.update(self._cancel(cast(Iterable[Cancel], run)))
            elif kind is Reschedule:
                counted.update(self._reschedule(cast(Iterable[Reschedule], run)))
        return Tally(**counted)

    def _create(self, messages: Sequence[NewMessage]) -> dict[str, int]:
        outcomes = self._writer.create(self._topic, messages, replace=False, now_ms=self._now_ms)
        invalid = next((each for each in outcomes if each.refusal is Refusal.INVALID), None)
        if invalid is not None:
            raise InvalidInput(f"message {invalid.id!r} is not valid: {invalid.reason}")
        accepted = sum(outcome.done for outcome in outcomes)
        return {"accepted": accepted, "ignored": len(outcomes) - accepted}

    def _reject(self, rejected: Iterable[Rejected]) -> dict[str, int]:
        buckets = self._topic.settings.buckets
        placed = {each.message.id: each.message for each in rejected}
        keys = [(bucket_of(each, buckets), each) for each in placed]
        messages = [(bucket, placed[each]) for bucket, each in keys]
        made = self._engine.create(self._connection, self._topic, messages, False, self._now_ms)
        taken = next((each for each in placed if each not in made), None)
        if taken is not None:
            raise InvalidInput(f"a record is rejected as {taken!r}, which is taken: use another id")
        self._engine.reject(self._connection, self._topic, keys, self._now_ms)
        return {"rejected": len(placed)}

    def _cancel(self, cancels: Iterable[Cancel]) -> dict[str, int]:
        group = self._producer_group
        changes = [Change(Operation.CANCEL, each.id, group) for each in cancels]
        return self._control(Operation.CANCEL, "cancelled", changes)

    def _reschedule(self, moves: Iterable[Reschedule]) -> dict[str, int]:
        group = self._producer_group
        changes = [Change(Operation.RESCHEDULE, each.id, group, to=each.due) for each in moves]
        return self._control(Operation.RESCHEDULE, "rescheduled", changes)

    def _control(
        self, operation: Operation, name: str, changes: Sequence[Change]
    ) -> dict[str, int]:
        done = self._writer.count_changed(operation, self._topic, changes, self._now_ms)
        return {name: done, "missed": len(changes) - done}


def check_intakes(intakes: Sequence[Intake]) -> None:
    """Raises `InvalidInput` unless all records can be written."""
    check_batch_size(intakes)
    partitions = {(claim.source, claim.partition) for claim, *_ in intakes}
    if len(partitions) < len(intakes):
        raise InvalidInput("a partition is there twice; put its records into one intake")
    if sum(len(intake.records) for intake in intakes) > MAX_BATCH:
        raise InvalidInput(f"at most {MAX_BATCH} records are taken in at once: split them")
    for intake in intakes:
        check_whole("upto", intake.upto, 0, MAX_TIME_MS)
        check_whole("first", intake.first, 0, intake.upto)
        for record in intake.records:
            _check_record(record, intake.first, intake.upto)


def _check_record(record: InputRecord, first: int, upto: int) -> None:
    offset, entry = record
    check_whole("offset", offset, first, upto - 1)
    match entry:
        case NewMessage():
            return  # checked where it is created
        case Cancel():
            problem = id_problem(entry.id)
        case Reschedule():
            problem = id_problem(entry.id) or time_problem("due", entry.due)
        case Rejected(message):
            problem = id_problem(message.id) or bytes_problem("body", message.body, MAX_BODY_BYTES)
        case _:
            problem = f"{type(entry).__name__} is nothing that can be asked for"
    if problem:
        raise InvalidInput(f"the record at offset {offset} is not valid: {problem}")
