"""Intake: records of a source become messages, in one transaction with the positions of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any

from chronoline.core.change import Change, check_batch_size
from chronoline.core.errors import InvalidInput
from chronoline.core.headers import packing_problem
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
from chronoline.core.status import Life
from chronoline.core.topic import Topic
from chronoline.stores.checks import check_whole
from chronoline.stores.contract import StoredRow
from chronoline.stores.engine import (
    EarlyCancel,
    Engine,
    InputMove,
    KeptLetter,
    Key,
    Partition,
)
from chronoline.stores.inputs import (
    KEPT_ID_HEADER,
    MAX_EARLY_CANCEL_MS,
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

_KEPT_ID_CHARACTERS = 32


_KINDS: tuple[type, ...] = (NewMessage, Cancel, Reschedule, Rejected)
"""The order in which the kinds of records are written."""
_PLACES = {kind: place for place, kind in enumerate(_KINDS)}


@dataclass(slots=True)
class _PendingRecords:
    """The records of a partition that are to be written, by their phases, and the counts of those written."""

    partition: Partition
    phases: Mapping[int, Sequence[Entry]]
    skipped: int
    counted: Counter[str] = field(default_factory=Counter)

    @property
    def place(self) -> str:
        return "{}/{}".format(*self.partition)

    @property
    def tally(self) -> Tally:
        return Tally(**self.counted)


_Run = tuple[_PendingRecords, Sequence[Any]]
"""Records of one kind, and the partition that they are from."""


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
        parts = [self._pending(positions, intake) for intake in intakes]
        # No order holds between partitions, so that one statement writes a phase of all.
        for phase in sorted({each for part in parts for each in part.phases}):
            runs = [(part, part.phases[phase]) for part in parts if phase in part.phases]
            self._write(_KINDS[phase % len(_KINDS)], runs)
        moves = [
            InputMove(part.partition, intake.upto, part.tally)
            for part, intake in zip(parts, intakes, strict=True)
        ]
        self._engine.move_inputs(self._connection, moves)
        return [TakenIn(skipped=part.skipped, tally=part.tally) for part in parts]

    def _pending(self, positions: Mapping[Partition, int], intake: Intake) -> _PendingRecords:
        """The records of an intake that are not below the position of its partition."""
        claim, records, first, _ = intake
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
        fresh = [record.entry for record in records if record.offset >= position]
        return _PendingRecords(partition, phases_of(fresh), skipped=len(records) - len(fresh))

    def _write(self, kind: type, runs: Sequence[_Run]) -> None:
        """Writes records of one kind, and counts them."""
        if kind is NewMessage:
            self._create(runs)
        elif kind is Cancel:
            self._cancel(runs)
        elif kind is Reschedule:
            self._reschedule(runs)
        else:
            self._reject(runs)

    def _create(self, runs: Sequence[_Run]) -> None:
        messages: list[NewMessage] = [new for _, run in runs for new in run]
        outcomes = self._writer.create(self._topic, messages, replace=False, now_ms=self._now_ms)
        invalid = next((each for each in outcomes if each.refusal is Refusal.INVALID), None)
        if invalid is not None:
            raise InvalidInput(f"message {invalid.id!r} is not valid: {invalid.reason}")
        answers = iter(outcomes)
        for part, run in runs:
            refused = [
                new
                for new, outcome in zip(run, islice(answers, len(run)), strict=True)
                if not outcome.done
            ]
            part.counted["accepted"] += len(run) - len(refused)
            if refused:
                part.counted.update(self._create_refused(refused, part.place))

    def _create_refused(self, messages: Sequence[NewMessage], partition: str) -> Counter[str]:
        """Creates messages whose ids are free for the input, though a row has them.

        A dead letter does not keep its id. A cancel that waits for a create meets one from another partition;
        one from its own partition came after it, and is a new message.
        """
        firsts = {new.id: new for new in reversed(messages)}
        keys = {each: self._key(each) for each in firsts}
        rows = self._engine.rows(self._connection, self._topic, list(keys.values()))
        waits = {
            each: row.early_cancel
            for each, row in rows.items()
            if row.life is Life.GONE and row.ts > self._now_ms and row.early_cancel is not None
        }
        withdrawn = sum(waits.get(new.id, partition) != partition for new in messages)
        freed = {each for each, waiting in waits.items() if waiting == partition}
        freed |= self._keep_letters(
            {each: row for each, row in rows.items() if row.life is Life.DEAD}
        )
        accepted = 0
        if freed:
            places = [keys[each] for each in firsts if each in freed]
            self._engine.free(self._connection, self._topic, places, self._now_ms)
            created = [new for each, new in firsts.items() if each in freed]
            outcomes = self._writer.create(self._topic, created, replace=False, now_ms=self._now_ms)
            accepted = sum(outcome.done for outcome in outcomes)
        ignored = len(messages) - accepted - withdrawn
        return Counter(accepted=accepted, withdrawn=withdrawn, ignored=ignored)

    def _keep_letters(self, dead: Mapping[str, StoredRow]) -> set[str]:
        """Gives dead letters new ids, and answers the ids that they had."""
        letters = [self._letter(self._key(each), row.version) for each, row in dead.items()]
        return self._engine.keep_letters(self._connection, self._topic, letters) if dead else set()

    def _key(self, message_id: str) -> Key:
        return bucket_of(message_id, self._topic.settings.buckets), message_id

    def _letter(self, key: Key, version: int) -> KeptLetter:
        """A dead letter with a new id, made from the old one and its version: it is never used twice."""
        kept_id = sha256(f"{key[1]}/{version}".encode()).hexdigest()[:_KEPT_ID_CHARACTERS]
        return KeptLetter(key, self._key(kept_id), (KEPT_ID_HEADER, key[1].encode()))

    def _reject(self, runs: Sequence[_Run]) -> None:
        placed: dict[str, NewMessage] = {}
        for part, run in runs:
            messages = {each.message.id: each.message for each in run}
            part.counted["rejected"] += len(messages)
            placed |= messages
        keys = [self._key(each) for each in placed]
        letters = [(bucket, placed[each]) for bucket, each in keys]
        made = self._engine.create(self._connection, self._topic, letters, False, self._now_ms)
        taken = next((each for each in placed if each not in made), None)
        if taken is not None:
            raise InvalidInput(f"a record is rejected as {taken!r}, which is taken: use another id")
        self._engine.reject(self._connection, self._topic, keys, self._now_ms)

    def _cancel(self, runs: Sequence[_Run]) -> None:
        cancels: list[Cancel] = [each for _, run in runs for each in run]
        done = self._change(Operation.CANCEL, [self._cancel_of(each.id) for each in cancels])
        found = set(done)
        early = {
            each.id: EarlyCancel(self._key(each.id), part.place, self._now_ms + each.wait_ms)
            for part, run in runs
            for each in run
            if each.wait_ms and each.id not in found
        }
        if early:
            done += self._wait_for_creates(list(early.values()))
        _count(runs, done, "cancelled")

    def _wait_for_creates(self, cancels: Sequence[EarlyCancel]) -> list[str]:
        """Marks the ids of cancels that found nothing, and answers those that it cancelled after all.

        A message that another transaction created meanwhile gets no mark, and can be cancelled.
        """
        marked = self._engine.mark_early(
            self._connection, self._topic, cancels, self._producer_group, self._now_ms
        )
        left = [each.key[1] for each in cancels if each.key[1] not in marked]
        return self._change(Operation.CANCEL, [self._cancel_of(each) for each in left])

    def _cancel_of(self, message_id: str) -> Change:
        return Change(Operation.CANCEL, message_id, self._producer_group)

    def _reschedule(self, runs: Sequence[_Run]) -> None:
        group = self._producer_group
        changes = [
            Change(Operation.RESCHEDULE, each.id, group, to=each.due)
            for _, run in runs
            for each in run
        ]
        _count(runs, self._change(Operation.RESCHEDULE, changes), "rescheduled")

    def _change(self, operation: Operation, changes: Sequence[Change]) -> list[str]:
        """Makes changes, and answers the ids of those that were made."""
        return self._writer.change_some(operation, self._topic, changes, self._now_ms)


def phases_of(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    """The records of a partition by phase; a phase has records of one kind, in their order.

    The phases follow each other, their kinds alternate, and a record is in the first phase of its kind that
    is not before the last one of its id. So records of one id keep their order, and all others are written by
    as few statements as there are kinds.
    """
    phases: dict[int, list[Entry]] = {}
    last: dict[str, int] = {}
    for entry in entries:
        name = entry.message.id if isinstance(entry, Rejected) else entry.id
        before = last.get(name, 0)
        phase = before + (_PLACES[type(entry)] - before) % len(_KINDS)
        last[name] = phase
        phases.setdefault(phase, []).append(entry)
    return phases


def _count(runs: Iterable[_Run], done: Iterable[str], name: str) -> None:
    """Counts the records whose ids are among the changes that were made, and all others as missed."""
    left = Counter(done)
    for part, run in runs:
        for each in run:
            made = left[each.id] > 0
            left[each.id] -= made
            part.counted[name if made else "missed"] += 1


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
            check_whole("wait_ms", entry.wait_ms, 0, MAX_EARLY_CANCEL_MS)
            problem = id_problem(entry.id)
        case Reschedule():
            problem = id_problem(entry.id) or time_problem("due", entry.due)
        case Rejected(message):
            problem = (
                id_problem(message.id)
                or bytes_problem("body", message.body, MAX_BODY_BYTES)
                or packing_problem(message.headers, MAX_BODY_BYTES)
            )
        case _:
            problem = f"{type(entry).__name__} is nothing that can be asked for"
    if problem:
        raise InvalidInput(f"the record at offset {offset} is not valid: {problem}")
