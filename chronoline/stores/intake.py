"""What all engines share of inputs and members: checks, and the one transaction that takes records in."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar, cast

from chronoline.core.errors import InvalidInput
from chronoline.core.ids import bucket_of
from chronoline.core.limits import (
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
from chronoline.stores.base import EngineStore
from chronoline.stores.batch import check_name, check_size, check_time, check_whole
from chronoline.stores.changes import is_move
from chronoline.stores.contract import MAX_BATCH
from chronoline.stores.inputs import (
    Cancel,
    ClaimLost,
    Entry,
    InputClaim,
    InputRecord,
    Intake,
    Rejected,
    Reschedule,
    TakenIn,
    Tally,
)
from chronoline.stores.members import FORGOTTEN_AFTER_MS, MAX_DETAILS_BYTES, Member
from chronoline.stores.primitives import Key
from chronoline.stores.requests import Asked, change_batch

Answer = TypeVar("Answer")
Partition = tuple[str, int]
"""A source and one of its partitions."""


class Move(NamedTuple):
    """Where a partition's account moves, and what it adds to its counts."""

    partition: Partition
    upto: int
    tally: Tally


class TakesIn(EngineStore):
    """The contract's methods on inputs and members over an engine's primitives, which get valid input."""

    @abstractmethod
    def _transact(self, work: Callable[[TakesIn], Answer]) -> Answer:
        """Runs `work` on a store whose changes are committed together, or not at all if it raises."""

    @abstractmethod
    def _claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, until_ms: int, now_ms: int
    ) -> list[InputClaim]: ...

    @abstractmethod
    def _renew_claims(
        self, claims: Sequence[InputClaim], until_ms: int, now_ms: int
    ) -> list[InputClaim]: ...

    @abstractmethod
    def _positions(self, claims: Sequence[InputClaim], now_ms: int) -> dict[Partition, int]:
        """Where the partitions of live claims stand; inside a transaction nobody moves them meanwhile."""

    @abstractmethod
    def _move_inputs(self, moves: Sequence[Move]) -> None:
        """Moves positions, never backwards, and adds to the counts."""

    @abstractmethod
    def _reject(self, topic: Topic, keys: Sequence[Key], now_ms: int) -> None:
        """Sends messages that were just created to the dead letters."""

    @abstractmethod
    def _beat(
        self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int
    ) -> None: ...

    # Inputs

    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        check_name("source", source)
        check_name("holder", holder)
        check_time("until_ms", until_ms)
        check_time("now_ms", now_ms)
        check_size(starts)
        for partition, start in starts.items():
            check_whole("partition", partition, 0, MAX_TIME_MS)
            check_whole("start", start, 0, MAX_TIME_MS)
        return self._claim_inputs(source, starts, holder, until_ms, now_ms) if starts else []

    def renew_claims(
        self, claims: Sequence[InputClaim], *, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        check_size(claims)
        check_time("until_ms", until_ms)
        check_time("now_ms", now_ms)
        return self._renew_claims(claims, until_ms, now_ms) if claims else []

    def take_in(
        self, topic_uid: int, intakes: Sequence[Intake], *, producer_group: str, now_ms: int
    ) -> list[TakenIn]:
        check_name("producer group", producer_group)
        check_time("now_ms", now_ms)
        _check_intakes(intakes)
        topic = self._topic(topic_uid)

        def work(inside: TakesIn) -> list[TakenIn]:
            return _Taking(inside, topic, producer_group, now_ms).take_in(intakes)

        return self._transact(work) if intakes else []

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
        self._beat(group, name, until_ms, details, max(0, now_ms - FORGOTTEN_AFTER_MS))
        return self.members(group)


class _Taking:
    """One `take_in`, inside its transaction."""

    def __init__(self, store: TakesIn, topic: Topic, producer_group: str, now_ms: int) -> None:
        self._store = store
        self._topic = topic
        self._producer_group = producer_group
        self._now_ms = now_ms

    def take_in(self, intakes: Sequence[Intake]) -> list[TakenIn]:
        positions = self._store._positions([intake.claim for intake in intakes], self._now_ms)
        self._store.get_topic(self._topic.uid)  # a dropped topic takes nothing in
        taken: list[TakenIn] = []
        moves: list[Move] = []
        for claim, records, upto in intakes:
            partition = (claim.source, claim.partition)
            if partition not in positions:
                raise ClaimLost(
                    f"partition {claim.partition} of {claim.source!r} is no longer {claim.holder!r}'s"
                )
            fresh = [record for record in records if record.offset >= positions[partition]]
            tally = self._do([record.entry for record in fresh])
            taken.append(TakenIn(skipped=len(records) - len(fresh), tally=tally))
            moves.append(Move(partition, upto, tally))
        self._store._move_inputs(moves)
        return taken

    def _do(self, entries: Iterable[Entry]) -> Tally:
        counted: Counter[str] = Counter()
        # Neighbours of one kind are done by one statement.
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
        outcomes = self._store.create(self._topic.uid, messages, now_ms=self._now_ms)
        invalid = next((each for each in outcomes if each.refusal is Refusal.INVALID), None)
        if invalid is not None:
            raise InvalidInput(f"message {invalid.id!r} is not valid: {invalid.reason}")
        accepted = sum(outcome.done for outcome in outcomes)
        return {"accepted": accepted, "ignored": len(outcomes) - accepted}

    def _reject(self, rejected: Iterable[Rejected]) -> dict[str, int]:
        buckets = self._topic.settings.buckets
        placed = {each.message.id: each.message for each in rejected}
        made = self._store._create(
            self._topic,
            [(bucket_of(each, buckets), message) for each, message in placed.items()],
            False,
            self._now_ms,
        )
        taken = next((each for each in placed if each not in made), None)
        if taken is not None:
            raise InvalidInput(f"a record is rejected as {taken!r}, which is taken: use another id")
        keys = [(bucket_of(each, buckets), each) for each in placed]
        self._store._reject(self._topic, keys, self._now_ms)
        return {"rejected": len(placed)}

    def _cancel(self, cancels: Iterable[Cancel]) -> dict[str, int]:
        asked = [Asked(each.id, self._producer_group, 0, self._now_ms) for each in cancels]
        return self._control(Operation.CANCEL, "cancelled", asked)

    def _reschedule(self, moves: Iterable[Reschedule]) -> dict[str, int]:
        asked = [Asked(each.id, self._producer_group, 0, each.due) for each in moves]
        return self._control(Operation.RESCHEDULE, "rescheduled", asked)

    def _control(self, operation: Operation, name: str, asked: Sequence[Asked]) -> dict[str, int]:
        batch = change_batch(self._topic, asked, self._now_ms)
        done = 0
        for chosen in batch.rounds():
            moved = {each.id: each.to for each in chosen if is_move(operation, each)}
            with self._store._telling(self._topic, moved, self._now_ms) as made:
                made.update(self._store._change(operation, self._topic, chosen, self._now_ms))
            done += len(made)
        return {name: done, "missed": len(asked) - done}


def _check_intakes(intakes: Sequence[Intake]) -> None:
    check_size(intakes)
    partitions = {(claim.source, claim.partition) for claim, _, _ in intakes}
    if len(partitions) < len(intakes):
        raise InvalidInput("a partition is there twice; put its records into one intake")
    if sum(len(intake.records) for intake in intakes) > MAX_BATCH:
        raise InvalidInput(f"at most {MAX_BATCH} records are taken in at once: split them")
    for intake in intakes:
        check_whole("upto", intake.upto, 0, MAX_TIME_MS)
        for record in intake.records:
            _check_record(record, intake.upto)


def _check_record(record: InputRecord, upto: int) -> None:
    offset, entry = record
    check_whole("offset", offset, 0, upto - 1)
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
